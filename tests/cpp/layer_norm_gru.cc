// Defines the tests' view of the GRU with layer normalisation over a sequence,
// forward and backward: tensors, reference, engine call.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "cc/core/gate_layout.h"
#include "tests/cpp/frozen.h"
#include "tests/cpp/gru_sequence_variants.h"
#include "tests/cpp/layer_norm_reference.h"
#include "tests/cpp/recurrent_dropout.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

constexpr int64_t kGates = 3;

struct Variant : GruVariant {
  explicit Variant(int variant)
      : GruVariant(variant),
        r(variant % 2),
        u(1 - variant % 2),
        layout(variant % 2 == 0 ? kGruRuc : kGruUrc),
        epsilon(variant % 3 == 1 ? 1e-3 : 1) {}

  // The gates' places in weights and biases.
  const int64_t r;
  const int64_t u;
  const int64_t c = 2;
  const GruAfterGateLayout layout;
  const double epsilon;
};

// Inputs that both ops have, and their places.
enum In : int {
  kX,
  kHPrev,
  kWX,
  kWH,
  kBX,
  kBH,
  kGammaX,
  kBetaX,
  kGammaH,
  kBetaH,
  kDropout,
  // Of the backward op alone.
  kXHat,
  kHHat,
  kRstd,
  kH,
  kHGrad,
  kHLastGrad,
};

std::vector<TensorSpec> SharedInputs(const Dims& d, const Variant& v) {
  const int64_t width = kGates * d.units;
  return {{"x", v.StepsOf(d).InputSize()},
          {"h_prev", d.batch * d.units},
          {"w_x", d.input * width, Fill::kWeight, !v.order.projected_input},
          {"w_h", d.units * width, Fill::kWeight},
          {"b_x", width},
          {"b_h", width},
          {"gamma_x", width},
          {"beta_x", width},
          {"gamma_h", width},
          {"beta_h", width},
          {"recurrent_dropout", kGates * d.batch * d.units, Fill::kGate,
           v.order.drops}};
}

// A norm passes errors on multiplied by up to gamma / √epsilon. Over many steps
// the bound on roundoff would grow with that and soon become meaningless. With
// small gammas of what depends on the state it stays small, while every number
// still matters.
void CalmGammas(std::vector<Tensor>* inputs) {
  for (Real& gamma : (*inputs)[kGammaH]) gamma = std::ldexp(gamma.value, -5);
}

// A unit of a row: its gates, and what the reset gate multiplies.
struct Gates {
  Real r;
  Real u;
  Real c;
  Real hc;
};

Gates GatesOf(const Variant& v, Activations act, const std::vector<Tensor>& in,
              const Real* x_hat, const Real* h_hat, int64_t units, int64_t j) {
  const auto add_x = [&](int64_t gate, Sum* sum) {
    const int64_t n = gate * units + j;
    sum->AddProduct(x_hat[n], in[kGammaX][n]);
    sum->Add(in[kBetaX][n]);
    sum->Add(in[kBX][n]);
  };
  const auto add_h = [&](int64_t gate, Sum* sum) {
    const int64_t n = gate * units + j;
    sum->AddProduct(h_hat[n], in[kGammaH][n]);
    sum->Add(in[kBetaH][n]);
    sum->Add(in[kBH][n]);
  };
  Sum r_bar, u_bar, c_bar, hc;
  add_x(v.r, &r_bar);
  add_h(v.r, &r_bar);
  add_x(v.u, &u_bar);
  add_h(v.u, &u_bar);
  add_x(v.c, &c_bar);
  add_h(v.c, &hc);
  Gates gates;
  gates.r = act.Gate(r_bar.Total());
  gates.u = act.Gate(u_bar.Total());
  gates.hc = hc.Total();
  c_bar.AddProduct(gates.r, gates.hc);
  gates.c = act.Candidate(c_bar.Total());
  return gates;
}

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    return SharedInputs(d, Variant(variant));
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t rows = d.steps * d.batch;
    return {{"h", rows * d.units, {}, v.WantsH()},
            {"h_last", d.batch * d.units, {}, v.WantsLast()},
            {"x_hat", rows * kGates * d.units, {}, v.WantsGates()},
            {"h_hat", rows * kGates * d.units, {}, v.WantsGates()},
            {"rstd", rows * 2, {}, v.WantsGates()}};
  }

  static void Prepare(const Dims& d, int variant, bool,
                      std::vector<Tensor>* inputs) {
    const Steps steps = Variant(variant).StepsOf(d);
    steps.SpoilPast(steps.InputWidth(), &(*inputs)[kX]);
    CalmGammas(inputs);
  }

  static int64_t Reduction(const Dims& d) {
    return std::max(d.input, kGates * d.units);
  }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const Variant v(variant);
    const Steps steps = v.StepsOf(d);
    const int64_t units = d.units;
    const int64_t width = kGates * units;
    const RecurrentDropout dropout(v.order, in[kDropout], d.batch, units,
                                   units);
    const int64_t rows = d.steps * d.batch;
    Tensor h(rows * units), rstd(rows * 2);
    Tensor x_hat(rows * width), h_hat(rows * width);
    Tensor h_state = in[kHPrev];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const state = h_state.data() + b * units;
        if (steps.Counts(step, b)) {
          Tensor of_x, of_h;
          for (int64_t column = 0; column < width; ++column) {
            Sum x_sum, h_sum;
            steps.AddInput(in[kX].data() + row * steps.InputWidth(), in[kWX],
                           width, column, &x_sum);
            const Tensor seen = dropout.Seen(column / units, b, state);
            AddDot(seen.data(), units, in[kWH], width, column, &h_sum);
            of_x.push_back(x_sum.Total());
            of_h.push_back(h_sum.Total());
          }
          const Normalized x_norm = Normalize(of_x, v.epsilon);
          const Normalized h_norm = Normalize(of_h, v.epsilon);
          for (int64_t j = 0; j < units; ++j) {
            const Gates gates = GatesOf(v, act, in, x_norm.hat.data(),
                                        h_norm.hat.data(), units, j);
            state[j] = gates.u * state[j] + (Real(1) - gates.u) * gates.c;
          }
          std::copy(x_norm.hat.begin(), x_norm.hat.end(),
                    x_hat.begin() + row * width);
          std::copy(h_norm.hat.begin(), h_norm.hat.end(),
                    h_hat.begin() + row * width);
          rstd[2 * row] = x_norm.rstd;
          rstd[2 * row + 1] = h_norm.rstd;
        }
        std::copy(state, state + units, h.begin() + row * units);
      }
    }
    return {h, h_state, x_hat, h_hat, rstd};
  }

  template <class T, class Args>
  static void FillShared(const Variant& v, Arguments<T>* tensors, Args* args) {
    args->layout = v.layout;
    args->epsilon = v.epsilon;
    args->x = tensors->In();
    args->h_prev = tensors->In();
    args->w_x = tensors->In();
    args->w_h = tensors->In();
    args->b_x = tensors->In();
    args->b_h = tensors->In();
    args->gamma_x = tensors->In();
    args->beta_x = tensors->In();
    args->gamma_h = tensors->In();
    args->beta_h = tensors->In();
    args->recurrent_dropout = tensors->In();
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Variant v(call.variant);
    const SequenceCall sequence(v.StepsOf(call.dims));
    Arguments<T> tensors(call);
    LayerNormGruForwardArgs<T> args;
    sequence.Fill(&args);
    FillShared(v, &tensors, &args);
    args.h = tensors.OutIf(v.WantsH());
    args.h_last = tensors.OutIf(v.WantsLast());
    args.x_hat = tensors.OutIf(v.WantsGates());
    args.h_hat = tensors.OutIf(v.WantsGates());
    args.rstd = tensors.OutIf(v.WantsGates());
    if (call.weights.kind != WeightForm::kAsDrawn) {
      return RunWithWeights<T>(call, args);
    }
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t rows = d.steps * d.batch;
    std::vector<TensorSpec> specs = SharedInputs(d, v);
    const TensorSpec own[] = {
        {"x_hat", rows * kGates * d.units},
        {"h_hat", rows * kGates * d.units},
        {"rstd", rows * 2, Fill::kGate},
        {"h", rows * d.units},
        {"h_grad", rows * d.units, Fill::kState, v.GivesHGrad()},
        {"h_last_grad", d.batch * d.units, Fill::kState, v.GivesLastGrad()}};
    specs.insert(specs.end(), std::begin(own), std::end(own));
    return specs;
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t width = kGates * d.units;
    return {{"x_grad", v.StepsOf(d).InputSize()},
            {"h_prev_grad", d.batch * d.units},
            {"w_x_grad", d.input * width, {}, !v.order.projected_input},
            {"w_h_grad", d.units * width},
            {"b_x_grad", width},
            {"b_h_grad", width},
            {"gamma_x_grad", width},
            {"beta_x_grad", width},
            {"gamma_h_grad", width},
            {"beta_h_grad", width}};
  }

  // Makes the inputs consistent with what the forward op can output.
  static void Prepare(const Dims& d, int variant, bool,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const Variant v(variant);
    const Steps steps = v.StepsOf(d);
    const int64_t width = kGates * d.units;
    CalmGammas(inputs);
    if (v.order.mask != Mask::kNone) {
      for (const int factor : {kWX, kWH, kDropout}) MakeFinite(&in[factor]);
    }
    for (const int hat : {kXHat, kHHat}) {
      steps.ZeroMasked(width, &in[hat]);
      steps.SpoilPast(width, &in[hat]);
    }
    steps.ZeroMasked(2, &in[kRstd]);
    steps.SpoilPast(2, &in[kRstd]);
    steps.CarryOverMasked(in[kHPrev], d.units, &in[kH]);
    steps.SpoilPast(steps.InputWidth(), &in[kX]);
    for (const int state : {kH, kHGrad}) steps.SpoilPast(d.units, &in[state]);
  }

  // x_grad and h_prev_grad sum over gates, the others over rows.
  static int64_t Reduction(const Dims& d) {
    return std::max(kGates * d.units, d.batch);
  }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const Variant v(variant);
    const Steps steps = v.StepsOf(d);
    // A tensor that is not given counts as zeros.
    const Tensor h_grad = v.GivesHGrad() ? in[kHGrad] : Tensor(in[kH].size());
    Tensor h_back_all =
        v.GivesLastGrad() ? in[kHLastGrad] : Tensor(in[kHPrev].size());
    const int64_t units = d.units;
    const int64_t width = kGates * units;
    const RecurrentDropout dropout(v.order, in[kDropout], d.batch, units,
                                   units);
    const Real one(1);
    Tensor x_grad(in[kX].size());
    std::vector<Sum> w_x_grad(in[kWX].size()), w_h_grad(in[kWH].size());
    std::vector<Sum> b_x_grad(width), b_h_grad(width);
    std::vector<Sum> gamma_x_grad(width), gamma_h_grad(width);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const h_back = h_back_all.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          h_back[j] = h_back[j] + h_grad[row * units + j];
        }
        if (!steps.Counts(step, b)) continue;
        const Real* const h_prev =
            steps.Before(step, b, in[kHPrev], in[kH], units);
        const Real* const x_hat = in[kXHat].data() + row * width;
        const Real* const h_hat = in[kHHat].data() + row * width;
        // Behind the norms of x · w_x and of h · w_h.
        Tensor of_x(width), of_h(width), not_through_w_h(units);
        for (int64_t j = 0; j < units; ++j) {
          const Gates gates = GatesOf(v, act, in, x_hat, h_hat, units, j);
          const Real keep = one - gates.u;
          const Real d_c = h_back[j] * keep * (one - gates.c * gates.c);
          const Real d_r = d_c * gates.hc * gates.r * (one - gates.r);
          const Real d_u = h_back[j] * (h_prev[j] - gates.c) * gates.u * keep;
          of_x[v.r * units + j] = of_h[v.r * units + j] = d_r;
          of_x[v.u * units + j] = of_h[v.u * units + j] = d_u;
          of_x[v.c * units + j] = d_c;
          of_h[v.c * units + j] = d_c * gates.r;
          not_through_w_h[j] = h_back[j] * gates.u;
        }
        Tensor g_x, g_h;
        for (int64_t n = 0; n < width; ++n) {
          b_x_grad[n].Add(of_x[n]);
          b_h_grad[n].Add(of_h[n]);
          gamma_x_grad[n].AddProduct(of_x[n], x_hat[n]);
          gamma_h_grad[n].AddProduct(of_h[n], h_hat[n]);
          g_x.push_back(of_x[n] * in[kGammaX][n]);
          g_h.push_back(of_h[n] * in[kGammaH][n]);
        }
        const Tensor d_x = NormGrad(g_x, x_hat, in[kRstd][2 * row]);
        const Tensor d_h = NormGrad(g_h, h_hat, in[kRstd][2 * row + 1]);
        steps.AddInputGrads(row, in[kX], in[kWX], d_x, &x_grad, &w_x_grad);
        for (int64_t k = 0; k < units; ++k) {
          h_back[k] =
              dropout.StateGrad(d_h, in[kWH], b, k) + not_through_w_h[k];
        }
        dropout.AddWeightGrad(h_prev, b, d_h, &w_h_grad);
      }
    }
    const Tensor of_b_x = Totals(b_x_grad);
    const Tensor of_b_h = Totals(b_h_grad);
    return {x_grad,
            h_back_all,
            Totals(w_x_grad),
            Totals(w_h_grad),
            of_b_x,
            of_b_h,
            Totals(gamma_x_grad),
            of_b_x,
            Totals(gamma_h_grad),
            of_b_h};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Variant v(call.variant);
    const SequenceCall sequence(v.StepsOf(call.dims));
    Arguments<T> tensors(call);
    LayerNormGruBackwardArgs<T> args;
    sequence.Fill(&args);
    Forward::FillShared(v, &tensors, &args);
    args.x_hat = tensors.In();
    args.h_hat = tensors.In();
    args.rstd = tensors.In();
    args.h = tensors.In();
    args.h_grad = tensors.In();
    args.h_last_grad = tensors.In();
    args.x_grad = tensors.Out();
    args.h_prev_grad = tensors.Out();
    args.w_x_grad = tensors.Out();
    args.w_h_grad = tensors.Out();
    args.b_x_grad = tensors.Out();
    args.b_h_grad = tensors.Out();
    args.gamma_x_grad = tensors.Out();
    args.beta_x_grad = tensors.Out();
    args.gamma_h_grad = tensors.Out();
    args.beta_h_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

const bool kAdded =
    AddOp({"LayerNormGRU", false, false, kNumOrders, &Forward::Inputs,
           &Forward::Outputs, &Forward::Reduction, &Forward::Reference,
           &CallWithType<Forward>, true, 1, &Forward::Prepare}) &&
    AddOp({"LayerNormGRUGrad", true, false, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 1, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
