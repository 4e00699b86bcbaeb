// Defines how the tests describe an op: its tensors, its reference and how the
// engine is called for it. An op family is one file that fills an Op for each
// of its ops and registers it; every test and the fuzzer then cover it.

#ifndef BLOCKRNN_TESTS_CPP_OP_H_
#define BLOCKRNN_TESTS_CPP_OP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cc/core/activations.h"
#include "cc/core/argument_members.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/heap.h"
#include "tests/cpp/reference.h"
#include "tests/cpp/storage.h"
#include "tests/cpp/test_host.h"

extern "C" const blockrnn::cpu::Engine* blockrnn_cpu_engine();

namespace blockrnn::test {

struct Dims {
  int64_t batch = 0;
  int64_t input = 0;
  int64_t units = 0;
  int64_t steps = 1;  // ops of one step ignore it
};

// How an input is drawn.
enum class Fill {
  kState,   // in [−1, 1]
  kWeight,  // sized so that a GEMM does not change the magnitude of numbers
  kGate,    // in [0, 1], the ends included
};

struct TensorSpec {
  std::string name;
  int64_t count;
  Fill fill = Fill::kState;  // of an input
  // An input that is not read is given as nullptr. An output that is not
  // written must hold what was there before.
  bool used = true;
};

// How the weights of a forward sequence are given to the engine (frozen.h). All
// forms but the default are without recurrent dropout.
struct WeightForm {
  enum Kind { kAsDrawn, kInPlace, kFrozen };
  Kind kind = kAsDrawn;
  Precision precision = Precision::kStorage;  // of frozen weights
  int filled = 0xFF;                          // the memory of frozen weights
};

// How inputs are drawn.
enum class Data {
  kPlain,     // ordinary numbers
  kLarge,     // eight times as large: gates saturate, half overflows
  kTiny,      // down to subnormal numbers
  kSpecials,  // some are NaN, infinite or zero
  kIntegers,  // small integers, with identity activations
};

struct Op;

struct Case {
  const Op* op = nullptr;
  Type type = Type::kFloat;
  Dims dims;
  int variant = 0;
  Data data = Data::kPlain;
  uint64_t seed = 1;
  int offset = 0;  // elements that each tensor is off its alignment
  bool heap_is_dry = false;
  WeightForm weights;
  bool batch_invariant = false;
  ActivationOptions activations;
  // Changes the inputs that were drawn; may be empty.
  std::function<void(const std::vector<TensorSpec>&, std::vector<Tensor>*)>
      edit;
  HostOptions host;

  bool HasIdentity() const { return data == Data::kIntegers; }
};

// One call of the engine. The pointers are in the order of the specs.
struct EngineCall {
  const Case& of;
  const cpu::HostInterface& host;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<unsigned char>* packed;  // gets frozen weights
};

// A forward call of float, and the backward call that reads what it has saved,
// of random numbers.
struct TrainingCall {
  Dims dims;
  int variant = 0;
  int64_t span_steps = 0;  // 0: the gates are saved
  bool saved_in_steps = false;
};
// By name; an element that is not written is NaN.
using NamedArrays = std::map<std::string, std::vector<float>>;

using SpecsOf = std::vector<TensorSpec> (*)(const Dims&, int variant);

struct Op {
  const char* name;
  bool backward;
  bool has_identity;  // can be called with identity activations
  int variants;       // choices of attrs, numbered from 0
  SpecsOf inputs;
  SpecsOf outputs;
  // The longest sum behind an output.
  int64_t (*reduction)(const Dims&);
  // The outputs; an unused one may be left empty. computed: with weights in
  // lower precision than the type's, what the engine has computed, by name;
  // each step is that of the state which the step before has left there.
  // nullptr: the op has no reference.
  std::vector<Tensor> (*reference)(const Case&,
                                   const std::vector<Tensor>& inputs,
                                   const NamedTensors* computed);
  cpu::Status (*call)(const EngineCall&);
  // An op over a sequence: its tests use shapes with Dims::steps.
  bool sequence = false;
  // Sums with identity activations grow with every step; so many are exact.
  int64_t exact_steps = 1;
  // Makes drawn inputs such as the op may be given; may be nullptr.
  void (*prepare)(const Case&, std::vector<Tensor>* inputs) = nullptr;
  // All outputs of both calls; nullptr: no op of a forward pass over a
  // sequence.
  NamedArrays (*train)(const TrainingCall&) = nullptr;
  bool has_activations = false;  // its calls of float may have other ones
  // Variants after those above, for the fuzzer: every combination of options.
  int more_variants = 0;

  bool ForwardSequence() const { return train != nullptr; }
};

// Takes digits off a number, each with a radix of its own, the lowest first.
class MixedRadix {
 public:
  explicit MixedRadix(int number) : number_(number) {}

  int Next(int radix) {
    const int digit = number_ % radix;
    number_ /= radix;
    return digit;
  }
  bool NextBool() { return Next(2) == 1; }

 private:
  int number_;
};

inline std::vector<Op>& Ops() {
  static std::vector<Op> ops;
  return ops;
}

inline bool AddOp(const Op& op) {
  Ops().push_back(op);
  return true;
}

// The op must be registered.
inline const Op& FindOp(const std::string& name) {
  for (const Op& op : Ops()) {
    if (name == op.name) return op;
  }
  std::abort();
}

// The engine's functions for a storage type, found by that type.
inline const auto& Functions(const Eigen::half*) {
  return blockrnn_cpu_engine()->f16;
}
inline const auto& Functions(const Eigen::bfloat16*) {
  return blockrnn_cpu_engine()->bf16;
}
inline const auto& Functions(const float*) {
  return blockrnn_cpu_engine()->f32;
}
inline const auto& Functions(const double*) {
  return blockrnn_cpu_engine()->f64;
}

// Whether the engine under test rounds to bfloat16 what it multiplies of it.
inline bool MultipliesBfloat16() {
  return std::strstr(blockrnn_cpu_engine()->isa, "bf16") != nullptr;
}

// Sets the pointers of an engine's arguments, named by the specs. An input that
// is not read is nullptr, and so is an output that may be left out and is not
// wanted.
template <template <class> class Args, class T>
void SetPointers(const std::vector<TensorSpec>& specs,
                 const void* const* pointers, bool may_be_left_out,
                 Args<T>* args) {
  static constexpr ArgumentMembers<Args<float>> kMembers;
  for (std::size_t t = 0; t < specs.size(); ++t) {
    const auto member =
        std::find_if(kMembers.begin(), kMembers.end(),
                     [&](const auto& m) { return m.name == specs[t].name; });
    if (member == kMembers.end()) std::abort();
    const void* const pointer =
        specs[t].used || !may_be_left_out ? pointers[t] : nullptr;
    std::memcpy(reinterpret_cast<char*>(args) + member->offset, &pointer,
                sizeof(pointer));
  }
}

// The inputs and outputs of an op that leaves none of them out.
template <template <class> class Args, class T>
void SetPointers(const EngineCall& call, Args<T>* args) {
  const Case& c = call.of;
  SetPointers(c.op->inputs(c.dims, c.variant), call.inputs.data(), false, args);
  SetPointers(c.op->outputs(c.dims, c.variant), call.outputs.data(), false,
              args);
}

// Calls the engine's function for these arguments of type T.
template <class T, class Args>
cpu::Status RunEngine(const EngineCall& call, const Args& args) {
  const HeapIsDry heap(call.of.heap_is_dry);
  return Functions(static_cast<T*>(nullptr)).Run(args, call.host);
}

// Family::Call<T>(call), which is not compiled for a type that is not tested.
template <class Family, Type type, class T>
cpu::Status CallIfTested(const EngineCall& call) {
  if constexpr (IsTested(type)) return Family::template Call<T>(call);
  std::abort();
}

// Family::Call<T>(call) for the T of the call.
template <class Family>
cpu::Status CallWithType(const EngineCall& call) {
  switch (call.of.type) {
    case Type::kHalf:
      return CallIfTested<Family, Type::kHalf, Eigen::half>(call);
    case Type::kBfloat16:
      return CallIfTested<Family, Type::kBfloat16, Eigen::bfloat16>(call);
    case Type::kFloat:
      return CallIfTested<Family, Type::kFloat, float>(call);
    case Type::kDouble:
      return CallIfTested<Family, Type::kDouble, double>(call);
  }
  std::abort();
}

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_OP_H_
