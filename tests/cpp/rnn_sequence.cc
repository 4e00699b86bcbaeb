// Defines the tests' view of the simple RNN over a sequence and of its
// gradient: tensors, reference, engine call.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/cpp/identity.h"
#include "tests/cpp/recurrent_dropout.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/tolerances.h"

namespace blockrnn::test {
namespace {

// The choices of attributes and of tensors, forward and backward.
struct Variant {
  explicit Variant(int variant)
      : order(kOrders[variant]),
        relu(variant % 3 == 1),
        gives_b_h(variant % 2 == 1),
        wants_h(variant % 4 != 3),
        wants_last(variant % 4 != 2),
        gives_h_grad(variant % 5 != 3),
        gives_last_grad(variant % 5 != 4) {}

  Steps StepsOf(const Dims& d) const { return Steps(d, order, 1); }

  const Order order;
  const bool relu;
  const bool gives_b_h;
  const bool wants_h;
  const bool wants_last;
  const bool gives_h_grad;
  const bool gives_last_grad;
};

// A step reads the state as the previous step has stored it, so the reference
// must know the storage type: the probe, an input that the engine does not get,
// is rounded to a different number in each of the 16-bit types.
class StoredState {
 public:
  static constexpr double kProbe = 1 + 0x1p-9 + 0x1p-20;

  StoredState(const Real& probe, int64_t reduction) {
    for (const Type type : {Type::kHalf, Type::kBfloat16}) {
      if (probe.value != RoundTo(type, kProbe)) continue;
      rounds_ = true;
      type_ = type;
      tolerance_ = RelativeTolerance(type, false, reduction);
    }
  }

  // A value between two of the type's numbers may become either of them.
  Real Of(const Real& h) const {
    if (!rounds_) return h;
    const double error = tolerance_ * h.scale + AbsoluteTolerance(type_);
    const double apart =
        RoundTo(type_, h.value + error) - RoundTo(type_, h.value - error);
    const double either = std::isfinite(apart) ? apart / tolerance_ : 0;
    return {RoundTo(type_, h.value), h.scale + either};
  }

 private:
  bool rounds_ = false;
  Type type_ = Type::kFloat;
  double tolerance_ = 0;
};

// max(x, 0), which is no further off than x is.
Real Relu(const Real& x) {
  if (!(x.value < 0)) return x;
  return {0, std::isinf(x.value) ? 0 : x.scale};
}

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t state = d.batch * d.units;
    return {{"x", v.StepsOf(d).InputSize()},
            {"h_prev", state},
            {"w_x", d.input * d.units, Fill::kWeight, !v.order.projected_input},
            {"w_h", d.units * d.units, Fill::kWeight},
            {"b", d.units},
            {"b_h", d.units, Fill::kState, v.gives_b_h},
            {"recurrent_dropout", state, Fill::kGate, v.order.drops},
            {"probe", 1, Fill::kState, false}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Variant v(variant);
    return {{"h", d.steps * d.batch * d.units, {}, v.wants_h},
            {"h_last", d.batch * d.units, {}, v.wants_last}};
  }

  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const Steps steps = Variant(variant).StepsOf(d);
    steps.SpoilPast(steps.InputWidth(), &in[0]);
    CalmRecurrentWeights(d, &in[3]);
    in[7][0] = StoredState::kProbe;
    if (!identity) return;
    SparseIntegers(d.input, 1, d.units, false, &in[2]);
    SparseIntegers(d.units, 1, d.units, true, &in[3]);
  }

  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const Variant v(variant);
    const Steps steps = v.StepsOf(d);
    const Tensor &x = in[0], &w_x = in[2], &w_h = in[3], &b_x = in[4];
    const Tensor& b_h = in[5];
    const int64_t units = d.units;
    const RecurrentDropout dropout(v.order, in[6], d.batch, units, units);
    const StoredState stored(in[7][0], Reduction(d) * d.steps);
    Tensor h(d.steps * d.batch * units);
    Tensor h_state = in[1];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const state = h_state.data() + b * units;
        const Tensor seen = dropout.Seen(0, b, state);
        for (int64_t j = 0; j < units && steps.Counts(step, b); ++j) {
          Sum bar;
          steps.AddInput(x.data() + row * steps.InputWidth(), w_x, units, j,
                         &bar);
          AddDot(seen.data(), units, w_h, units, j, &bar);
          bar.Add(b_x[j]);
          if (v.gives_b_h) bar.Add(b_h[j]);
          state[j] = stored.Of(v.relu ? Relu(bar.Total())
                                      : act.Candidate(bar.Total()));
        }
        std::copy(state, state + units, h.begin() + row * units);
      }
    }
    return {h, h_state};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Variant v(call.variant);
    const SequenceCall sequence(v.StepsOf(call.dims));
    Arguments<T> tensors(call);
    SimpleRnnForwardArgs<T> args;
    sequence.Fill(&args);
    args.relu = v.relu;
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.b = tensors.In();
    args.b_h = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.h = tensors.OutIf(v.wants_h);
    args.h_last = tensors.OutIf(v.wants_last);
    return RunForward<T>(call, args);
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t n = d.steps * d.batch * d.units;
    const int64_t state = d.batch * d.units;
    return {{"x", v.StepsOf(d).InputSize()},
            {"h_prev", state},
            {"w_x", d.input * d.units, Fill::kWeight, !v.order.projected_input},
            {"w_h", d.units * d.units, Fill::kWeight},
            {"recurrent_dropout", state, Fill::kGate, v.order.drops},
            {"h", n},
            {"h_grad", n, Fill::kState, v.gives_h_grad},
            {"h_last_grad", state, Fill::kState, v.gives_last_grad}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Variant v(variant);
    return {{"x_grad", v.StepsOf(d).InputSize()},
            {"h_prev_grad", d.batch * d.units},
            {"w_x_grad", d.input * d.units, {}, !v.order.projected_input},
            {"w_h_grad", d.units * d.units},
            {"b_grad", d.units}};
  }

  // Makes the inputs consistent with what the forward op can output.
  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const Variant v(variant);
    const Steps steps = v.StepsOf(d);
    CalmRecurrentWeights(d, &in[3]);
    if (v.order.mask != Mask::kNone) {
      for (const int factor : {2, 3, 4}) MakeFinite(&in[factor]);
    }
    if (identity) {
      SparseIntegers(d.input, 1, d.units, false, &in[2]);
      SparseIntegers(d.units, 1, d.units, true, &in[3]);
    }
    for (Real& element : in[5]) {
      if (v.relu && element.value < 0) element = 0;
    }
    steps.CarryOverMasked(in[1], d.units, &in[5]);
    steps.SpoilPast(steps.InputWidth(), &in[0]);
    for (const int output : {5, 6}) steps.SpoilPast(d.units, &in[output]);
  }

  // x_grad and h_prev_grad sum over units, the others over rows.
  static int64_t Reduction(const Dims& d) { return std::max(d.units, d.batch); }

  static std::vector<Tensor> Reference(const Dims& d, int variant, Activations,
                                       const std::vector<Tensor>& in) {
    const Variant v(variant);
    const Steps steps = v.StepsOf(d);
    const Tensor &x = in[0], &w_x = in[2], &w_h = in[3], &h = in[5];
    // A tensor that is not given counts as zeros.
    const Tensor h_grad = v.gives_h_grad ? in[6] : Tensor(in[6].size());
    Tensor h_state_grad = v.gives_last_grad ? in[7] : Tensor(in[7].size());
    const int64_t units = d.units;
    const RecurrentDropout dropout(v.order, in[4], d.batch, units, units);
    const Real one(1);
    Tensor x_grad(x.size()), dz(units);
    std::vector<Sum> w_x_grad(w_x.size()), w_h_grad(w_h.size()), b_grad(units);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const h_back = h_state_grad.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          const Real& out = h[row * units + j];
          h_back[j] = h_back[j] + h_grad[row * units + j];
          if (v.relu) {
            dz[j] = out.value <= 0 ? Real(0) : h_back[j];
          } else {
            dz[j] = h_back[j] * (one - out * out);
          }
        }
        if (!steps.Counts(step, b)) continue;
        steps.AddInputGrads(row, x, w_x, dz, &x_grad, &w_x_grad);
        for (int64_t k = 0; k < units; ++k) {
          h_back[k] = dropout.StateGrad(dz, w_h, b, k);
        }
        dropout.AddWeightGrad(steps.Before(step, b, in[1], h, units), b, dz,
                              &w_h_grad);
        AddOuter(&one, 1, dz, &b_grad);
      }
    }
    return {x_grad, h_state_grad, Totals(w_x_grad), Totals(w_h_grad),
            Totals(b_grad)};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Variant v(call.variant);
    const SequenceCall sequence(v.StepsOf(call.dims));
    Arguments<T> tensors(call);
    SimpleRnnBackwardArgs<T> args;
    sequence.Fill(&args);
    args.relu = v.relu;
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.h = tensors.In();
    args.h_grad = tensors.In();
    args.h_last_grad = tensors.In();
    args.x_grad = tensors.Out();
    args.h_prev_grad = tensors.Out();
    args.w_x_grad = tensors.Out();
    args.w_h_grad = tensors.Out();
    args.b_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

// The backward reads activations as given, so it has an identity form as it is.
const bool kForward =
    AddOp({"RNN", false, true, kNumOrders, &Forward::Inputs, &Forward::Outputs,
           &Forward::Reduction, &Forward::Reference, &CallWithType<Forward>,
           true, 2, &Forward::Prepare});
const bool kBackward =
    AddOp({"RNNGrad", true, true, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 3, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
