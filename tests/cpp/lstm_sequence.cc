// Defines the tests' view of the LSTM over a sequence: tensors, reference,
// engine call.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/cpp/identity.h"
#include "tests/cpp/lstm_sequence_variants.h"
#include "tests/cpp/recurrent_dropout.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

struct Forward {
  static std::vector<TensorSpec> Inputs(const Dims& d, int variant) {
    const LstmVariant v(variant);
    const bool peephole = v.options.use_peephole;
    const int64_t width = v.Width(d);
    return {
        {"x", v.StepsOf(d).InputSize()},
        {"cs_prev", d.batch * d.units},
        {"h_prev", d.batch * width},
        {"w_x", d.input * 4 * d.units, Fill::kWeight, !v.order.projected_input},
        {"w_h", width * 4 * d.units, Fill::kWeight},
        {"wci", d.units, Fill::kState, peephole},
        {"wcf", d.units, Fill::kState, peephole},
        {"wco", d.units, Fill::kState, peephole},
        {"b", 4 * d.units},
        {"recurrent_dropout", 4 * d.batch * width, Fill::kGate, v.order.drops},
        {"w_p", width * d.units, Fill::kWeight, v.projects}};
  }

  static std::vector<TensorSpec> Outputs(const Dims& d, int variant) {
    const LstmVariant v(variant);
    const int64_t n = d.steps * d.batch * d.units;
    const int64_t state = d.batch * d.units;
    return {{"i", n, {}, v.WantsGates()},
            {"cs", n, {}, v.WantsGates()},
            {"f", n, {}, v.WantsGates()},
            {"o", n, {}, v.WantsGates()},
            {"ci", n, {}, v.WantsGates()},
            {"co", n, {}, v.WantsCo()},
            {"h", d.steps * d.batch * v.Width(d), {}, v.WantsH()},
            {"cs_last", state, {}, v.WantsLast()},
            {"h_last", d.batch * v.Width(d), {}, v.WantsLast()}};
  }

  static void Prepare(const Dims& d, int variant, bool identity,
                      std::vector<Tensor>* inputs) {
    std::vector<Tensor>& in = *inputs;
    const LstmVariant v(variant);
    const int64_t width = v.Width(d);
    const Steps steps = v.StepsOf(d);
    steps.SpoilPast(steps.InputWidth(), &in[0]);
    CalmRecurrentWeights(d, &in[4]);
    if (!identity) return;
    SparseIntegers(d.input, 4, d.units, false, &in[3]);
    SparseIntegers(width, 4, d.units, true, &in[4]);
    SparseIntegers(width, 1, d.units, false, &in[10]);
    // With biases and peepholes, a second step may grow past what is exact.
    if (d.steps > 1) std::fill(in[8].begin(), in[8].end(), Real(0));
  }

  static int64_t Reduction(const Dims& d) { return d.input + d.units; }

  static std::vector<Tensor> Reference(const Dims& d, int variant,
                                       Activations act,
                                       const std::vector<Tensor>& in) {
    const LstmVariant v(variant);
    const Steps steps = v.StepsOf(d);
    const Tensor &x = in[0], &w_x = in[3], &w_h = in[4], &wci = in[5];
    const Tensor &wcf = in[6], &wco = in[7], &bias = in[8], &w_p = in[10];
    const bool peephole = v.options.use_peephole;
    const int64_t units = d.units;
    const int64_t width = v.Width(d);
    const RecurrentDropout dropout(v.order, in[9], d.batch, width, units);
    const std::size_t n = d.steps * d.batch * units;
    Tensor i(n), cs(n), f(n), o(n), ci(n), co(n), h(d.steps * d.batch * width);
    Tensor cs_state = in[1];
    Tensor h_state = in[2];
    for (int64_t step = 0; step < d.steps; ++step) {
      for (int64_t b = 0; b < d.batch; ++b) {
        if (steps.Past(step, b)) continue;
        const int64_t row = steps.At(step, b);
        Real* const state = h_state.data() + b * width;
        std::vector<Tensor> seen;
        for (int64_t gate = 0; gate < 4; ++gate) {
          seen.push_back(dropout.Seen(gate, b, state));
        }
        Tensor m(units);
        for (int64_t j = 0; j < units; ++j) {
          const int64_t at = row * units + j;
          Real& state_c = cs_state[b * units + j];
          Real c = state_c;
          if (steps.Counts(step, b)) {
            const auto bar = [&](int64_t gate) {
              Sum sum;
              const int64_t column = gate * units + j;
              steps.AddInput(x.data() + row * steps.InputWidth(), w_x,
                             4 * units, column, &sum);
              AddDot(seen[gate].data(), width, w_h, 4 * units, column, &sum);
              sum.Add(bias[column]);
              return sum;
            };
            Sum i_bar = bar(v.i), f_bar = bar(v.f);
            Sum o_bar = bar(v.o);
            f_bar.Add(Real(v.options.forget_bias));
            if (peephole) i_bar.AddProduct(c, wci[j]);
            if (peephole) f_bar.AddProduct(c, wcf[j]);
            i[at] = act.Gate(i_bar.Total());
            ci[at] = act.Candidate(bar(v.ci).Total());
            f[at] = act.Gate(f_bar.Total());
            c = ci[at] * i[at] + c * f[at];
            if (v.options.cell_clip > 0) c = ClipTo(c, v.options.cell_clip);
            if (peephole) o_bar.AddProduct(c, wco[j]);
            o[at] = act.Gate(o_bar.Total());
            co[at] = act.Candidate(c);
            m[j] = o[at] * co[at];
            if (!steps.Keeps(1, step, b, j)) state_c = c;
          }
          cs[at] = state_c;
        }
        for (int64_t k = 0; k < width && steps.Counts(step, b); ++k) {
          if (steps.Keeps(0, step, b, k)) continue;
          state[k] = v.projects ? DotTransposed(m, w_p, k) : m[k];
        }
        std::copy(state, state + width, h.begin() + row * width);
      }
    }
    return {i, cs, f, o, ci, co, h, cs_state, h_state};
  }

  template <class T>
  static cpu::Status Call(const EngineCall& call) {
    const LstmVariant v(call.variant);
    const Steps steps = v.StepsOf(call.dims);
    const SequenceCall sequence(steps);
    const StateDraws of_h(steps, 0, v.Width(call.dims));
    const StateDraws of_cs(steps, 1, call.dims.units);
    Arguments<T> tensors(call);
    LstmSequenceForwardArgs<T> args;
    sequence.Fill(&args);
    args.zoneout_h = of_h.Get();
    args.zoneout_c = of_cs.Get();
    args.layout = v.layout;
    args.options = v.options;
    args.proj = v.projects ? v.Width(call.dims) : 0;
    args.x = tensors.In();
    args.cs_prev = tensors.In();
    args.h_prev = tensors.In();
    args.w_x = tensors.In();
    args.w_h = tensors.In();
    args.wci = tensors.In();
    args.wcf = tensors.In();
    args.wco = tensors.In();
    args.b = tensors.In();
    args.recurrent_dropout = tensors.In();
    args.w_p = tensors.In();
    args.i = tensors.OutIf(v.WantsGates());
    args.cs = tensors.OutIf(v.WantsGates());
    args.f = tensors.OutIf(v.WantsGates());
    args.o = tensors.OutIf(v.WantsGates());
    args.ci = tensors.OutIf(v.WantsGates());
    args.co = tensors.OutIf(v.WantsCo());
    args.h = tensors.OutIf(v.WantsH());
    args.cs_last = tensors.OutIf(v.WantsLast());
    args.h_last = tensors.OutIf(v.WantsLast());
    return RunForward<T>(call, args);
  }
};

const bool kAdded =
    AddOp({"LSTM", false, true, kNumOrders, &Forward::Inputs, &Forward::Outputs,
           &Forward::Reduction, &Forward::Reference, &CallWithType<Forward>,
           true, 2, &Forward::Prepare});

}  // namespace
}  // namespace blockrnn::test
