// Defines the equations of one LSTM step, forward and backward. Value is one
// unit of one row: a float, a double or a SIMD vector. A bar marks a
// pre-activation; dv is the gradient of v's pre-activation, cs_grad and h_grad
// those of the outputs.

#ifndef BLOCKRNN_CORE_LSTM_CELL_H_
#define BLOCKRNN_CORE_LSTM_CELL_H_

#include "cc/core/activations.h"
#include "cc/core/portable.h"

namespace blockrnn {

// The diagonal weights from the cell state to three gates; all zero without
// peepholes.
template <class Value>
struct LstmPeepholes {
  Value wci;
  Value wcf;
  Value wco;
};

template <class Value>
struct LstmPreActivations {
  Value i_bar;
  Value ci_bar;
  Value f_bar;
  Value o_bar;
};

template <class Value>
struct LstmStep {
  Value i;
  Value cs;
  Value f;
  Value o;
  Value ci;
  Value co;
  Value h;
};

// [ī c̄ f̄ ō] = [x, h_prev] · w + b
// i  = σ(ī [+ cs_prev ∘ wci])              ci = tanh(c̄)
// f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
// cs = ci ∘ i + cs_prev ∘ f, clipped to ±cell_clip when cell_clip > 0
// o  = σ(ō [+ cs ∘ wco])                    (the new, clipped cs)
// co = tanh(cs)                            h = o ∘ co
//
// kPeephole and kClip are template arguments, not a multiplication by zero: a
// NaN or infinity in the state must not reach a gate that does not read it.
// With kPeephole, use_peephole decides at run time: the CUDA engine has one
// kernel for both.
template <class Activations, bool kPeephole, bool kClip, class Value>
BLOCKRNN_HOST_DEVICE LstmStep<Value> LstmForward(
    const LstmPreActivations<Value>& bar, Value cs_prev,
    const LstmPeepholes<Value>& peephole, Value forget_bias, Value cell_clip,
    bool use_peephole = kPeephole) {
  LstmStep<Value> out;
  Value i_bar = bar.i_bar;
  Value f_bar = bar.f_bar + forget_bias;
  if (kPeephole && use_peephole) {
    i_bar = i_bar + cs_prev * peephole.wci;
    f_bar = f_bar + cs_prev * peephole.wcf;
  }
  out.i = Activations::Gate(i_bar);
  out.ci = Activations::Candidate(bar.ci_bar);
  out.f = Activations::Gate(f_bar);
  out.cs = out.ci * out.i + cs_prev * out.f;
  if constexpr (kClip) {
    out.cs = Clamp(out.cs, Value(0) - cell_clip, cell_clip);
  }
  Value o_bar = bar.o_bar;
  if (kPeephole && use_peephole) o_bar = o_bar + out.cs * peephole.wco;
  out.o = Activations::Gate(o_bar);
  out.co = Activations::Candidate(out.cs);
  out.h = out.o * out.co;
  return out;
}

// The clipped cs of a step again, from its i, ci and f.
template <class Value>
BLOCKRNN_HOST_DEVICE Value LstmNewCs(const LstmStep<Value>& step, Value cs_prev,
                                     bool clips, Value cell_clip) {
  const Value cs = step.ci * step.i + cs_prev * step.f;
  return clips ? Clamp(cs, Value(0) - cell_clip, cell_clip) : cs;
}

template <class Value>
struct LstmStepGrad {
  Value di;
  Value dci;
  Value df;
  Value d_o;  // "do" is a keyword
  Value cs_prev_grad;
};

// do  = o(1−o) ∘ h_grad ∘ co
// dcs = (1−co²) ∘ h_grad ∘ o + cs_grad [+ do ∘ wco]
// dci = (1−ci²) ∘ dcs ∘ i     df = f(1−f) ∘ dcs ∘ cs_prev
// di  = i(1−i) ∘ dcs ∘ ci
// cs_prev_grad = dcs ∘ f [+ di ∘ wci + df ∘ wcf]
//
// The clip is straight-through: its derivative is taken as 1.
template <bool kPeephole, class Value>
BLOCKRNN_HOST_DEVICE LstmStepGrad<Value> LstmBackward(
    const LstmStep<Value>& step, Value cs_prev, Value cs_grad, Value h_grad,
    const LstmPeepholes<Value>& peephole, bool use_peephole = kPeephole) {
  const Value one = Value(1);
  LstmStepGrad<Value> out;
  out.d_o = step.o * (one - step.o) * h_grad * step.co;
  Value dcs = (one - step.co * step.co) * h_grad * step.o + cs_grad;
  if (kPeephole && use_peephole) dcs = dcs + out.d_o * peephole.wco;
  out.dci = (one - step.ci * step.ci) * dcs * step.i;
  out.df = step.f * (one - step.f) * dcs * cs_prev;
  out.di = step.i * (one - step.i) * dcs * step.ci;
  out.cs_prev_grad = dcs * step.f;
  if (kPeephole && use_peephole) {
    out.cs_prev_grad =
        out.cs_prev_grad + out.di * peephole.wci + out.df * peephole.wcf;
  }
  return out;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_LSTM_CELL_H_
