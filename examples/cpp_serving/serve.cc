// Serves a SavedModel with fused layers from C++, without Python.
//
//   make PYTHON=python3
//   ./serve --package PACKAGE --model MODEL --callers 4 --requests 1000
//
// Concurrent callers, each a thread, call the model until all requests are
// answered. Request r has the input x[n] = 0.25 * ((n + r) % 7 - 3). The
// program prints how long calls took, and --output writes what they returned.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "model.h"

namespace {

constexpr char kUsage[] =
    "serve --model FOLDER [options]\n"
    "  --model FOLDER    a SavedModel, which model.export wrote\n"
    "  --package FOLDER  where tf_blockrnn is installed; none where "
    "LD_PRELOAD\n"
    "                    has loaded the op library\n"
    "  --signature NAME  (serving_default)\n"
    "  --threads N       that all calls share; 0 for one per processor (0)\n"
    "  --callers N       that call the model at the same time (1)\n"
    "  --requests N      that they make in all (100)\n"
    "  --batch N         rows of a request where the model leaves it open (1)\n"
    "  --steps N         steps of a request where the model leaves it open "
    "(16)\n"
    "  --output FILE     for the outputs of all requests: float32, in order\n";

struct Options {
  std::string model, package, signature = "serving_default", output;
  int threads = 0, callers = 1, requests = 100, batch = 1, steps = 16;
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int ParseNumber(const std::string& name, const std::string& text, int least) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < least ||
      value > std::numeric_limits<int>::max()) {
    throw UsageError(name + " must be a whole number from " +
                     std::to_string(least) + " on, got " + text);
  }
  return static_cast<int>(value);
}

Options Parse(int count, char** arguments) {
  Options options;
  const struct {
    const char* name;
    std::string* text;
    int* number;
    int least;
  } known[] = {
      {"--model", &options.model, nullptr, 0},
      {"--package", &options.package, nullptr, 0},
      {"--signature", &options.signature, nullptr, 0},
      {"--output", &options.output, nullptr, 0},
      {"--threads", nullptr, &options.threads, 0},
      {"--callers", nullptr, &options.callers, 1},
      {"--requests", nullptr, &options.requests, 1},
      {"--batch", nullptr, &options.batch, 1},
      {"--steps", nullptr, &options.steps, 1},
  };
  for (int i = 1; i < count; i += 2) {
    const std::string name = arguments[i];
    const auto* const option =
        std::find_if(std::begin(known), std::end(known),
                     [&](const auto& one) { return name == one.name; });
    if (option == std::end(known)) throw UsageError("unknown option " + name);
    if (i + 1 == count) throw UsageError(name + " needs a value");
    if (option->text != nullptr) {
      *option->text = arguments[i + 1];
    } else {
      *option->number = ParseNumber(name, arguments[i + 1], option->least);
    }
  }
  if (options.model.empty()) throw UsageError("--model must be given");
  return options;
}

// The inputs of a request.
std::vector<Tensor> MakeInputs(const Signature& signature,
                               const Options& options, int request) {
  std::vector<Tensor> inputs;
  for (const auto& [name, info] : signature.inputs) {
    if (info.dtype != TF_FLOAT) {
      throw std::runtime_error("input " + name +
                               " must be of float32, it is of type " +
                               std::to_string(info.dtype));
    }
    std::vector<int64_t> dims = info.dims;
    int64_t size = 1;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] < 0) dims[d] = d == 0 ? options.batch : options.steps;
      size *= dims[d];
    }
    inputs.emplace_back(TF_AllocateTensor(TF_FLOAT, dims.data(),
                                          static_cast<int>(dims.size()),
                                          size * sizeof(float)));
    auto* const x = static_cast<float*>(TF_TensorData(inputs.back().get()));
    for (int64_t n = 0; n < size; ++n) {
      x[n] = 0.25f * static_cast<float>((n + request) % 7 - 3);
    }
  }
  return inputs;
}

struct Answer {
  double microseconds = 0.0;
  std::vector<float> outputs;  // one after the other, if they are to be written
};

Answer Ask(const Model& model, const Options& options, int request) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Tensor> inputs =
      MakeInputs(model.signature(), options, request);
  Answer answer;
  const auto begin = Clock::now();
  const std::vector<Tensor> outputs = model.Run(inputs);
  answer.microseconds =
      std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  if (options.output.empty()) return answer;
  for (const Tensor& output : outputs) {
    if (TF_TensorType(output.get()) != TF_FLOAT) {
      throw std::runtime_error("--output takes outputs of float32 alone");
    }
    const auto* const y =
        static_cast<const float*>(TF_TensorData(output.get()));
    answer.outputs.insert(answer.outputs.end(), y,
                          y + TF_TensorElementCount(output.get()));
  }
  return answer;
}

// Lets the callers make all requests.
std::vector<Answer> AskAll(const Model& model, const Options& options) {
  std::vector<Answer> answers(options.requests);
  std::atomic<int> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto caller = [&] {
    try {
      for (int r = next++; r < options.requests; r = next++) {
        answers[r] = Ask(model, options, r);
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      error = std::current_exception();
      next = options.requests;
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < options.callers; ++i) callers.emplace_back(caller);
  for (std::thread& thread : callers) thread.join();
  if (error) std::rethrow_exception(error);
  return answers;
}

// Of sorted times: that which so many percent do not exceed.
double Percentile(const std::vector<double>& sorted, int percent) {
  return sorted[(sorted.size() - 1) * percent / 100];
}

void Serve(const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  if (!options.package.empty()) LoadOps(options.package);
  const Model model(options.model, options.signature, options.threads);
  Ask(model, options, 0);  // which allocates, and packs frozen weights
  const auto ready = Clock::now();
  const std::vector<Answer> answers = AskAll(model, options);
  const auto end = Clock::now();

  std::vector<double> times;
  for (const Answer& answer : answers) times.push_back(answer.microseconds);
  std::sort(times.begin(), times.end());
  const std::chrono::duration<double> loading = ready - begin;
  const std::chrono::duration<double> serving = end - ready;
  std::printf("TensorFlow %s, loaded and called once in %.2f s\n", TF_Version(),
              loading.count());
  std::printf("%d requests of %d callers: %.0f per second\n", options.requests,
              options.callers, options.requests / serving.count());
  std::printf("latency: p50 %.0f us, p95 %.0f us, longest %.0f us\n",
              Percentile(times, 50), Percentile(times, 95), times.back());

  if (options.output.empty()) return;
  std::ofstream file(options.output, std::ios::binary);
  for (const Answer& answer : answers) {
    file.write(
        reinterpret_cast<const char*>(answer.outputs.data()),
        static_cast<std::streamsize>(answer.outputs.size() * sizeof(float)));
  }
  if (!file.flush()) {
    throw std::runtime_error("cannot write " + options.output);
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    Serve(Parse(count, arguments));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
