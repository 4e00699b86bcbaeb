// The GRU over a sequence, reset before the product, and its gradient: tensors,
// reference, engine call.
//
// The identity activations need the engine's own template, so this file is
// compiled for the instruction set of the engine under test.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc/core/activations.h"
#include "cc/kernels/cpu/gru_sequence_backward.h"
#include "cc/kernels/cpu/gru_sequence_forward.h"
#include "tests/cpp/gru_sequence_variants.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int) {
    return {{"x", d.steps * d.batch * d.input},
            {"h_prev", d.batch * d.units},
            {"w_ru_x", d.input * 2 * d.units, Fill::kWeight},
            {"w_ru_h", d.units * 2 * d.units, Fill::kWeight},
            {"w_c_x", d.input * d.units, Fill::kWeight},
            {"w_c_h", d.units * d.units, Fill::kWeight},
            {"b_ru", 2 * d.units},
            {"b_c", d.units}};
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

  static void Prepare(const Dims& d, int, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
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
    const Steps steps(d, GruVariant(variant).order);
    const Tensor &x = in[0], &w_ru_x = in[2], &w_ru_h = in[3], &w_c_x = in[4];
    const Tensor &w_c_h = in[5], &b_ru = in[6], &b_c = in[7];
    const int64_t units = d.units;
    const std::size_t n = d.steps * d.batch * units;
    Tensor r(n), u(n), c(n), h(n), h_r(units);
    Tensor h_state = in[1];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        const int64_t row = steps.At(step, b);
        const Real* const x_row = x.data() + row * d.input;
        Real* const state = h_state.data() + b * units;
        if (steps.Counts(step, b)) {
          const auto gate = [&](int64_t column) {
            Sum bar;
            AddDot(x_row, d.input, w_ru_x, 2 * units, column, &bar);
            AddDot(state, units, w_ru_h, 2 * units, column, &bar);
            bar.Add(b_ru[column]);
            return act.Gate(bar.Total());
          };
          for (int64_t j = 0; j < units; ++j) {
            const int64_t at = row * units + j;
            r[at] = gate(j);
            u[at] = gate(units + j);
            h_r[j] = state[j] * r[at];
          }
          for (int64_t j = 0; j < units; ++j) {
            const int64_t at = row * units + j;
            Sum bar;
            AddDot(x_row, d.input, w_c_x, units, j, &bar);
            AddDot(h_r.data(), units, w_c_h, units, j, &bar);
            bar.Add(b_c[j]);
            c[at] = act.Candidate(bar.Total());
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
    const Steps steps(call.dims, v.order);
    const auto mask = steps.MaskBytes();
    Arguments<T> tensors(call);
    GruSequenceForwardArgs<T> args;
    args.shape = steps.Shape();
    args.mask = mask ? mask->data() : nullptr;
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_ru_x = tensors.In();
    args.w_ru_h = tensors.In();
    args.w_c_x = tensors.In();
    args.w_c_h = tensors.In();
    args.b_ru = tensors.In();
    args.b_c = tensors.In();
    args.r = tensors.OutIf(v.WantsGates());
    args.u = tensors.OutIf(v.WantsGates());
    args.c = tensors.OutIf(v.WantsGates());
    args.h = tensors.OutIf(v.WantsH());
    args.h_last = tensors.OutIf(v.WantsLast());
    if constexpr (std::is_floating_point_v<T>) {
      if (call.identity) {
        return cpu::GruSequenceForward<T, IdentityActivations>(args,
                                                               *call.host);
      }
    }
    return Functions(static_cast<T*>(nullptr))
        .gru_sequence_forward(args, *call.host);
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const GruVariant v(variant);
    const int64_t n = d.steps * d.batch * d.units;
    const int64_t state = d.batch * d.units;
    return {{"x", d.steps * d.batch * d.input},
            {"h_prev", state},
            {"w_ru_x", d.input * 2 * d.units, Fill::kWeight},
            {"w_ru_h", d.units * 2 * d.units, Fill::kWeight},
            {"w_c_x", d.input * d.units, Fill::kWeight},
            {"w_c_h", d.units * d.units, Fill::kWeight},
            {"r", n, Fill::kGate},
            {"u", n, Fill::kGate},
            {"c", n},
            {"h", n},
            {"h_grad", n, Fill::kState, v.GivesHGrad()},
            {"h_last_grad", state, Fill::kState, v.GivesLastGrad()}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    return {{"x_grad", d.steps * d.batch * d.input},
            {"h_prev_grad", d.batch * d.units},
            {"w_ru_x_grad", d.input * 2 * d.units},
            {"w_ru_h_grad", d.units * 2 * d.units},
            {"w_c_x_grad", d.input * d.units},
            {"w_c_h_grad", d.units * d.units},
            {"b_ru_grad", 2 * d.units},
            {"b_c_grad", d.units}};
  }

  // Makes them what the forward op can have put out.
  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const GruVariant v(variant);
    const Steps steps(d, v.order);
    Forward::Prepare(d, variant, identity, inputs);
    if (v.order.mask != Mask::kNone) {
      for (const int weights : {2, 3, 4, 5}) MakeFinite(&in[weights]);
    }
    for (const int gate : {6, 7, 8}) steps.ClearSkipped(&in[gate]);
    steps.CarryOverSkipped(in[1], &in[9]);
  }

  // x_grad and h_prev_grad sum over gates, the others over rows.
  static int64_t Reduction(const Dims& d) {
    return std::max(3 * d.units, d.batch);
  }

  static std::vector<Tensor> Reference(const Dims& d, int variant, Activations,
                                       const std::vector<Tensor>& in) {
    const GruVariant v(variant);
    const Steps steps(d, v.order);
    const Tensor &x = in[0], &w_ru_x = in[2], &w_ru_h = in[3], &w_c_x = in[4];
    const Tensor &w_c_h = in[5], &r = in[6], &u = in[7], &c = in[8], &h = in[9];
    // A tensor that is not given is zeros.
    const Tensor h_grad = v.GivesHGrad() ? in[10] : Tensor(in[10].size());
    Tensor h_state_grad = v.GivesLastGrad() ? in[11] : Tensor(in[11].size());
    const int64_t units = d.units;
    const Real one(1);
    Tensor x_grad(x.size()), d_ru(2 * units), d_c(units), h_r(units);
    std::vector<Sum> w_ru_x_grad(w_ru_x.size()), w_ru_h_grad(w_ru_h.size());
    std::vector<Sum> w_c_x_grad(w_c_x.size()), w_c_h_grad(w_c_h.size());
    std::vector<Sum> b_ru_grad(2 * units), b_c_grad(units);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        const int64_t row = steps.At(step, b);
        const Real* const x_row = x.data() + row * d.input;
        const Real* const h_prev = steps.Before(step, b, in[1], h);
        Real* const d_h = h_state_grad.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          d_h[j] = d_h[j] + h_grad[row * units + j];
        }
        if (!steps.Counts(step, b)) continue;
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
          const Real d_hr = DotTransposed(d_c, w_c_h, k);
          d_ru[k] = d_hr * h_prev[k] * r[n] * (one - r[n]);
          d_h_prev[k] = d_hr * r[n] + d_h[k] * u[n];
        }
        for (int64_t k = 0; k < d.input; ++k) {
          x_grad[row * d.input + k] =
              DotTransposed(d_ru, w_ru_x, k) + DotTransposed(d_c, w_c_x, k);
        }
        for (int64_t k = 0; k < units; ++k) {
          d_h[k] = d_h_prev[k] + DotTransposed(d_ru, w_ru_h, k);
        }
        AddOuter(x_row, d.input, d_ru, &w_ru_x_grad);
        AddOuter(x_row, d.input, d_c, &w_c_x_grad);
        AddOuter(h_prev, units, d_ru, &w_ru_h_grad);
        AddOuter(h_r.data(), units, d_c, &w_c_h_grad);
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
    const Steps steps(call.dims, GruVariant(call.variant).order);
    const auto mask = steps.MaskBytes();
    Arguments<T> tensors(call);
    GruSequenceBackwardArgs<T> args;
    args.shape = steps.Shape();
    args.mask = mask ? mask->data() : nullptr;
    args.x = tensors.In();
    args.h_prev = tensors.In();
    args.w_ru_x = tensors.In();
    args.w_ru_h = tensors.In();
    args.w_c_x = tensors.In();
    args.w_c_h = tensors.In();
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
    return Functions(static_cast<T*>(nullptr))
        .gru_sequence_backward(args, *call.host);
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
