// Defines the tests' view of the LSTM with layer normalisation over a sequence,
// forward and backward: tensors, reference, engine call.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cc/core/gate_layout.h"
#include "tests/cpp/frozen.h"
#include "tests/cpp/layer_norm_reference.h"
#include "tests/cpp/recurrent_dropout.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

constexpr int64_t kGates = 4;

struct Variant {
  explicit Variant(int variant)
      : order(kOrders[variant]),
        ci(variant % 2 == 1 ? 2 : 1),
        f(variant % 2 == 1 ? 1 : 2),
        layout(variant % 2 == 1 ? kLstmIfco : kLstmIcfo),
        epsilon(variant % 3 == 1 ? 1e-3 : 1),
        norm_output_only(variant / 2 % 2 == 1),
        wants_saved(variant % 4 != 3),
        wants_h(variant % 5 != 4),
        wants_last(variant % 3 != 2),
        gives_h_grad(variant % 4 != 2),
        gives_cs_grad(variant % 3 != 1),
        gives_last_grads(variant % 5 != 3) {}

  Steps StepsOf(const Dims& d) const { return Steps(d, order, kGates); }

  const Order order;
  // The gates' places in weights and biases.
  const int64_t i = 0;
  const int64_t ci;
  const int64_t f;
  const int64_t o = 3;
  const LstmGateLayout layout;
  const double epsilon;
  const bool norm_output_only;
  const bool wants_saved;
  const bool wants_h;
  const bool wants_last;
  const bool gives_h_grad;
  const bool gives_cs_grad;
  const bool gives_last_grads;
};

// Inputs that both ops have, and their places.
enum In : int {
  kX,
  kCsPrev,
  kHPrev,
  kWX,
  kWH,
  kB,
  kGammaX,
  kBetaX,
  kGammaH,
  kBetaH,
  kGammaC,
  kBetaC,
  kDropout,
  // Of the backward op alone.
  kXHat,
  kHHat,
  kRstd,
  kCs,
  kH,
  kCsGrad,
  kHGrad,
  kCsLastGrad,
  kHLastGrad,
};

std::vector<TensorSpec> SharedInputs(const Dims& d, const Variant& v) {
  const int64_t width = kGates * d.units;
  return {{"x", v.StepsOf(d).InputSize()},
          {"cs_prev", d.batch * d.units},
          {"h_prev", d.batch * d.units},
          {"w_x", d.input * width, Fill::kWeight, !v.order.projected_input},
          {"w_h", d.units * width, Fill::kWeight},
          {"b", width},
          {"gamma_x", width},
          {"beta_x", width},
          {"gamma_h", width},
          {"beta_h", width},
          {"gamma_c", d.units},
          {"beta_c", d.units},
          {"recurrent_dropout", kGates * d.batch * d.units, Fill::kGate,
           v.order.drops}};
}

// A norm passes errors on multiplied by up to gamma / √epsilon. Over many steps
// the bound on roundoff would grow with that and soon become meaningless. With
// small gammas of what depends on the states it stays small, while every number
// still matters.
void CalmGammas(std::vector<Tensor>* inputs) {
  for (Real& gamma : (*inputs)[kGammaH]) gamma = std::ldexp(gamma.value, -4);
  for (Real& gamma : (*inputs)[kGammaC]) gamma = std::ldexp(gamma.value, -6);
}

// The gates of a row, [4H] in their order, and the cell state before its norm.
struct Gates {
  Tensor z;
  Tensor c;
};

Gates GatesOf(const Variant& v, Activations act, const std::vector<Tensor>& in,
              const Real* x_hat, const Real* h_hat, const Real* cs_prev) {
  Gates gates;
  const auto units = static_cast<int64_t>(in[kGammaC].size());
  for (int64_t j = 0; j < kGates * units; ++j) {
    Sum bar;
    bar.AddProduct(x_hat[j], in[kGammaX][j]);
    bar.AddProduct(h_hat[j], in[kGammaH][j]);
    for (const int bias : {kBetaX, kBetaH, kB}) bar.Add(in[bias][j]);
    gates.z.push_back(j / units == v.ci ? act.Candidate(bar.Total())
                                        : act.Gate(bar.Total()));
  }
  for (int64_t j = 0; j < units; ++j) {
    gates.c.push_back(gates.z[v.ci * units + j] * gates.z[v.i * units + j] +
                      cs_prev[j] * gates.z[v.f * units + j]);
  }
  return gates;
}

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    return SharedInputs(d, Variant(variant));
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t rows = d.steps * d.batch;
    return {{"h", rows * d.units, {}, v.wants_h},
            {"h_last", d.batch * d.units, {}, v.wants_last},
            {"cs_last", d.batch * d.units, {}, v.wants_last},
            {"x_hat", rows * kGates * d.units, {}, v.wants_saved},
            {"h_hat", rows * kGates * d.units, {}, v.wants_saved},
            {"rstd", rows * 2, {}, v.wants_saved},
            {"cs", rows * d.units, {}, v.wants_saved}};
  }

  static void Prepare(const Dims& d, int variant, bool,
                      std::vector<Tensor>* inputs) {
    const Steps steps = Variant(variant).StepsOf(d);
    steps.SpoilPast(steps.InputWidth(), &(*inputs)[kX]);
    CalmGammas(inputs);
  }

  static int64_t Reduction(const Dims& d) {
    return std::max({d.input, kGates * d.units});
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
    Tensor h(rows * units), cs(rows * units), rstd(rows * 2);
    Tensor x_hat(rows * width), h_hat(rows * width);
    Tensor cs_state = in[kCsPrev], h_state = in[kHPrev];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const state = h_state.data() + b * units;
        Real* const cell = cs_state.data() + b * units;
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
          const Gates gates =
              GatesOf(v, act, in, x_norm.hat.data(), h_norm.hat.data(), cell);
          const Normalized c_norm = Normalize(gates.c, v.epsilon);
          for (int64_t j = 0; j < units; ++j) {
            const Real read = c_norm.hat[j] * in[kGammaC][j] + in[kBetaC][j];
            state[j] = gates.z[v.o * units + j] * act.Candidate(read);
            cell[j] = v.norm_output_only ? gates.c[j] : read;
          }
          std::copy(x_norm.hat.begin(), x_norm.hat.end(),
                    x_hat.begin() + row * width);
          std::copy(h_norm.hat.begin(), h_norm.hat.end(),
                    h_hat.begin() + row * width);
          rstd[2 * row] = x_norm.rstd;
          rstd[2 * row + 1] = h_norm.rstd;
        }
        std::copy(state, state + units, h.begin() + row * units);
        std::copy(cell, cell + units, cs.begin() + row * units);
      }
    }
    return {h, h_state, cs_state, x_hat, h_hat, rstd, cs};
  }

  template <class T, class Args>
  static void FillShared(const Variant& v, Arguments<T>* tensors, Args* args) {
    args->layout = v.layout;
    args->epsilon = v.epsilon;
    args->norm_output_only = v.norm_output_only;
    args->x = tensors->In();
    args->cs_prev = tensors->In();
    args->h_prev = tensors->In();
    args->w_x = tensors->In();
    args->w_h = tensors->In();
    args->b = tensors->In();
    args->gamma_x = tensors->In();
    args->beta_x = tensors->In();
    args->gamma_h = tensors->In();
    args->beta_h = tensors->In();
    args->gamma_c = tensors->In();
    args->beta_c = tensors->In();
    args->recurrent_dropout = tensors->In();
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Variant v(call.variant);
    const SequenceCall sequence(v.StepsOf(call.dims));
    Arguments<T> tensors(call);
    LayerNormLstmForwardArgs<T> args;
    sequence.Fill(&args);
    FillShared(v, &tensors, &args);
    args.h = tensors.OutIf(v.wants_h);
    args.h_last = tensors.OutIf(v.wants_last);
    args.cs_last = tensors.OutIf(v.wants_last);
    args.x_hat = tensors.OutIf(v.wants_saved);
    args.h_hat = tensors.OutIf(v.wants_saved);
    args.rstd = tensors.OutIf(v.wants_saved);
    args.cs = tensors.OutIf(v.wants_saved);
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
        {"cs", rows * d.units},
        {"h", rows * d.units},
        {"cs_grad", rows * d.units, Fill::kState, v.gives_cs_grad},
        {"h_grad", rows * d.units, Fill::kState, v.gives_h_grad},
        {"cs_last_grad", d.batch * d.units, Fill::kState, v.gives_last_grads},
        {"h_last_grad", d.batch * d.units, Fill::kState, v.gives_last_grads}};
    specs.insert(specs.end(), std::begin(own), std::end(own));
    return specs;
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const Variant v(variant);
    const int64_t width = kGates * d.units;
    return {{"x_grad", v.StepsOf(d).InputSize()},
            {"cs_prev_grad", d.batch * d.units},
            {"h_prev_grad", d.batch * d.units},
            {"w_x_grad", d.input * width, {}, !v.order.projected_input},
            {"w_h_grad", d.units * width},
            {"b_grad", width},
            {"gamma_x_grad", width},
            {"beta_x_grad", width},
            {"gamma_h_grad", width},
            {"beta_h_grad", width},
            {"gamma_c_grad", d.units},
            {"beta_c_grad", d.units}};
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
    steps.CarryOverMasked(in[kCsPrev], d.units, &in[kCs]);
    steps.CarryOverMasked(in[kHPrev], d.units, &in[kH]);
    steps.SpoilPast(steps.InputWidth(), &in[kX]);
    for (const int state : {kCs, kH, kCsGrad, kHGrad}) {
      steps.SpoilPast(d.units, &in[state]);
    }
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
    const auto specs = Inputs(d, variant);
    // A tensor that is not given counts as zeros.
    const auto given = [&](int t) {
      return specs[t].used ? in[t] : Tensor(in[t].size());
    };
    const Tensor cs_grad = given(kCsGrad), h_grad = given(kHGrad);
    Tensor cs_back_all = given(kCsLastGrad), h_back_all = given(kHLastGrad);
    const int64_t units = d.units;
    const int64_t width = kGates * units;
    const RecurrentDropout dropout(v.order, in[kDropout], d.batch, units,
                                   units);
    const Real one(1);
    Tensor x_grad(in[kX].size());
    std::vector<Sum> w_x_grad(in[kWX].size()), w_h_grad(in[kWH].size());
    std::vector<Sum> b_grad(width), gamma_x_grad(width), gamma_h_grad(width);
    std::vector<Sum> gamma_c_grad(units), beta_c_grad(units);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const cs_back = cs_back_all.data() + b * units;
        Real* const h_back = h_back_all.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          h_back[j] = h_back[j] + h_grad[row * units + j];
          cs_back[j] = cs_back[j] + cs_grad[row * units + j];
        }
        if (!steps.Counts(step, b)) continue;
        const Real* const cs_prev =
            steps.Before(step, b, in[kCsPrev], in[kCs], units);
        const Real* const h_prev =
            steps.Before(step, b, in[kHPrev], in[kH], units);
        const Real* const x_hat = in[kXHat].data() + row * width;
        const Real* const h_hat = in[kHHat].data() + row * width;
        const Gates gates = GatesOf(v, act, in, x_hat, h_hat, cs_prev);
        const auto gate = [&](int64_t which, int64_t j) {
          return gates.z[which * units + j];
        };
        const Normalized c = Normalize(gates.c, v.epsilon);
        Tensor dz(width), g;
        for (int64_t j = 0; j < units; ++j) {
          const Real co =
              act.Candidate(c.hat[j] * in[kGammaC][j] + in[kBetaC][j]);
          const Real o = gate(v.o, j);
          dz[v.o * units + j] = o * (one - o) * h_back[j] * co;
          Real dn = (one - co * co) * h_back[j] * o;
          if (!v.norm_output_only) dn = dn + cs_back[j];
          gamma_c_grad[j].AddProduct(dn, c.hat[j]);
          beta_c_grad[j].Add(dn);
          g.push_back(dn * in[kGammaC][j]);
        }
        Tensor dc = NormGrad(g, c.hat.data(), c.rstd);
        for (int64_t j = 0; v.norm_output_only && j < units; ++j) {
          dc[j] = dc[j] + cs_back[j];
        }
        for (int64_t j = 0; j < units; ++j) {
          const Real i = gate(v.i, j), f = gate(v.f, j), ci = gate(v.ci, j);
          dz[v.i * units + j] = i * (one - i) * dc[j] * ci;
          dz[v.f * units + j] = f * (one - f) * dc[j] * cs_prev[j];
          dz[v.ci * units + j] = (one - ci * ci) * dc[j] * i;
          cs_back[j] = dc[j] * f;
        }
        Tensor g_x, g_h;
        for (int64_t j = 0; j < width; ++j) {
          b_grad[j].Add(dz[j]);
          gamma_x_grad[j].AddProduct(dz[j], x_hat[j]);
          gamma_h_grad[j].AddProduct(dz[j], h_hat[j]);
          g_x.push_back(dz[j] * in[kGammaX][j]);
          g_h.push_back(dz[j] * in[kGammaH][j]);
        }
        const Tensor d_x = NormGrad(g_x, x_hat, in[kRstd][2 * row]);
        const Tensor d_h = NormGrad(g_h, h_hat, in[kRstd][2 * row + 1]);
        steps.AddInputGrads(row, in[kX], in[kWX], d_x, &x_grad, &w_x_grad);
        for (int64_t k = 0; k < units; ++k) {
          h_back[k] = dropout.StateGrad(d_h, in[kWH], b, k);
        }
        dropout.AddWeightGrad(h_prev, b, d_h, &w_h_grad);
      }
    }
    const Tensor biases = Totals(b_grad);
    return {x_grad,
            cs_back_all,
            h_back_all,
            Totals(w_x_grad),
            Totals(w_h_grad),
            biases,
            Totals(gamma_x_grad),
            biases,
            Totals(gamma_h_grad),
            biases,
            Totals(gamma_c_grad),
            Totals(beta_c_grad)};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const Variant v(call.variant);
    const SequenceCall sequence(v.StepsOf(call.dims));
    Arguments<T> tensors(call);
    LayerNormLstmBackwardArgs<T> args;
    sequence.Fill(&args);
    Forward::FillShared(v, &tensors, &args);
    args.x_hat = tensors.In();
    args.h_hat = tensors.In();
    args.rstd = tensors.In();
    args.cs = tensors.In();
    args.h = tensors.In();
    args.cs_grad = tensors.In();
    args.h_grad = tensors.In();
    args.cs_last_grad = tensors.In();
    args.h_last_grad = tensors.In();
    args.x_grad = tensors.Out();
    args.cs_prev_grad = tensors.Out();
    args.h_prev_grad = tensors.Out();
    args.w_x_grad = tensors.Out();
    args.w_h_grad = tensors.Out();
    args.b_grad = tensors.Out();
    args.gamma_x_grad = tensors.Out();
    args.beta_x_grad = tensors.Out();
    args.gamma_h_grad = tensors.Out();
    args.beta_h_grad = tensors.Out();
    args.gamma_c_grad = tensors.Out();
    args.beta_c_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

const bool kAdded =
    AddOp({"LayerNormLSTM", false, false, kNumOrders, &Forward::Inputs,
           &Forward::Outputs, &Forward::Reduction, &Forward::Reference,
           &CallWithType<Forward>, true, 1, &Forward::Prepare}) &&
    AddOp({"LayerNormLSTMGrad", true, false, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 1, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
