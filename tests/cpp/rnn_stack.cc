// Defines the tests' view of stacks of recurrent layers and of their gradient:
// tensors, reference, engine call.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "tests/cpp/guarded_block.h"
#include "tests/cpp/heap.h"
#include "tests/cpp/op.h"
#include "tests/cpp/rnn_stack_reference.h"
#include "tests/cpp/rnn_stack_variants.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

// Values that are no status.
constexpr auto kBrokenReserve = static_cast<cpu::Status>(98);
constexpr auto kNoForward = static_cast<cpu::Status>(99);

int64_t StateCount(const Stack& s, int64_t width) {
  return s.layer_directions * s.batch * width;
}

// What is common to the arguments of both directions of a call; its lengths
// live in `lengths`.
template <class Args>
void FillCommon(const Stack& s, std::vector<int64_t>* lengths, Args* args) {
  const HeapIsDry heap(false);
  RnnGeometry& g = args->geometry;
  g.mode = s.choice.mode;
  g.layers = s.choice.layers;
  g.directions = s.choice.directions;
  g.input = s.input;
  g.units = s.units;
  g.proj = s.proj;
  g.projected = s.projected;
  g.skip_input = s.choice.skip_input;
  args->steps = s.steps;
  args->batch = s.batch;
  args->time_major = s.choice.time_major;
  args->dropout = s.Dropout();
  for (int64_t b = 0; b < s.batch; ++b) lengths->push_back(s.Length(b));
  args->lengths = s.choice.lengths ? lengths->data() : nullptr;
}

template <class Args>
GuardedBlock MakeReserve(const Args& args, std::size_t element_size) {
  const HeapIsDry heap(false);
  const ReserveLayout layout(args.geometry, args.steps, args.batch,
                             ValidRows(args.steps, args.batch, args.lengths),
                             static_cast<int64_t>(element_size),
                             args.dropout > 0);
  GuardedBlock block(layout.total(), 0);
  std::fill_n(block.data(), block.size(), 0xFF);
  return block;
}

GuardedBlock MakeArray(const EngineCall& call, int64_t count) {
  const HeapIsDry heap(false);
  return GuardedBlock(count * SizeOf(call.type), 0);
}

// What a row has past its length is never read.
void SpoilPadding(const Stack& s, int64_t width, Tensor* sequence) {
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t t = s.Length(b); t < s.steps; ++t) {
      for (int64_t k = 0; k < width; ++k) {
        (*sequence)[s.Row(t, b) * width + k] =
            std::numeric_limits<double>::quiet_NaN();
      }
    }
  }
}

// Excludes what is undefined or would make the tolerance meaningless: zero
// gradients past a row's length times weights that are not finite, and sums
// that grow from step to step or, with relu, without bound.
void CalmParams(const Stack& s, Tensor* params) {
  MakeFinite(params);
  const double depth = static_cast<double>(s.input + s.units);
  const double widest =
      static_cast<double>(std::max(s.OutputWidth() + s.proj, s.input));
  constexpr int64_t kFewSteps = 4;
  const bool many = s.steps > kFewSteps || s.choice.mode == RnnMode::kRelu;
  const int halvings =
      many && widest > 0
          ? static_cast<int>(std::ceil(std::log2(widest / std::sqrt(depth))))
          : 0;
  for (Real& element : *params) {
    element = std::ldexp(element.value, -std::max(halvings, 0));
  }
}

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const Stack s(d, variant);
    return {
        {"input", s.steps * s.batch * s.input},
        {"input_h", StateCount(s, s.proj)},
        {"input_c", StateCount(s, s.units), Fill::kState, s.IsLstm()},
        {"params", StackParams(s), Fill::kWeight},
    };
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Stack s(d, variant);
    return {
        {"output", s.steps * s.batch * s.OutputWidth()},
        {"output_h", StateCount(s, s.proj)},
        {"output_c", StateCount(s, s.units), {}, s.IsLstm()},
    };
  }

  static void Prepare(const Dims& d, int variant, bool,
                      std::vector<Tensor>* in) {
    const Stack s(d, variant);
    SpoilPadding(s, s.input, &(*in)[0]);
    CalmParams(s, &(*in)[3]);
  }

  static int64_t Reduction(const Dims& d) { return d.input + 3 * d.units; }

  static std::vector<Tensor> Reference(const ReferenceCall& call,
                                       const std::vector<Tensor>& in) {
    const Stack s(call.dims, call.variant);
    const StackOutputs out = StackForward(s, s.trains && s.choice.dropout,
                                          {in[0], in[1], in[2], in[3]});
    return {out.output, out.output_h, out.output_c};
  }

  template <class T>
  static RnnStackForwardArgs<T> Args(const Stack& s, const EngineCall& call,
                                     std::vector<int64_t>* lengths) {
    const HeapIsDry heap(false);
    RnnStackForwardArgs<T> args;
    FillCommon(s, lengths, &args);
    args.philox = Stack::Philox();
    SetPointers(Inputs(call.dims, call.variant), call.inputs, false, &args);
    return args;
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Stack s(call.dims, call.variant);
    std::vector<int64_t> lengths;
    RnnStackForwardArgs<T> args = Args<T>(s, call, &lengths);
    SetPointers(Inputs, Outputs, call, &args);
    const GuardedBlock reserve = MakeReserve(args, SizeOf(call.type));
    if (s.trains) args.reserve = reserve.data();
    const cpu::Status status =
        Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
    return reserve.Intact() ? status : kBrokenReserve;
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const Stack s(d, variant);
    std::vector<TensorSpec> specs = Forward::Inputs(d, variant);
    specs.push_back({"output_backprop", s.steps * s.batch * s.OutputWidth(),
                     Fill::kState, s.gives_output_grad});
    specs.push_back({"output_h_backprop", StateCount(s, s.proj), Fill::kState,
                     s.gives_state_grads});
    specs.push_back({"output_c_backprop", StateCount(s, s.units), Fill::kState,
                     s.gives_state_grads && s.IsLstm()});
    return specs;
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Stack s(d, variant);
    return {
        {"input_backprop", s.steps * s.batch * s.input},
        {"input_h_backprop", StateCount(s, s.proj)},
        {"input_c_backprop", StateCount(s, s.units), {}, s.IsLstm()},
        {"params_backprop", StackParams(s)},
    };
  }

  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* in) {
    const Stack s(d, variant);
    Forward::Prepare(d, variant, identity, in);
    SpoilPadding(s, s.OutputWidth(), &(*in)[4]);
  }

  static int64_t Reduction(const Dims& d) {
    return std::max(d.input + 4 * d.units, d.batch);
  }

  static std::vector<Tensor> Reference(const ReferenceCall& call,
                                       const std::vector<Tensor>& in) {
    const Stack s(call.dims, call.variant);
    StackOutputs grads;
    if (s.gives_output_grad) grads.output = in[4];
    if (s.gives_state_grads) grads.output_h = in[5];
    if (s.gives_state_grads && s.IsLstm()) grads.output_c = in[6];
    const StackGradients out =
        StackBackward(s, s.choice.dropout, {in[0], in[1], in[2], in[3]}, grads);
    return {out.input, out.input_h, out.input_c, out.params};
  }

  // Runs the forward op for the inputs of the backward op; only the host of the
  // backward op is under test.
  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Stack s(call.dims, call.variant);
    const auto& functions = Functions(static_cast<T*>(nullptr));
    std::vector<int64_t> lengths;
    RnnStackForwardArgs<T> forward = Forward::Args<T>(s, call, &lengths);
    const GuardedBlock reserve = MakeReserve(forward, SizeOf(call.type));
    forward.reserve = reserve.data();
    const GuardedBlock output =
        MakeArray(call, s.steps * s.batch * s.OutputWidth());
    const GuardedBlock output_h = MakeArray(call, StateCount(s, s.proj));
    const GuardedBlock output_c = MakeArray(call, StateCount(s, s.units));
    forward.output = reinterpret_cast<T*>(output.data());
    forward.output_h = reinterpret_cast<T*>(output_h.data());
    forward.output_c = reinterpret_cast<T*>(output_c.data());
    {
      const HeapIsDry heap(false);
      TestHost host{HostOptions()};
      const cpu::Status status = functions.Run(forward, host.host());
      if (status != cpu::Status::kOk) return kNoForward;
    }
    RnnStackBackwardArgs<T> args;
    lengths.clear();
    FillCommon(s, &lengths, &args);
    SetPointers(Inputs, Outputs, call, &args);
    args.output = forward.output;
    args.reserve = reserve.data();
    return functions.Run(args, *call.host);
  }
};

Op Wide(Op op) {
  op.wide_types_only = true;
  op.no_derivative = [](int variant) {
    const Stack s({}, variant);
    return s.choice.dropout && !s.trains;
  };
  return op;
}

const bool kAdded =
    AddOp(Wide({"RNNStack", false, false, kStackSamples, &Forward::Inputs,
                &Forward::Outputs, &Forward::Reduction, &Forward::Reference,
                &CallWithType<Forward>, true, 1, &Forward::Prepare})) &&
    AddOp(Wide({"RNNStackGrad", true, false, kStackSamples, &Backward::Inputs,
                &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
                &CallWithType<Backward>, true, 1, &Backward::Prepare}));

}  // namespace
}  // namespace blockrnn::test
