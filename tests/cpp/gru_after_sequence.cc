// Defines the tests' view of the GRU over a sequence with reset after, and of
// its gradient: tensors, reference, engine call.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/cpp/gru_sequence_variants.h"
#include "tests/cpp/identity.h"
#include "tests/cpp/recurrent_dropout.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

// The columns of the gates in weights and biases, H each: r, u, c in cuDNN's
// order or, in every other variant, u, r, c in Keras' order.
struct Columns {
  explicit Columns(int variant) : r(variant % 2), u(1 - variant % 2) {}
  GruAfterGateLayout Layout() const { return r == 0 ? kGruRuc : kGruUrc; }
  const int64_t r;
  const int64_t u;
  const int64_t c = 2;
};

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    return {
        {"x", v.StepsOf(d).InputSize()},
        {"h_prev", d.batch * d.units},
        {"w_x", d.input * 3 * d.units, Fill::kWeight, !v.order.projected_input},
        {"w_h", d.units * 3 * d.units, Fill::kWeight},
        {"b_x", 3 * d.units},
        {"b_h", 3 * d.units},
        {"recurrent_dropout", 3 * d.batch * d.units, Fill::kGate,
         v.order.drops}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    const int64_t n = d.steps * d.batch * d.units;
    return {{"r", n, {}, v.WantsGates()},
            {"u", n, {}, v.WantsGates()},
            {"c", n, {}, v.WantsGates()},
            {"hc", n, {}, v.WantsGates()},
            {"h", n, {}, v.WantsH()},
            {"h_last", d.batch * d.units, {}, v.WantsLast()}};
  }

  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const Steps steps = GruVariant(variant).StepsOf(d);
    steps.SpoilPast(steps.InputWidth(), &in[0]);
    CalmRecurrentWeights(d, &in[3]);
    if (!identity) return;
    SparseIntegers(d.input, 3, d.units, false, &in[2]);
    SparseIntegers(d.units, 3, d.units, true, &in[3]);
  }

  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const GruVariant v(variant);
    const Steps steps = v.StepsOf(d);
    const Columns columns(variant);
    const Tensor &x = in[0], &w_x = in[2], &w_h = in[3], &b_x = in[4];
    const Tensor& b_h = in[5];
    const int64_t units = d.units;
    const RecurrentDropout dropout(v.order, in[6], d.batch, units, units);
    const std::size_t n = d.steps * d.batch * units;
    Tensor r(n), u(n), c(n), hc(n), h(n);
    Tensor h_state = in[1];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const state = h_state.data() + b * units;
        const Tensor h_prev(state, state + units);
        std::vector<Tensor> seen;
        for (int64_t gate = 0; gate < 3; ++gate) {
          seen.push_back(dropout.Seen(gate, b, state));
        }
        for (int64_t j = 0; j < units && steps.Counts(step, b); ++j) {
          const auto from_x = [&](int64_t gate, Sum* sum) {
            steps.AddInput(x.data() + row * steps.InputWidth(), w_x, 3 * units,
                           gate * units + j, sum);
            sum->Add(b_x[gate * units + j]);
          };
          const auto from_h = [&](int64_t gate, Sum* sum) {
            AddDot(seen[gate].data(), units, w_h, 3 * units, gate * units + j,
                   sum);
            sum->Add(b_h[gate * units + j]);
          };
          Sum r_bar, u_bar, c_bar, hc_sum;
          from_x(columns.r, &r_bar);
          from_h(columns.r, &r_bar);
          from_x(columns.u, &u_bar);
          from_h(columns.u, &u_bar);
          from_x(columns.c, &c_bar);
          from_h(columns.c, &hc_sum);
          const int64_t at = row * units + j;
          r[at] = act.Gate(r_bar.Total());
          u[at] = act.Gate(u_bar.Total());
          hc[at] = hc_sum.Total();
          c_bar.AddProduct(r[at], hc[at]);
          c[at] = act.Candidate(c_bar.Total());
          if (steps.Keeps(0, step, b, j)) continue;
          state[j] = u[at] * h_prev[j] + (Real(1) - u[at]) * c[at];
        }
        std::copy(state, state + units, h.begin() + row * units);
      }
    }
    return {r, u, c, hc, h, h_state};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const GruVariant v(call.variant);
    const Steps steps = v.StepsOf(call.dims);
    const SequenceCall sequence(steps);
    const StateDraws of_h(steps, 0, call.dims.units);
    Arguments<T> tensors(call);
    GruAfterSequenceForwardArgs<T> args;
    sequence.Fill(&args);
    args.zoneout_h = of_h.Get();
    args.layout = Columns(call.variant).Layout();
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.b_x = tensors.In();
    args.b_h = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.r = tensors.OutIf(v.WantsGates());
    args.u = tensors.OutIf(v.WantsGates());
    args.c = tensors.OutIf(v.WantsGates());
    args.hc = tensors.OutIf(v.WantsGates());
    args.h = tensors.OutIf(v.WantsH());
    args.h_last = tensors.OutIf(v.WantsLast());
    return RunForward<T>(call, args);
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    const int64_t n = d.steps * d.batch * d.units;
    const int64_t state = d.batch * d.units;
    return {
        {"x", v.StepsOf(d).InputSize()},
        {"h_prev", state},
        {"w_x", d.input * 3 * d.units, Fill::kWeight, !v.order.projected_input},
        {"w_h", d.units * 3 * d.units, Fill::kWeight},
        {"recurrent_dropout", 3 * state, Fill::kGate, v.order.drops},
        {"r", n, Fill::kGate},
        {"u", n, Fill::kGate},
        {"c", n},
        {"hc", n},
        {"h", n},
        {"h_grad", n, Fill::kState, v.GivesHGrad()},
        {"h_last_grad", state, Fill::kState, v.GivesLastGrad()}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    return {{"x_grad", v.StepsOf(d).InputSize()},
            {"h_prev_grad", d.batch * d.units},
            {"w_x_grad", d.input * 3 * d.units, {}, !v.order.projected_input},
            {"w_h_grad", d.units * 3 * d.units},
            {"b_x_grad", 3 * d.units},
            {"b_h_grad", 3 * d.units}};
  }

  // Makes the inputs consistent with what the forward op can output.
  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const GruVariant v(variant);
    const Steps steps = v.StepsOf(d);
    Forward::Prepare(d, variant, identity, inputs);
    if (v.order.mask != Mask::kNone) {
      for (const int factor : {2, 3, 4}) MakeFinite(&in[factor]);
    }
    for (const int gate : {5, 6, 7, 8}) {
      steps.ZeroMasked(d.units, &in[gate]);
    }
    steps.CarryOverMasked(in[1], d.units, &in[9]);
    for (const int saved : {5, 6, 7, 8, 9, 10}) {
      steps.SpoilPast(d.units, &in[saved]);
    }
  }

  // x_grad and h_prev_grad sum over gates, the others over rows.
  static int64_t Reduction(const Dims& d) {
    return std::max(3 * d.units, d.batch);
  }

  static std::vector<Tensor> Reference(const Dims& d, int variant, Activations,
                                       const std::vector<Tensor>& in) {
    const GruVariant v(variant);
    const Steps steps = v.StepsOf(d);
    const Columns columns(variant);
    const Tensor &x = in[0], &w_x = in[2], &w_h = in[3], &r = in[5];
    const Tensor &u = in[6], &c = in[7], &hc = in[8], &h = in[9];
    // A tensor that is not given counts as zeros.
    const Tensor h_grad = v.GivesHGrad() ? in[10] : Tensor(in[10].size());
    Tensor h_state_grad = v.GivesLastGrad() ? in[11] : Tensor(in[11].size());
    const int64_t units = d.units;
    const RecurrentDropout dropout(v.order, in[4], d.batch, units, units);
    const Real one(1);
    Tensor x_grad(x.size());
    // Gradients of the gates' sums over x and of their sums over h.
    Tensor d_x(3 * units), d_h(3 * units);
    std::vector<Sum> w_x_grad(w_x.size()), w_h_grad(w_h.size());
    std::vector<Sum> b_x_grad(3 * units), b_h_grad(3 * units);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        const Real* const h_prev = steps.Before(step, b, in[1], h, units);
        Real* const h_back = h_state_grad.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          const int64_t n = row * units + j;
          h_back[j] = h_back[j] + h_grad[n];
          const Real d_new = steps.NewPart(0, step, b, j, h_back[j]);
          const Real keep = one - u[n];
          const Real d_c = d_new * keep * (one - c[n] * c[n]);
          const Real d_r = d_c * hc[n] * r[n] * (one - r[n]);
          const Real d_u = d_new * (h_prev[j] - c[n]) * u[n] * keep;
          d_x[columns.r * units + j] = d_h[columns.r * units + j] = d_r;
          d_x[columns.u * units + j] = d_h[columns.u * units + j] = d_u;
          d_x[columns.c * units + j] = d_c;
          d_h[columns.c * units + j] = d_c * r[n];
        }
        if (!steps.Counts(step, b)) continue;
        steps.AddInputGrads(row, x, w_x, d_x, &x_grad, &w_x_grad);
        for (int64_t k = 0; k < units; ++k) {
          const Real d_new = steps.NewPart(0, step, b, k, h_back[k]);
          const Real kept = steps.KeptPart(0, step, b, k, h_back[k]);
          h_back[k] =
              dropout.StateGrad(d_h, w_h, b, k) + d_new * u[row * units + k];
          if (v.order.zones) h_back[k] = h_back[k] + kept;
        }
        dropout.AddWeightGrad(h_prev, b, d_h, &w_h_grad);
        AddOuter(&one, 1, d_x, &b_x_grad);
        AddOuter(&one, 1, d_h, &b_h_grad);
      }
    }
    return {x_grad,           h_state_grad,     Totals(w_x_grad),
            Totals(w_h_grad), Totals(b_x_grad), Totals(b_h_grad)};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Steps steps = GruVariant(call.variant).StepsOf(call.dims);
    const SequenceCall sequence(steps);
    const StateDraws of_h(steps, 0, call.dims.units);
    Arguments<T> tensors(call);
    GruAfterSequenceBackwardArgs<T> args;
    sequence.Fill(&args);
    args.zoneout_h = of_h.Get();
    args.layout = Columns(call.variant).Layout();
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.r = tensors.In();
    args.u = tensors.In();
    args.c = tensors.In();
    args.hc = tensors.In();
    args.h = tensors.In();
    args.h_grad = tensors.In();
    args.h_last_grad = tensors.In();
    args.x_grad = tensors.Out();
    args.h_prev_grad = tensors.Out();
    args.w_x_grad = tensors.Out();
    args.w_h_grad = tensors.Out();
    args.b_x_grad = tensors.Out();
    args.b_h_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

// The backward reads activations as given, so it has an identity form as it is.
const bool kForward =
    AddOp({"GRUAfter", false, true, kNumOrders, &Forward::Inputs,
           &Forward::Outputs, &Forward::Reduction, &Forward::Reference,
           &CallWithType<Forward>, true, 2, &Forward::Prepare});
const bool kBackward =
    AddOp({"GRUAfterGrad", true, true, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 3, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
