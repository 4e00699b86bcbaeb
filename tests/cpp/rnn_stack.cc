// Describes stacks of recurrent layers and their gradient. Their numbers are
// tested in tests/cudnn/; here they have no reference, and must be numbers.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "tests/cpp/guarded_block.h"
#include "tests/cpp/op.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

// Values that are no status.
constexpr auto kBrokenReserve = static_cast<cpu::Status>(98);
constexpr auto kNoForward = static_cast<cpu::Status>(99);

struct Choice {
  RnnMode mode;
  int layers;
  int directions;
  bool projected;
  bool skip_input;
  bool lengths;
  bool time_major;
  bool dropout;
};
constexpr Choice kChoices[] = {
    {RnnMode::kTanh, 1, 1, false, false, false, false, false},
    {RnnMode::kGru, 2, 2, false, false, true, false, true},
    {RnnMode::kTanh, 3, 2, false, false, false, true, false},
    {RnnMode::kRelu, 2, 1, false, false, true, true, true},
    {RnnMode::kLstm, 3, 2, true, false, true, false, true},
    {RnnMode::kLstm, 1, 2, true, true, false, true, false},
    {RnnMode::kGru, 3, 1, false, true, true, true, true},
    {RnnMode::kGru, 1, 2, false, false, true, false, false},
    {RnnMode::kTanh, 1, 2, false, true, true, false, false},
    {RnnMode::kRelu, 1, 2, false, true, false, true, false},
    {RnnMode::kTanh, 2, 2, false, false, true, true, true},
    {RnnMode::kLstm, 2, 1, true, false, false, true, true},
    {RnnMode::kLstm, 1, 1, false, false, false, true, false},
    {RnnMode::kGru, 2, 2, false, true, false, false, false},
    {RnnMode::kRelu, 3, 2, false, false, true, false, true},
    {RnnMode::kLstm, 2, 2, false, true, true, false, false},
    {RnnMode::kLstm, 2, 2, false, false, true, true, true},
};
constexpr int kVariants = sizeof(kChoices) / sizeof(kChoices[0]);

// Variants from kVariants on: all combinations, each with all that a stack has
// of its own (% 12).
constexpr int kMoreVariants = 4 * 3 * 2 * 2 * 2 * 2 * 2 * 2 * 12;
Choice ChoiceOf(int variant) {
  if (variant < kVariants) return kChoices[variant];
  MixedRadix digits((variant - kVariants) / 12);
  Choice choice;
  choice.mode = static_cast<RnnMode>(digits.Next(4));
  choice.layers = 1 + digits.Next(3);
  choice.directions = 1 + digits.Next(2);
  choice.projected = digits.NextBool() && choice.mode == RnnMode::kLstm;
  choice.skip_input = digits.NextBool();
  choice.lengths = digits.NextBool();
  choice.time_major = digits.NextBool();
  choice.dropout = digits.NextBool();
  return choice;
}

// One call: a choice and its sizes.
class Stack {
 public:
  Stack(const Dims& d, int variant)
      : dims(d),
        choice(ChoiceOf(variant)),
        trains(variant % 4 != 3),
        gives_output_grad_(variant % 3 != 2),
        gives_state_grads_(variant % 3 != 1) {
    const bool projected = choice.projected && d.units > 0;
    g = {choice.mode,       choice.layers,
         choice.directions, choice.skip_input ? d.units : d.input,
         d.units,           projected ? (d.units + 1) / 2 : d.units,
         projected,         choice.skip_input};
    // In 0..T, both ends of it among a few rows.
    for (int64_t b = 0; b < d.batch; ++b) {
      lengths_.push_back(choice.lengths ? (3 * b + 2) % (d.steps + 1)
                                        : d.steps);
    }
  }

  std::vector<TensorSpec> Inputs() const {
    return {{"input", Sequence(g.input)},
            {"input_h", State(g.proj)},
            {"input_c", State(g.units), {}, IsLstm()},
            {"params", *ParamLayout::Count(g), Fill::kWeight}};
  }
  std::vector<TensorSpec> Outputs() const {
    return {{"output", Sequence(g.OutputWidth())},
            {"output_h", State(g.proj)},
            {"output_c", State(g.units), {}, IsLstm()}};
  }
  std::vector<TensorSpec> Cotangents() const {
    std::vector<TensorSpec> specs = Outputs();
    for (TensorSpec& spec : specs) {
      spec.used &=
          spec.name == "output" ? gives_output_grad_ : gives_state_grads_;
      spec.name += "_backprop";
    }
    return specs;
  }
  std::vector<TensorSpec> Gradients() const {
    std::vector<TensorSpec> specs = Inputs();
    for (TensorSpec& spec : specs) spec.name += "_backprop";
    return specs;
  }

  // What is common to the arguments of both directions of a call.
  template <class Args>
  void Fill(Args* args) const {
    args->geometry = g;
    args->steps = dims.steps;
    args->batch = dims.batch;
    args->time_major = choice.time_major;
    args->dropout = choice.dropout ? 0.375f : 0.0f;
    args->lengths = choice.lengths ? lengths_.data() : nullptr;
  }

  // What a row has past its length is never read.
  void SpoilPadding(Tensor* sequence) const {
    const auto rows = static_cast<std::size_t>(dims.batch * dims.steps);
    const std::size_t width = rows == 0 ? 0 : sequence->size() / rows;
    for (int64_t b = 0; b < dims.batch; ++b) {
      for (int64_t t = lengths_[b]; t < dims.steps; ++t) {
        const int64_t row =
            choice.time_major ? t * dims.batch + b : b * dims.steps + t;
        std::fill_n(sequence->begin() + row * width, width,
                    std::numeric_limits<double>::quiet_NaN());
      }
    }
  }

  const Dims dims;
  const Choice choice;
  const bool trains;  // of a forward call
  RnnGeometry g;

 private:
  bool IsLstm() const { return g.mode == RnnMode::kLstm; }
  int64_t Sequence(int64_t width) const {
    return dims.steps * dims.batch * width;
  }
  int64_t State(int64_t width) const {
    return g.layer_directions() * dims.batch * width;
  }

  const bool gives_output_grad_;
  const bool gives_state_grads_;
  std::vector<int64_t> lengths_;
};

template <class Args>
GuardedBlock MakeReserve(const Args& args, Type type) {
  const ReserveLayout layout(args.geometry, args.steps, args.batch,
                             ValidRows(args.steps, args.batch, args.lengths),
                             static_cast<int64_t>(SizeOf(type)),
                             args.dropout > 0);
  GuardedBlock block(layout.total(), 0);
  std::fill_n(block.data(), block.size(), 0xFF);
  return block;
}

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    return Stack(d, variant).Inputs();
  }
  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    return Stack(d, variant).Outputs();
  }

  static void Prepare(const Case& c, std::vector<Tensor>* in) {
    Stack(c.dims, c.variant).SpoilPadding(&(*in)[0]);
    // A relu's state would grow from step to step.
    for (Real& element : (*in)[3]) element = element.value / 4;
  }

  // But the outputs.
  template <class T>
  static RnnStackForwardArgs<T> Args(const Stack& s, const EngineCall& call) {
    RnnStackForwardArgs<T> args;
    s.Fill(&args);
    // A carry propagates through all digits of the counter within a mask.
    args.philox = {{0x12345678u, 0x9abcdef0u},
                   {0xfffffffau, 0xffffffffu, 0xffffffffu, 7u}};
    SetPointers(s.Inputs(), call.inputs.data(), false, &args);
    return args;
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Stack s(call.of.dims, call.of.variant);
    RnnStackForwardArgs<T> args = Args<T>(s, call);
    SetPointers(s.Outputs(), call.outputs.data(), false, &args);
    const GuardedBlock reserve = MakeReserve(args, call.of.type);
    if (s.trains) args.reserve = reserve.data();
    const cpu::Status status = RunEngine<T>(call, args);
    return reserve.Intact() ? status : kBrokenReserve;
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const Stack s(d, variant);
    std::vector<TensorSpec> specs = s.Inputs();
    for (const TensorSpec& spec : s.Cotangents()) specs.push_back(spec);
    return specs;
  }
  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    return Stack(d, variant).Gradients();
  }

  static void Prepare(const Case& c, std::vector<Tensor>* in) {
    Forward::Prepare(c, in);
    Stack(c.dims, c.variant).SpoilPadding(&(*in)[4]);
  }

  // Runs the forward op for the inputs of the backward op; only the host of the
  // backward op is under test.
  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Stack s(call.of.dims, call.of.variant);
    RnnStackForwardArgs<T> forward = Forward::Args<T>(s, call);
    const GuardedBlock reserve = MakeReserve(forward, call.of.type);
    forward.reserve = reserve.data();
    std::vector<GuardedBlock> outputs;
    std::vector<void*> pointers;
    for (const TensorSpec& spec : s.Outputs()) {
      outputs.emplace_back(spec.count * SizeOf(call.of.type), 0);
      pointers.push_back(outputs.back().data());
    }
    SetPointers(s.Outputs(), pointers.data(), false, &forward);
    const TestHost host{HostOptions()};
    const auto& functions = Functions(static_cast<T*>(nullptr));
    if (functions.Run(forward, host.host()) != cpu::Status::kOk) {
      return kNoForward;
    }
    RnnStackBackwardArgs<T> args;
    s.Fill(&args);
    SetPointers(call, &args);
    args.output = forward.output;
    args.reserve = reserve.data();
    return RunEngine<T>(call, args);
  }
};

const bool kAdded =
    AddOp({"RNNStack", false, false, kVariants, &Forward::Inputs,
           &Forward::Outputs, nullptr, nullptr, &CallWithType<Forward>, true, 1,
           &Forward::Prepare, nullptr, false, kMoreVariants}) &&
    AddOp({"RNNStackGrad", true, false, kVariants, &Backward::Inputs,
           &Backward::Outputs, nullptr, nullptr, &CallWithType<Backward>, true,
           1, &Backward::Prepare, nullptr, false, kMoreVariants});

}  // namespace
}  // namespace blockrnn::test
