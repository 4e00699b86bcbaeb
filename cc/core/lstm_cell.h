// Defines the LSTM: the equations of one step, forward and backward, and the
// arguments of its engine functions. In the equations Value is one unit of one
// row: a float, a double or a SIMD vector. A bar marks a
// pre-activation; dv is the gradient of v's pre-activation, cs_grad and h_grad
// those of the outputs.

#ifndef BLOCKRNN_CORE_LSTM_CELL_H_
#define BLOCKRNN_CORE_LSTM_CELL_H_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/portable.h"
#include "cc/core/sequence_args.h"

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
    bool use_peephole = kPeephole,
    const Activations& activations = Activations()) {
  LstmStep<Value> out;
  Value i_bar = bar.i_bar;
  Value f_bar = bar.f_bar + forget_bias;
  if (kPeephole && use_peephole) {
    i_bar = i_bar + cs_prev * peephole.wci;
    f_bar = f_bar + cs_prev * peephole.wcf;
  }
  out.i = activations.Gate(i_bar);
  out.ci = activations.Candidate(bar.ci_bar);
  out.f = activations.Gate(f_bar);
  out.cs = out.ci * out.i + cs_prev * out.f;
  if constexpr (kClip) {
    out.cs = Clamp(out.cs, Value(0) - cell_clip, cell_clip);
  }
  Value o_bar = bar.o_bar;
  if (kPeephole && use_peephole) o_bar = o_bar + out.cs * peephole.wco;
  out.o = activations.Gate(o_bar);
  out.co = activations.Candidate(out.cs);
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

struct LstmOptions {
  double forget_bias = 0;
  double cell_clip = 0;  // no clip unless > 0
  bool use_peephole = false;
};

// LSTMBlockCell.
template <class T>
struct LstmCellForwardArgs {
  CellDims dims;
  LstmOptions options;
  const T* x = nullptr;        // [B, I]
  const T* cs_prev = nullptr;  // [B, H]
  const T* h_prev = nullptr;   // [B, H]
  const T* w = nullptr;        // [I+H, 4H], gates i, ci, f, o
  const T* wci = nullptr;      // [H]; read only with use_peephole
  const T* wcf = nullptr;      // [H]; read only with use_peephole
  const T* wco = nullptr;      // [H]; read only with use_peephole
  const T* b = nullptr;        // [4H]
  T* i = nullptr;              // [B, H]
  T* cs = nullptr;             // [B, H]
  T* f = nullptr;              // [B, H]
  T* o = nullptr;              // [B, H]
  T* ci = nullptr;             // [B, H]
  T* co = nullptr;             // [B, H]
  T* h = nullptr;              // [B, H]
};

// LSTMBlockCellGrad. x, h_prev, w and b are not read by the equations.
// The peephole gradients are written only with use_peephole.
template <class T>
struct LstmCellBackwardArgs {
  CellDims dims;
  LstmOptions options;         // use_peephole alone is read
  const T* cs_prev = nullptr;  // [B, H]
  const T* wci = nullptr;      // [H]; read only with use_peephole
  const T* wcf = nullptr;      // [H]; read only with use_peephole
  const T* wco = nullptr;      // [H]; read only with use_peephole
  const T* i = nullptr;        // [B, H]
  const T* cs = nullptr;       // [B, H]
  const T* f = nullptr;        // [B, H]
  const T* o = nullptr;        // [B, H]
  const T* ci = nullptr;       // [B, H]
  const T* co = nullptr;       // [B, H]
  const T* cs_grad = nullptr;  // [B, H]
  const T* h_grad = nullptr;   // [B, H]
  T* cs_prev_grad = nullptr;   // [B, H]
  T* dicfo = nullptr;          // [B, 4H], gates i, ci, f, o
  T* wci_grad = nullptr;       // [H]
  T* wcf_grad = nullptr;       // [H]
  T* wco_grad = nullptr;       // [H]
};

// A sequence: the equations above, step after step. With a projection,
// h = w_p · (o ∘ tanh(cs)), and P is its size; without, P is H.
template <class T>
struct LstmWeights {
  LstmGateLayout layout = kLstmIcfo;
  LstmOptions options;
  Zoneout zoneout_c;           // of cs, W = H; h is made of cs before it, and
                               // co is not saved
  const T* cs_prev = nullptr;  // [B, H], the state before the first step
  const T* w_x = nullptr;      // [I, 4H]
  const T* w_h = nullptr;      // [P, 4H]
  int64_t proj = 0;            // P where there is a projection, else 0
  const T* w_p = nullptr;      // [P, H]; read only with one
  const T* wci = nullptr;      // [H]; read only with use_peephole
  const T* wcf = nullptr;      // [H]; read only with use_peephole
  const T* wco = nullptr;      // [H]; read only with use_peephole
  const T* b = nullptr;        // [4H]
  const T* b_h = nullptr;      // [4H], added to b; nullptr: zeros
};

// Array is T* in a forward call, const T* in a backward call.
template <class Array>
struct LstmSavedArrays {
  Array i = nullptr;   // [steps, batch, H]
  Array cs = nullptr;  // [steps, batch, H]
  Array f = nullptr;   // [steps, batch, H]
  Array o = nullptr;   // [steps, batch, H]
  Array ci = nullptr;  // [steps, batch, H]
  Array co = nullptr;  // [steps, batch, H]; backward, nullptr: tanh(cs)
};

template <class T>
struct LstmSequenceForwardArgs : SequenceForwardArgs<T>,
                                 LstmWeights<T>,
                                 LstmSavedArrays<T*> {
  ActivationOptions activations;  // on the CPU, in float, and of no gradient
  T* cs_last = nullptr;           // [B, H], the state after the last step
};

template <class T>
struct LstmSequenceBackwardArgs : SequenceBackwardArgs<T>,
                                  LstmWeights<T>,
                                  LstmSavedArrays<const T*> {
  using Forward = LstmSequenceForwardArgs<T>;
  using Weights = LstmWeights<T>;
  const T* cs_grad = nullptr;       // [steps, batch, H]; nullptr: zeros
  const T* cs_last_grad = nullptr;  // [B, H]; nullptr: zeros
  T* cs_prev_grad = nullptr;        // [B, H]
  T* w_x_grad = nullptr;            // [I, 4H]; not without w_x
  T* w_h_grad = nullptr;            // [P, 4H]
  T* w_p_grad = nullptr;            // [P, H]; written only with a projection
  T* wci_grad = nullptr;            // [H]; written only with use_peephole
  T* wcf_grad = nullptr;            // [H]; written only with use_peephole
  T* wco_grad = nullptr;            // [H]; written only with use_peephole
  T* b_grad = nullptr;              // [4H]
};

// f(output of the forward call, input of the backward call, width) for each
// array [steps, batch, width] that a backward call with segments needs besides
// h.
template <class T, class F>
void ForEachSavedArray(LstmSequenceForwardArgs<T>* forward,
                       LstmSequenceBackwardArgs<T>* backward, const F& f) {
  const int64_t units = forward->shape.units;
  f(&forward->i, &backward->i, units);
  f(&forward->cs, &backward->cs, units);
  f(&forward->f, &backward->f, units);
  f(&forward->o, &backward->o, units);
  f(&forward->ci, &backward->ci, units);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_LSTM_CELL_H_
