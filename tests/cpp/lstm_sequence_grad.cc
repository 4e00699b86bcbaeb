// Defines the tests' view of the gradient of the LSTM over a sequence: tensors,
// reference, engine call.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/cpp/lstm_sequence_variants.h"
#include "tests/cpp/recurrent_dropout.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const LstmVariant v(variant);
    const bool peephole = v.options.use_peephole;
    const int64_t width = v.Width(d);
    const int64_t n = d.steps * d.batch * d.units;
    const int64_t h = d.steps * d.batch * width;
    return {
        {"x", v.StepsOf(d).InputSize()},
        {"cs_prev", d.batch * d.units},
        {"h_prev", d.batch * width},
        {"w_x", d.input * 4 * d.units, Fill::kWeight, !v.order.projected_input},
        {"w_h", width * 4 * d.units, Fill::kWeight},
        {"wci", d.units, Fill::kState, peephole},
        {"wcf", d.units, Fill::kState, peephole},
        {"wco", d.units, Fill::kState, peephole},
        {"recurrent_dropout", 4 * d.batch * width, Fill::kGate, v.order.drops},
        {"w_p", width * d.units, Fill::kWeight, v.projects},
        {"i", n, Fill::kGate},
        {"cs", n},
        {"f", n, Fill::kGate},
        {"o", n, Fill::kGate},
        {"ci", n},
        {"co", n, Fill::kState, v.give_co},
        {"h", h},
        {"cs_grad", n, Fill::kState, v.GivesCsGrad()},
        {"h_grad", h, Fill::kState, v.GivesHGrad()},
        {"cs_last_grad", d.batch * d.units, Fill::kState, v.GivesLastGrads()},
        {"h_last_grad", d.batch * width, Fill::kState, v.GivesLastGrads()}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const LstmVariant v(variant);
    const bool peephole = v.options.use_peephole;
    const int64_t width = v.Width(d);
    return {{"x_grad", v.StepsOf(d).InputSize()},
            {"cs_prev_grad", d.batch * d.units},
            {"h_prev_grad", d.batch * width},
            {"w_x_grad", d.input * 4 * d.units, {}, !v.order.projected_input},
            {"w_h_grad", width * 4 * d.units},
            {"wci_grad", d.units, {}, peephole},
            {"wcf_grad", d.units, {}, peephole},
            {"wco_grad", d.units, {}, peephole},
            {"b_grad", 4 * d.units},
            {"w_p_grad", width * d.units, {}, v.projects}};
  }

  // Makes the inputs consistent with what the forward op can output.
  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const LstmVariant v(variant);
    const Steps steps = v.StepsOf(d);
    const int64_t width = v.Width(d);
    CalmRecurrentWeights(d, &in[4]);
    if (v.order.mask != Mask::kNone) {
      for (const int factor : {3, 4, 8, 9}) MakeFinite(&in[factor]);
    }
    if (identity) {
      SparseIntegers(d.input, 4, d.units, false, &in[3]);
      SparseIntegers(width, 4, d.units, true, &in[4]);
      SparseIntegers(width, 1, d.units, false, &in[9]);
      // tanh(0) is exact; of another integer it is not.
      if (!v.give_co) std::fill(in[11].begin(), in[11].end(), Real(0));
      // Zoneout has cs computed again, from these.
      for (const int factor : {1, 14}) {
        if (v.order.zones) std::fill(in[factor].begin(), in[factor].end(), 0);
      }
    }
    for (const int gate : {10, 12, 13, 14, 15}) {
      steps.ZeroMasked(d.units, &in[gate]);
    }
    steps.CarryOverMasked(in[1], d.units, &in[11]);
    steps.CarryOverMasked(in[2], width, &in[16]);
    steps.SpoilPast(steps.InputWidth(), &in[0]);
    for (const int saved : {10, 11, 12, 13, 14, 15, 17}) {
      steps.SpoilPast(d.units, &in[saved]);
    }
    for (const int output : {16, 18}) steps.SpoilPast(width, &in[output]);
  }

  // x_grad and h_prev_grad sum over gates, the others over rows.
  static int64_t Reduction(const Dims& d) {
    return std::max(4 * d.units, d.batch);
  }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const LstmVariant v(variant);
    const Steps steps = v.StepsOf(d);
    const bool peephole = v.options.use_peephole;
    const Tensor &x = in[0], &w_x = in[3], &w_h = in[4], &wci = in[5];
    const Tensor &wcf = in[6], &wco = in[7], &w_p = in[9], &i = in[10];
    const Tensor &cs = in[11], &f = in[12], &o = in[13], &ci = in[14];
    const Tensor& h = in[16];
    const auto specs = Inputs(d, variant);
    // A tensor that is not given counts as zeros.
    const auto given = [&](int t) {
      return specs[t].used ? in[t] : Tensor(in[t].size());
    };
    const Tensor cs_grad = given(17), h_grad = given(18);
    Tensor cs_state_grad = given(19), h_state_grad = given(20);
    const int64_t units = d.units;
    const int64_t width = v.Width(d);
    const RecurrentDropout dropout(v.order, in[8], d.batch, width, units);
    const Real one(1);
    Tensor x_grad(x.size()), dz(4 * units);
    std::vector<Sum> w_x_grad(w_x.size()), w_h_grad(w_h.size());
    std::vector<Sum> wci_grad(units), wcf_grad(units), wco_grad(units);
    std::vector<Sum> b_grad(4 * units), w_p_grad(w_p.size());
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        const Real* cs_prev = steps.Before(step, b, in[1], cs, units);
        const Real* h_prev = steps.Before(step, b, in[2], h, width);
        Real* const cs_back = cs_state_grad.data() + b * units;
        Real* const h_back = h_state_grad.data() + b * width;
        for (int64_t k = 0; k < width; ++k) {
          h_back[k] = h_back[k] + h_grad[row * width + k];
        }
        Tensor d_h;  // of the new h
        for (int64_t k = 0; k < width; ++k) {
          d_h.push_back(steps.NewPart(0, step, b, k, h_back[k]));
        }
        Tensor m(units);
        for (int64_t j = 0; j < units; ++j) {
          const int64_t n = row * units + j;
          cs_back[j] = cs_back[j] + cs_grad[n];
          if (!steps.Counts(step, b)) continue;
          Real new_cs = cs[n];
          if (v.order.zones) {
            new_cs = ci[n] * i[n] + cs_prev[j] * f[n];
            const double bound = v.options.cell_clip;
            if (bound > 0) new_cs = ClipTo(new_cs, bound);
          }
          Sum from_p;
          if (v.projects) AddDot(d_h.data(), width, w_p, units, j, &from_p);
          const Real d_m = v.projects ? from_p.Total() : d_h[j];
          const Real co = v.give_co ? in[15][n] : act.Candidate(new_cs);
          m[j] = o[n] * co;
          const Real d_o = o[n] * (one - o[n]) * d_m * co;
          Sum dcs_sum;
          dcs_sum.Add((one - co * co) * d_m * o[n]);
          dcs_sum.Add(steps.NewPart(1, step, b, j, cs_back[j]));
          if (peephole) dcs_sum.AddProduct(d_o, wco[j]);
          const Real dcs = dcs_sum.Total();
          const Real di = i[n] * (one - i[n]) * dcs * ci[n];
          const Real df = f[n] * (one - f[n]) * dcs * cs_prev[j];
          dz[v.i * units + j] = di;
          dz[v.ci * units + j] = (one - ci[n] * ci[n]) * dcs * i[n];
          dz[v.f * units + j] = df;
          dz[v.o * units + j] = d_o;
          Sum before;
          before.AddProduct(dcs, f[n]);
          if (peephole) {
            before.AddProduct(di, wci[j]);
            before.AddProduct(df, wcf[j]);
            wci_grad[j].AddProduct(di, cs_prev[j]);
            wcf_grad[j].AddProduct(df, cs_prev[j]);
            wco_grad[j].AddProduct(d_o, new_cs);
          }
          if (v.order.zones) {
            before.Add(steps.KeptPart(1, step, b, j, cs_back[j]));
          }
          cs_back[j] = before.Total();
        }
        if (!steps.Counts(step, b)) continue;
        if (v.projects) AddOuter(d_h.data(), width, m, &w_p_grad);
        steps.AddInputGrads(row, x, w_x, dz, &x_grad, &w_x_grad);
        for (int64_t k = 0; k < width; ++k) {
          const Real kept = steps.KeptPart(0, step, b, k, h_back[k]);
          h_back[k] = dropout.StateGrad(dz, w_h, b, k);
          if (v.order.zones) h_back[k] = h_back[k] + kept;
        }
        dropout.AddWeightGrad(h_prev, b, dz, &w_h_grad);
        AddOuter(&one, 1, dz, &b_grad);
      }
    }
    return {x_grad,           cs_state_grad,    h_state_grad,
            Totals(w_x_grad), Totals(w_h_grad), Totals(wci_grad),
            Totals(wcf_grad), Totals(wco_grad), Totals(b_grad),
            Totals(w_p_grad)};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const LstmVariant v(call.variant);
    const Steps steps = v.StepsOf(call.dims);
    const SequenceCall sequence(steps);
    const StateDraws of_h(steps, 0, v.Width(call.dims));
    const StateDraws of_cs(steps, 1, call.dims.units);
    Arguments<T> tensors(call);
    LstmSequenceBackwardArgs<T> args;
    sequence.Fill(&args);
    args.zoneout_h = of_h.Get();
    args.zoneout_c = of_cs.Get();
    args.options.cell_clip = v.options.cell_clip;
    args.layout = v.layout;
    args.options.use_peephole = v.options.use_peephole;
    args.proj = v.projects ? v.Width(call.dims) : 0;
    args.x = tensors.In();
    args.cs_prev = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.wci = tensors.In();
    args.wcf = tensors.In();
    args.wco = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.w_p = tensors.In();
    args.i = tensors.In();
    args.cs = tensors.In();
    args.f = tensors.In();
    args.o = tensors.In();
    args.ci = tensors.In();
    args.co = tensors.In();
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
    args.wci_grad = tensors.Out();
    args.wcf_grad = tensors.Out();
    args.wco_grad = tensors.Out();
    args.b_grad = tensors.Out();
    args.w_p_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

// The backward reads activations as given, so it has an identity form as it is.
const bool kAdded =
    AddOp({"LSTMGrad", true, true, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 3, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
