// Defines the tests' view of LSTMBlockCell and its gradient: tensors,
// reference, engine call.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/cpp/identity.h"
#include "tests/cpp/op.h"

namespace blockrnn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Multiples of ½, so that the identity form stays exact. A clip of 0, below 0
// or NaN is no clip; one of infinity clips nothing.
constexpr LstmOptions kVariants[] = {
    {1.0f, 0.0f, false},       {1.0f, 0.5f, true},  {0.0f, 0.0f, true},
    {-2.5f, 0.5f, false},      {1.0f, kNan, true},  {0.5f, kInfinity, true},
    {1.0f, kInfinity, false},  {0.0f, -1.0f, true}, {1.0f, kNan, false},
    {0.0f, -kInfinity, false}, {1.0f, 3.0f, true},
};

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const bool peephole = kVariants[variant].use_peephole;
    const int64_t n = d.batch * d.units;
    return {{"x", d.batch * d.input},
            {"cs_prev", n},
            {"h_prev", n},
            {"w", (d.input + d.units) * 4 * d.units, Fill::kWeight},
            {"wci", d.units, Fill::kState, peephole},
            {"wcf", d.units, Fill::kState, peephole},
            {"wco", d.units, Fill::kState, peephole},
            {"b", 4 * d.units}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int) {
    const int64_t n = d.batch * d.units;
    return {{"i", n},  {"cs", n}, {"f", n}, {"o", n},
            {"ci", n}, {"co", n}, {"h", n}};
  }

  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  // The columns of w and b are the gates i, ci, f, o, H each.
  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const LstmOptions& options = kVariants[variant];
    const Tensor &x = in[0], &cs_prev = in[1], &h_prev = in[2], &w = in[3];
    const Tensor &wci = in[4], &wcf = in[5], &wco = in[6], &bias = in[7];
    const int64_t input = d.input;
    const int64_t units = d.units;
    Tensor i(cs_prev.size()), cs(cs_prev.size()), f(cs_prev.size());
    Tensor o(cs_prev.size()), ci(cs_prev.size()), co(cs_prev.size());
    Tensor h(cs_prev.size());
    for (int64_t b = 0; b < d.batch; ++b) {
      for (int64_t j = 0; j < units; ++j) {
        Sum bar[4];
        for (int64_t gate = 0; gate < 4; ++gate) {
          const int64_t column = gate * units + j;
          for (int64_t k = 0; k < input; ++k) {
            bar[gate].AddProduct(x[b * input + k], w[k * 4 * units + column]);
          }
          for (int64_t k = 0; k < units; ++k) {
            bar[gate].AddProduct(h_prev[b * units + k],
                                 w[(input + k) * 4 * units + column]);
          }
          bar[gate].Add(bias[column]);
        }
        bar[2].Add(Real(options.forget_bias));
        const int64_t n = b * units + j;
        if (options.use_peephole) {
          bar[0].AddProduct(cs_prev[n], wci[j]);
          bar[2].AddProduct(cs_prev[n], wcf[j]);
        }
        i[n] = act.Gate(bar[0].Total());
        ci[n] = act.Candidate(bar[1].Total());
        f[n] = act.Gate(bar[2].Total());
        cs[n] = ci[n] * i[n] + cs_prev[n] * f[n];
        if (options.cell_clip > 0) cs[n] = ClipTo(cs[n], options.cell_clip);
        if (options.use_peephole) bar[3].AddProduct(cs[n], wco[j]);
        o[n] = act.Gate(bar[3].Total());
        co[n] = act.Candidate(cs[n]);
        h[n] = o[n] * co[n];
      }
    }
    return {i, cs, f, o, ci, co, h};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    Arguments<T> tensors(call);
    LstmCellForwardArgs<T> args;
    args.dims = {call.dims.batch, call.dims.input, call.dims.units};
    args.options = kVariants[call.variant];
    args.x = tensors.In();
    args.cs_prev = tensors.In();
    args.h_prev = tensors.In();
    args.w = tensors.In();
    args.wci = tensors.In();
    args.wcf = tensors.In();
    args.wco = tensors.In();
    args.b = tensors.In();
    args.i = tensors.Out();
    args.cs = tensors.Out();
    args.f = tensors.Out();
    args.o = tensors.Out();
    args.ci = tensors.Out();
    args.co = tensors.Out();
    args.h = tensors.Out();
    return RunForward<T>(call, args);
  }
};

// Variant 1 has peepholes.
struct Backward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const bool peephole = variant == 1;
    const int64_t n = d.batch * d.units;
    return {{"cs_prev", n},
            {"wci", d.units, Fill::kState, peephole},
            {"wcf", d.units, Fill::kState, peephole},
            {"wco", d.units, Fill::kState, peephole},
            {"i", n, Fill::kGate},
            {"cs", n},
            {"f", n, Fill::kGate},
            {"o", n, Fill::kGate},
            {"ci", n},
            {"co", n},
            {"cs_grad", n},
            {"h_grad", n}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const bool peephole = variant == 1;
    const int64_t n = d.batch * d.units;
    return {{"cs_prev_grad", n},
            {"dicfo", 4 * n},
            {"wci_grad", d.units, Fill::kState, peephole},
            {"wcf_grad", d.units, Fill::kState, peephole},
            {"wco_grad", d.units, Fill::kState, peephole}};
  }

  // The peephole gradients are sums over the batch.
  static int64_t Reduction(const Dims& d) { return d.batch; }

  static std::vector<Tensor> Reference(const Dims& d, int variant, Activations,
                                       const std::vector<Tensor>& in) {
    const bool peephole = variant == 1;
    const Tensor &cs_prev = in[0], &wci = in[1], &wcf = in[2], &wco = in[3];
    const Tensor &i = in[4], &cs = in[5], &f = in[6], &o = in[7], &ci = in[8];
    const Tensor &co = in[9], &cs_grad = in[10], &h_grad = in[11];
    const int64_t units = d.units;
    const Real one(1);
    Tensor cs_prev_grad(cs_prev.size()), dicfo(4 * cs_prev.size());
    Tensor wci_grad(units), wcf_grad(units), wco_grad(units);
    for (int64_t j = 0; j < units; ++j) {
      Sum wci_sum, wcf_sum, wco_sum;
      for (int64_t b = 0; b < d.batch; ++b) {
        const int64_t n = b * units + j;
        const Real d_o = o[n] * (one - o[n]) * h_grad[n] * co[n];
        Sum dcs_sum;
        dcs_sum.Add((one - co[n] * co[n]) * h_grad[n] * o[n]);
        dcs_sum.Add(cs_grad[n]);
        if (peephole) dcs_sum.AddProduct(d_o, wco[j]);
        const Real dcs = dcs_sum.Total();
        const Real di = i[n] * (one - i[n]) * dcs * ci[n];
        const Real dci = (one - ci[n] * ci[n]) * dcs * i[n];
        const Real df = f[n] * (one - f[n]) * dcs * cs_prev[n];
        const Real gates[4] = {di, dci, df, d_o};
        for (int64_t gate = 0; gate < 4; ++gate) {
          dicfo[(b * 4 + gate) * units + j] = gates[gate];
        }
        Sum previous;
        previous.AddProduct(dcs, f[n]);
        if (peephole) {
          previous.AddProduct(di, wci[j]);
          previous.AddProduct(df, wcf[j]);
          wci_sum.AddProduct(di, cs_prev[n]);
          wcf_sum.AddProduct(df, cs_prev[n]);
          wco_sum.AddProduct(d_o, cs[n]);
        }
        cs_prev_grad[n] = previous.Total();
      }
      wci_grad[j] = wci_sum.Total();
      wcf_grad[j] = wcf_sum.Total();
      wco_grad[j] = wco_sum.Total();
    }
    return {cs_prev_grad, dicfo, wci_grad, wcf_grad, wco_grad};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    Arguments<T> tensors(call);
    LstmCellBackwardArgs<T> args;
    args.dims = {call.dims.batch, call.dims.input, call.dims.units};
    args.options.use_peephole = call.variant == 1;
    args.cs_prev = tensors.In();
    args.wci = tensors.In();
    args.wcf = tensors.In();
    args.wco = tensors.In();
    args.i = tensors.In();
    args.cs = tensors.In();
    args.f = tensors.In();
    args.o = tensors.In();
    args.ci = tensors.In();
    args.co = tensors.In();
    args.cs_grad = tensors.In();
    args.h_grad = tensors.In();
    args.cs_prev_grad = tensors.Out();
    args.dicfo = tensors.Out();
    args.wci_grad = tensors.Out();
    args.wcf_grad = tensors.Out();
    args.wco_grad = tensors.Out();
    return Functions(static_cast<T*>(nullptr)).Run(args, *call.host);
  }
};

constexpr int kNumVariants = sizeof(kVariants) / sizeof(kVariants[0]);

// The backward reads activations as given, so it has an identity form as it is.
const bool kForward =
    AddOp({"LSTMBlockCell", false, true, kNumVariants, &Forward::Inputs,
           &Forward::Outputs, &Forward::Reduction, &Forward::Reference,
           &CallWithType<Forward>});
const bool kBackward = AddOp(
    {"LSTMBlockCellGrad", true, true, 2, &Backward::Inputs, &Backward::Outputs,
     &Backward::Reduction, &Backward::Reference, &CallWithType<Backward>});

}  // namespace
}  // namespace blockrnn::test
