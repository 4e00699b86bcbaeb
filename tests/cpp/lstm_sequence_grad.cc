// The gradient of the LSTM over a sequence: tensors, reference, engine call.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/cpp/lstm_sequence_variants.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const LstmVariant v(variant);
    const bool peephole = v.options.use_peephole;
    const int64_t n = d.steps * d.batch * d.units;
    const int64_t state = d.batch * d.units;
    return {{"x", d.steps * d.batch * d.input},
            {"cs_prev", state},
            {"h_prev", state},
            {"w_x", d.input * 4 * d.units, Fill::kWeight},
            {"w_h", d.units * 4 * d.units, Fill::kWeight},
            {"wci", d.units, Fill::kState, peephole},
            {"wcf", d.units, Fill::kState, peephole},
            {"wco", d.units, Fill::kState, peephole},
            {"i", n, Fill::kGate},
            {"cs", n},
            {"f", n, Fill::kGate},
            {"o", n, Fill::kGate},
            {"ci", n},
            {"co", n, Fill::kState, v.give_co},
            {"h", n},
            {"cs_grad", n, Fill::kState, v.GivesCsGrad()},
            {"h_grad", n, Fill::kState, v.GivesHGrad()},
            {"cs_last_grad", state, Fill::kState, v.GivesLastGrads()},
            {"h_last_grad", state, Fill::kState, v.GivesLastGrads()}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const bool peephole = LstmVariant(variant).options.use_peephole;
    const int64_t state = d.batch * d.units;
    return {{"x_grad", d.steps * d.batch * d.input},
            {"cs_prev_grad", state},
            {"h_prev_grad", state},
            {"w_x_grad", d.input * 4 * d.units},
            {"w_h_grad", d.units * 4 * d.units},
            {"wci_grad", d.units, {}, peephole},
            {"wcf_grad", d.units, {}, peephole},
            {"wco_grad", d.units, {}, peephole},
            {"b_grad", 4 * d.units}};
  }

  // Makes them what the forward op can have put out.
  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const LstmVariant v(variant);
    const Steps steps(d, v.order);
    CalmRecurrentWeights(d, &in[4]);
    if (v.order.mask != Mask::kNone) {
      MakeFinite(&in[3]);
      MakeFinite(&in[4]);
    }
    if (identity) {
      SparseIntegers(d.input, 4, d.units, false, &in[3]);
      SparseIntegers(d.units, 4, d.units, true, &in[4]);
      // tanh(0) is exact; of another integer it is not.
      if (!v.give_co) std::fill(in[9].begin(), in[9].end(), Real(0));
    }
    for (const int gate : {8, 10, 11, 12, 13}) steps.ClearSkipped(&in[gate]);
    steps.CarryOverSkipped(in[1], &in[9]);
    steps.CarryOverSkipped(in[2], &in[14]);
  }

  // x_grad and h_prev_grad sum over gates, the others over rows.
  static int64_t Reduction(const Dims& d) {
    return std::max(4 * d.units, d.batch);
  }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const LstmVariant v(variant);
    const Steps steps(d, v.order);
    const bool peephole = v.options.use_peephole;
    const Tensor &x = in[0], &w_x = in[3], &w_h = in[4], &wci = in[5];
    const Tensor &wcf = in[6], &wco = in[7], &i = in[8], &cs = in[9];
    const Tensor &f = in[10], &o = in[11], &ci = in[12], &h = in[14];
    const auto specs = Inputs(d, variant);
    // A tensor that is not given is zeros.
    const auto given = [&](int t) {
      return specs[t].used ? in[t] : Tensor(in[t].size());
    };
    const Tensor cs_grad = given(15), h_grad = given(16);
    Tensor cs_state_grad = given(17), h_state_grad = given(18);
    const int64_t units = d.units;
    const Real one(1);
    Tensor x_grad(x.size()), dz(4 * units);
    std::vector<Sum> w_x_grad(w_x.size()), w_h_grad(w_h.size());
    std::vector<Sum> wci_grad(units), wcf_grad(units), wco_grad(units);
    std::vector<Sum> b_grad(4 * units);
    for (int64_t step = d.steps - 1; step >= 0; --step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        const int64_t row = steps.At(step, b);
        const Real* cs_prev = steps.Before(step, b, in[1], cs);
        Real* const cs_back = cs_state_grad.data() + b * units;
        Real* const h_back = h_state_grad.data() + b * units;
        for (int64_t j = 0; j < units; ++j) {
          const int64_t n = row * units + j;
          h_back[j] = h_back[j] + h_grad[n];
          cs_back[j] = cs_back[j] + cs_grad[n];
          if (!steps.Counts(step, b)) continue;
          const Real co = v.give_co ? in[13][n] : act.Candidate(cs[n]);
          const Real d_o = o[n] * (one - o[n]) * h_back[j] * co;
          Sum dcs_sum;
          dcs_sum.Add((one - co * co) * h_back[j] * o[n]);
          dcs_sum.Add(cs_back[j]);
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
            wco_grad[j].AddProduct(d_o, cs[n]);
          }
          cs_back[j] = before.Total();
        }
        if (!steps.Counts(step, b)) continue;
        for (int64_t k = 0; k < d.input; ++k) {
          x_grad[row * d.input + k] = DotTransposed(dz, w_x, k);
        }
        for (int64_t k = 0; k < units; ++k) {
          h_back[k] = DotTransposed(dz, w_h, k);
        }
        AddOuter(x.data() + row * d.input, d.input, dz, &w_x_grad);
        AddOuter(steps.Before(step, b, in[2], h), units, dz, &w_h_grad);
        AddOuter(&one, 1, dz, &b_grad);
      }
    }
    return {x_grad,           cs_state_grad,    h_state_grad,
            Totals(w_x_grad), Totals(w_h_grad), Totals(wci_grad),
            Totals(wcf_grad), Totals(wco_grad), Totals(b_grad)};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const LstmVariant v(call.variant);
    const Steps steps(call.dims, v.order);
    const auto mask = steps.MaskBytes();
    Arguments<T> tensors(call);
    LstmSequenceBackwardArgs<T> args;
    args.shape = steps.Shape();
    args.layout = v.layout;
    args.use_peephole = v.options.use_peephole;
    args.mask = mask ? mask->data() : nullptr;
    args.x = tensors.In();
    args.cs_prev = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.wci = tensors.In();
    args.wcf = tensors.In();
    args.wco = tensors.In();
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
    return Functions(static_cast<T*>(nullptr))
        .lstm_sequence_backward(args, *call.host);
  }
};

// It reads activations as given, so it has an identity form as it is.
const bool kAdded =
    AddOp({"LSTMGrad", true, true, kNumOrders, &Backward::Inputs,
           &Backward::Outputs, &Backward::Reduction, &Backward::Reference,
           &CallWithType<Backward>, true, 3, &Backward::Prepare});

}  // namespace
}  // namespace blockrnn::test
