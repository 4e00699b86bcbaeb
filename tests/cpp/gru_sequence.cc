// Defines the tests' view of the GRU over a sequence with reset before, and of
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

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    const bool has_w_x = !v.order.projected_input;
    return {{"x", v.StepsOf(d).InputSize()},
            {"h_prev", d.batch * d.units},
            {"w_ru_x", d.input * 2 * d.units, Fill::kWeight, has_w_x},
            {"w_ru_h", d.units * 2 * d.units, Fill::kWeight},
            {"w_c_x", d.input * d.units, Fill::kWeight, has_w_x},
            {"w_c_h", d.units * d.units, Fill::kWeight},
            {"b_ru", 2 * d.units},
            {"b_c", d.units},
            {"recurrent_dropout", 3 * d.batch * d.units, Fill::kGate,
             v.order.drops}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    const int64_t n = d.steps * d.batch * d.units;
    return {{"r", n, {}, v.WantsGates()},
            {"u", n, {}, v.WantsGates()},
            {"c", n, {}, v.WantsGates()},
            {"h", n, {}, v.WantsH()},
            {"h_last", d.batch * d.units, {}, v.WantsLast()}};
  }

  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const Steps steps = GruVariant(variant).StepsOf(d);
    steps.SpoilPast(steps.InputWidth(), &in[0]);
    CalmRecurrentWeights(d, &in[3]);
    CalmRecurrentWeights(d, &in[5]);
    if (!identity) return;
    SparseIntegers(d.input, 2, d.units, false, &in[2]);
    SparseIntegers(d.units, 2, d.units, true, &in[3]);
    SparseIntegers(d.input, 1, d.units, false, &in[4]);
    SparseIntegers(d.units, 1, d.units, true, &in[5]);
  }

  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const GruVariant v(variant);
    const Steps steps = v.StepsOf(d);
    const Tensor &x = in[0], &w_ru_x = in[2], &w_ru_h = in[3], &w_c_x = in[4];
    const Tensor &w_c_h = in[5], &b_ru = in[6], &b_c = in[7];
    const int64_t units = d.units;
    const RecurrentDropout dropout(v.order, in[8], d.batch, units, units);
    const std::size_t n = d.steps * d.batch * units;
    Tensor r(n), u(n), c(n), h(n), h_r(units);
    Tensor h_state = in[1];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        const Real* const x_row = x.data() + row * steps.InputWidth();
        // The candidate's columns of x · w_x, where these are the input.
        const Real* const x_c =
            v.order.projected_input ? x_row + 2 * units : x_row;
        Real* const state = h_state.data() + b * units;
        if (steps.Counts(step, b)) {
          const Tensor seen[] = {dropout.Seen(0, b, state),
                                 dropout.Seen(1, b, state)};
          const auto gate = [&](int64_t column) {
            Sum bar;
            steps.AddInput(x_row, w_ru_x, 2 * units, column, &bar);
            AddDot(seen[column / units].data(), units, w_ru_h, 2 * units,
                   column, &bar);
            bar.Add(b_ru[column]);
            return act.Gate(bar.Total());
          };
          for (int64_t j = 0; j < units; ++j) {
            const int64_t at = row * units + j;
            r[at] = gate(j);
            u[at] = gate(units + j);
            h_r[j] = state[j] * r[at];
          }
          const Tensor seen_c = dropout.Seen(2, b, h_r.data());
          for (int64_t j = 0; j < units; ++j) {
            const int64_t at = row * units + j;
            Sum bar;
            steps.AddInput(x_c, w_c_x, units, j, &bar);
            AddDot(seen_c.data(), units, w_c_h, units, j, &bar);
            bar.Add(b_c[j]);
            c[at] = act.Candidate(bar.Total());
            if (steps.Keeps(0, step, b, j)) continue;
            state[j] = u[at] * state[j] + (Real(1) - u[at]) * c[at];
          }
        }
        std::copy(state, state + units, h.begin() + row * units);
      }
    }
    return {r, u, c, h, h_state};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const GruVariant v(call.variant);
    const Steps steps = v.StepsOf(call.dims);
    const SequenceCall sequence(steps);
    const StateDraws of_h(steps, 0, call.dims.units);
    Arguments<T> tensors(call);
    GruSequenceForwardArgs<T> args;
    sequence.Fill(&args);
    args.zoneout_h = of_h.Get();
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_ru_x = tensors.In();
    args.w_ru_h = tensors.In();
    args.w_c_x = tensors.In();
    args.w_c_h = tensors.In();
    args.b_ru = tensors.In();
    args.b_c = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.r = tensors.OutIf(v.WantsGates());
    args.u = tensors.OutIf(v.WantsGates());
    args.c = tensors.OutIf(v.WantsGates());
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
    const bool has_w_x = !v.order.projected_input;
    return {{"x", v.StepsOf(d).InputSize()},
            {"h_prev", state},
            {"w_ru_x", d.input * 2 * d.units, Fill::kWeight, has_w_x},
            {"w_ru_h", d.units * 2 * d.units, Fill::kWeight},
            {"w_c_x", d.input * d.units, Fill::kWeight, has_w_x},
            {"w_c_h", d.units * d.units, Fill::kWeight},
            {"recurrent_dropout", 3 * state, Fill::kGate, v.order.drops},
            {"r", n, Fill::kGate},
            {"u", n, Fill::kGate},
            {"c", n},
            {"h", n},
            {"h_grad", n, Fill::kState, v.GivesHGrad()},
            {"h_last_grad", state, Fill::kState, v.GivesLastGrad()}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    const bool has_w_x = !v.order.projected_input;
    return {{"x_grad", v.StepsOf(d).InputSize()},
            {"h_prev_grad", d.batch * d.units},
            {"w_ru_x_grad", d.input * 2 * d.units, {}, has_w_x},
            {"w_ru_h_grad", d.units * 2 * d.units},
            {"w_c_x_grad", d.input * d.units, {}, has_w_x},
            {"w_c_h_grad", d.units * d.units},
            {"b_ru_grad", 2 * d.units},
            {"b_c_grad", d.units}};
  }

  // Makes the inputs consistent with what the forward op can output.
  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const GruVariant v(variant);
    const Steps steps = v.StepsOf(d);
    Forward::Prepare(d, variant, identity, inputs);
    if (v.order.mask != Mask::kNone) {
      for (const int factor : {2, 3, 4, 5, 6}) MakeFinite(&in[factor]);
    }
    for (const int gate : {7, 8, 9}) steps.ZeroMasked(d.units, &in[gate]);
    steps.CarryOverMasked(in[1], d.units, &in[10]);
    for (const int saved : {7, 8, 9, 10, 11}) {
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
    const Tensor &x = in[0], &w_ru_x = in[2], &w_ru_h = in[3], &w_c_x = in[4];
    const Tensor &w_c_h = in[5], &r = in[7], &u = in[8], &c = in[9];
    const Tensor& h = in[10];
    // A tensor that is not given counts as zeros.
    const Tensor h_grad = v.GivesHGrad() ? in[11] : Tensor(in[11].size());
    Tensor h_state_grad = v.GivesLastGrad() ? in[12] : Tensor(in[12].size());
    const int64_t units = d.units;
    const int64_t width = steps.InputWidth();
    const RecurrentDropout dropout(v.order, in[6], d.batch, units, units);
    const Real one(1);
    Tensor x_grad(x.size()), d_ru(2 * units), d_c(units), h_r(units);
    std::vector<Sum> w_ru_x_grad(w_ru_x.size()), w_ru_h_grad(w_ru_h.size());
    std::vector<Sum> w_c_x_grad(w_c_x.size()), w_c_h_grad(w_c_h.size());
    std::vector<Sum> b_ru_grad(2 * units), b_c_grad(units);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        const Real* const x_row = x.data() + row * width;
        const Real* const h_prev = steps.Before(step, b, in[1], h, units);
        Real* const d_h = h_state_grad.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          d_h[j] = d_h[j] + h_grad[row * units + j];
        }
        if (!steps.Counts(step, b)) continue;
        Tensor kept(units);
        for (int64_t j = 0; j < units; ++j) {
          kept[j] = steps.KeptPart(0, step, b, j, d_h[j]);
          d_h[j] = steps.NewPart(0, step, b, j, d_h[j]);
        }
        for (int64_t j = 0; j < units; ++j) {
          const int64_t n = row * units + j;
          const Real keep = one - u[n];
          d_c[j] = d_h[j] * keep * (one - c[n] * c[n]);
          d_ru[units + j] = d_h[j] * (h_prev[j] - c[n]) * u[n] * keep;
          h_r[j] = h_prev[j] * r[n];
        }
        Tensor d_h_prev(units);
        for (int64_t k = 0; k < units; ++k) {
          const int64_t n = row * units + k;
          const Real d_hr =
              dropout.Passed(2, b, k, DotTransposed(d_c, w_c_h, k));
          d_ru[k] = d_hr * h_prev[k] * r[n] * (one - r[n]);
          d_h_prev[k] = d_hr * r[n] + d_h[k] * u[n];
        }
        for (int64_t k = 0; k < units; ++k) {
          d_h[k] = d_h_prev[k] + dropout.StateGrad(d_ru, w_ru_h, b, k);
          if (v.order.zones) d_h[k] = d_h[k] + kept[k];
        }
        if (v.order.projected_input) {
          Real* const to = x_grad.data() + row * width;
          std::copy(d_c.begin(), d_c.end(),
                    std::copy(d_ru.begin(), d_ru.end(), to));
        } else {
          for (int64_t k = 0; k < width; ++k) {
            x_grad[row * width + k] =
                DotTransposed(d_ru, w_ru_x, k) + DotTransposed(d_c, w_c_x, k);
          }
          AddOuter(x_row, width, d_ru, &w_ru_x_grad);
          AddOuter(x_row, width, d_c, &w_c_x_grad);
        }
        dropout.AddWeightGrad(h_prev, b, d_ru, &w_ru_h_grad);
        AddOuter(dropout.Seen(2, b, h_r.data()).data(), units, d_c,
                 &w_c_h_grad);
        AddOuter(&one, 1, d_ru, &b_ru_grad);
        AddOuter(&one, 1, d_c, &b_c_grad);
      }
    }
    return {x_grad,
            h_state_grad,
            Totals(w_ru_x_grad),
            Totals(w_ru_h_grad),
            Totals(w_c_x_grad),
            Totals(w_c_h_grad),
            Totals(b_ru_grad),
            Totals(b_c_grad)};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Steps steps = GruVariant(call.variant).StepsOf(call.dims);
    const SequenceCall sequence(steps);
    const StateDraws of_h(steps, 0, call.dims.units);
    Arguments<T> tensors(call);
    GruSequenceBackwardArgs<T> args;
    sequence.Fill(&args);
    args.zoneout_h = of_h.Get();
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_ru_x = tensors.In();
    args.w_ru_h = tensors.In();
    args.w_c_x = tensors.In();
    args.w_c_h = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.r = tensors.In();
    args.u = tensors.In();
    args.c = tensors.In();
    args.h = tensors.In();
    args.h_grad = tensors.In();
    args.h_last_grad = tensors.In();
    args.x_grad = tensors.Out();
    args.h_prev_grad = tensors.Out();
    args.w_ru_x_grad = tensors.Out();
    args.w_ru_h_grad = tensors.Out();
    args.w_c_x_grad = tensors.Out();
    args.w_c_h_grad = tensors.Out();
    args.b_ru_grad = tensors.Out();
    args.b_c_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

// The backward reads activations as given, so it has an identity form as it is.
const bool kForward =
    AddOp({"GRU", false, true, kNumOrders, &Forward::Inputs, &Forward::Outputs,
           &Forward::Reduction, &Forward::Reference, &CallWithType<Forward>,
           true, 2, &Forward::Prepare});
const bool kBackward =
    AddOp({"GRUGrad", true, true, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 3, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
