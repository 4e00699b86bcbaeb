// Runs a recurrent layer by the C interface of libblockrnn_inference.so in each
// precision, on one thread and on three:
//
//   session_program FOLDER
//
// Prints the instruction set of the engine in FOLDER that the processor got,
// then, for each precision, its name and the bits of the outputs. The layer has
// relu, so that its int8 outputs come from exact sums, one multiply-add and
// additions alone.

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cc/inference/blockrnn.h"

namespace {

constexpr int64_t kInputs = 37;
constexpr int64_t kUnits = 45;
constexpr int64_t kBatch = 7;
constexpr int64_t kSteps = 5;

[[noreturn]] void Fail(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

template <class Function>
Function* Find(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) Fail(name, dlerror());
  return reinterpret_cast<Function*>(symbol);
}

// Numbers in [-size, size], the same on every machine.
std::vector<float> Draw(int64_t count, float size) {
  static uint32_t state = 1;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = size * (static_cast<float>(state >> 8) / 8388608.0f - 1.0f);
  }
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) Fail(argv[0], "which folder?");
  const std::string path = std::string(argv[1]) + "/libblockrnn_inference.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) Fail("dlopen", dlerror());
  const auto create = Find<decltype(blockrnn_session_create)>(
      library, "blockrnn_session_create");
  const auto run =
      Find<decltype(blockrnn_session_run)>(library, "blockrnn_session_run");
  const auto destroy = Find<decltype(blockrnn_session_destroy)>(
      library, "blockrnn_session_destroy");
  const auto last_error =
      Find<decltype(blockrnn_last_error)>(library, "blockrnn_last_error");
  const auto isa =
      Find<decltype(blockrnn_cpu_isa)>(library, "blockrnn_cpu_isa");

  const std::vector<float> w_x = Draw(kInputs * kUnits, 0.3f);
  const std::vector<float> w_h = Draw(kUnits * kUnits, 0.2f);
  const std::vector<float> b_x = Draw(kUnits, 0.1f);
  const std::vector<float> x = Draw(kBatch * kSteps * kInputs, 1.0f);
  blockrnn_direction direction = BLOCKRNN_DIRECTION_INIT;
  direction.w_x = w_x.data();
  direction.w_h = w_h.data();
  direction.b_x = b_x.data();
  blockrnn_layer layer = BLOCKRNN_LAYER_INIT;
  layer.inputs = kInputs;
  layer.units = layer.outputs = kUnits;
  layer.forward = &direction;
  blockrnn_model model = BLOCKRNN_MODEL_INIT;
  model.cell = BLOCKRNN_RNN_RELU;
  model.num_layers = 1;
  model.layers = &layer;

  const char* const name = isa();
  std::printf("%s\n", name == nullptr ? "none" : name);
  constexpr const char* kNames[] = {"float32", "bfloat16", "int8"};
  for (blockrnn_precision precision = BLOCKRNN_FLOAT32;
       precision <= BLOCKRNN_INT8; ++precision) {
    std::vector<float> outputs;
    for (const int threads : {1, 3}) {
      blockrnn_session* session = nullptr;
      if (create(&model, precision, threads, &session) != BLOCKRNN_OK) {
        Fail("create", last_error());
      }
      std::vector<float> y(kBatch * kSteps * kUnits);
      if (run(session, x.data(), kBatch, kSteps, nullptr, nullptr, nullptr,
              y.data()) != BLOCKRNN_OK) {
        Fail("run", last_error());
      }
      destroy(session);
      if (threads > 1 &&
          std::memcmp(y.data(), outputs.data(), y.size() * sizeof(y[0])) != 0) {
        Fail(kNames[precision], "the threads change bits");
      }
      outputs = y;
    }
    std::printf("%s", kNames[precision]);
    for (const float output : outputs) {
      uint32_t bits;
      std::memcpy(&bits, &output, sizeof(bits));
      std::printf(" %08x", static_cast<unsigned>(bits));
    }
    std::printf("\n");
  }
}
