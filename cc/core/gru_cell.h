// Defines the GRU in both forms, with the reset before the GEMM with the state
// and after it: the equations of one step, forward and backward, and the
// arguments of its engine functions. In the equations Value is one
// unit of one row: a float, a double or a SIMD vector. A bar marks a
// pre-activation; d_v is the gradient of v.

#ifndef BLOCKRNN_CORE_GRU_CELL_H_
#define BLOCKRNN_CORE_GRU_CELL_H_

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/element_pointer.h"
#include "cc/core/gate_layout.h"
#include "cc/core/portable.h"
#include "cc/core/sequence_args.h"

namespace blockrnn {

template <class Value>
struct GruGates {
  Value r;
  Value u;
  Value h_prev_r;  // h_prev ∘ r, the state half of the candidate's input
};

// [r̄ ū] = [x, h_prev] · w_ru + b_ru     r = σ(r̄)     u = σ(ū)
template <class Activations, class Value>
BLOCKRNN_HOST_DEVICE GruGates<Value> GruForwardGates(
    Value r_bar, Value u_bar, Value h_prev,
    const Activations& activations = Activations()) {
  GruGates<Value> out;
  out.r = activations.Gate(r_bar);
  out.u = activations.Gate(u_bar);
  out.h_prev_r = h_prev * out.r;
  return out;
}

template <class Value>
struct GruState {
  Value c;
  Value h;
};

// c̄ = [x, h_prev ∘ r] · w_c + b_c     c = tanh(c̄)
// h = u ∘ h_prev + (1 − u) ∘ c
template <class Activations, class Value>
BLOCKRNN_HOST_DEVICE GruState<Value> GruForwardState(
    Value c_bar, Value u, Value h_prev,
    const Activations& activations = Activations()) {
  GruState<Value> out;
  out.c = activations.Candidate(c_bar);
  out.h = u * h_prev + (Value(1) - u) * out.c;
  return out;
}

template <class Value>
struct GruStateGrad {
  Value d_c_bar;
  Value d_u_bar;
};

// d_c_bar = d_h ∘ (1 − u) ∘ (1 − c∘c)
// d_u_bar = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
template <class Value>
BLOCKRNN_HOST_DEVICE GruStateGrad<Value> GruBackwardState(Value d_h, Value u,
                                                          Value c,
                                                          Value h_prev) {
  const Value one_minus_u = Value(1) - u;
  GruStateGrad<Value> out;
  out.d_c_bar = d_h * one_minus_u * (Value(1) - c * c);
  out.d_u_bar = d_h * (h_prev - c) * u * one_minus_u;
  return out;
}

// d_r_bar = d_hr ∘ h_prev ∘ r ∘ (1 − r)     where [dx₂, d_hr] = d_c_bar · w_cᵀ
template <class Value>
BLOCKRNN_HOST_DEVICE Value GruBackwardReset(Value d_hr, Value h_prev, Value r) {
  return d_hr * h_prev * r * (Value(1) - r);
}

// d_h_prev = dh₁ + d_hr ∘ r + d_h ∘ u
//     where [dx₁, dh₁] = [d_r_bar d_u_bar] · w_ruᵀ
template <class Value>
BLOCKRNN_HOST_DEVICE Value GruBackwardPrevious(Value dh1, Value d_hr, Value r,
                                               Value d_h, Value u) {
  return dh1 + d_hr * r + d_h * u;
}

// Reset after the GEMM. What it shares with the other form is above.
//
// r = σ(r̄)   u = σ(ū)   c = tanh(x̄ + r ∘ hc)   h = u ∘ h_prev + (1 − u) ∘ c
//     where x̄ = x · W_c + b_x,c and hc = h_prev · R_c + b_h,c
template <class Value>
struct GruAfterStep {
  Value r;
  Value u;
  Value c;
  Value h;
};

template <class Activations, class Value>
BLOCKRNN_HOST_DEVICE GruAfterStep<Value> GruAfterForward(
    Value r_bar, Value u_bar, Value x_bar, Value hc, Value h_prev,
    const Activations& activations = Activations()) {
  GruAfterStep<Value> out;
  out.r = activations.Gate(r_bar);
  out.u = activations.Gate(u_bar);
  const GruState<Value> state = GruForwardState<Activations>(
      x_bar + out.r * hc, out.u, h_prev, activations);
  out.c = state.c;
  out.h = state.h;
  return out;
}

template <class Value>
struct GruAfterStepGrad {
  Value d_r_bar;
  Value d_u_bar;
  Value d_c_bar;
  Value d_hc;
  Value d_h_prev;  // what does not come through the GEMM with the state
};

// d_c_bar, d_u_bar as above     d_hc = d_c_bar ∘ r
// d_r_bar = d_c_bar ∘ hc ∘ r ∘ (1 − r)     d_h_prev = d_h ∘ u + …
template <class Value>
BLOCKRNN_HOST_DEVICE GruAfterStepGrad<Value> GruAfterBackward(
    const GruAfterStep<Value>& step, Value hc, Value h_prev, Value d_h) {
  const GruStateGrad<Value> state =
      GruBackwardState(d_h, step.u, step.c, h_prev);
  GruAfterStepGrad<Value> out;
  out.d_u_bar = state.d_u_bar;
  out.d_c_bar = state.d_c_bar;
  out.d_hc = state.d_c_bar * step.r;
  out.d_r_bar = GruBackwardReset(state.d_c_bar, hc, step.r);
  out.d_h_prev = d_h * step.u;
  return out;
}

// GRUBlockCell.
template <class T>
struct GruCellForwardArgs {
  CellDims dims;
  const T* x = nullptr;       // [B, I]
  const T* h_prev = nullptr;  // [B, H]
  const T* w_ru = nullptr;    // [I+H, 2H], gates r, u
  const T* w_c = nullptr;     // [I+H, H]
  const T* b_ru = nullptr;    // [2H]
  const T* b_c = nullptr;     // [H]
  T* r = nullptr;             // [B, H]
  T* u = nullptr;             // [B, H]
  T* c = nullptr;             // [B, H]
  T* h = nullptr;             // [B, H]
};

// GRUBlockCellGrad. x and the biases are not read by the equations.
template <class T>
struct GruCellBackwardArgs {
  CellDims dims;
  const T* h_prev = nullptr;   // [B, H]
  const T* w_ru = nullptr;     // [I+H, 2H], gates r, u
  const T* w_c = nullptr;      // [I+H, H]
  const T* r = nullptr;        // [B, H]
  const T* u = nullptr;        // [B, H]
  const T* c = nullptr;        // [B, H]
  const T* d_h = nullptr;      // [B, H]
  T* d_x = nullptr;            // [B, I]
  T* d_h_prev = nullptr;       // [B, H]
  T* d_c_bar = nullptr;        // [B, H]
  T* d_r_bar_u_bar = nullptr;  // [B, 2H], gates r, u
};

// A sequence with the reset before the GEMM. The candidate's gate is the last
// in every layout. It may have arrays of its own, as in BlockGRU: then there
// are only the columns of r and u in the others.
template <class T>
struct GruWeights {
  GruGateLayout layout = kGruRuc;
  const T* w_x = nullptr;    // [I, 3H]
  const T* w_h = nullptr;    // [H, 3H]
  const T* b = nullptr;      // [3H]
  const T* w_c_x = nullptr;  // [I, H], or nullptr
  const T* w_c_h = nullptr;  // [H, H], or nullptr
  const T* b_c = nullptr;    // [H], or nullptr
};

// The columns of r and u, and those of the candidate.
template <class P>
struct GruColumns {
  P* ru;          // [rows, 2H]
  P* c;           // [rows, H]
  int64_t ld_ru;  // elements from row to row
  int64_t ld_c;
};

// The columns of r, u and those of c in `all`; where `c` is not nullptr, it is
// an array of its own, and `all` has the columns of r, u alone.
template <class P>
GruColumns<P> GruColumnsOf(P* all, P* c, int64_t units) {
  const int64_t ru = kGruGates * units;
  if (c != nullptr) return {all, c, ru, units};
  return {all, PointerAt(all, ru), ru + units, ru + units};
}

template <class Array>
struct GruSavedArrays {
  Array r = nullptr;  // [steps, batch, H]
  Array u = nullptr;  // [steps, batch, H]
  Array c = nullptr;  // [steps, batch, H]
};

template <class T>
struct GruSequenceForwardArgs : SequenceForwardArgs<T>,
                                GruWeights<T>,
                                GruSavedArrays<T*> {
  ActivationOptions activations;  // on the CPU, in float, and of no gradient
};

template <class T>
struct GruSequenceBackwardArgs : SequenceBackwardArgs<T>,
                                 GruWeights<T>,
                                 GruSavedArrays<const T*> {
  using Forward = GruSequenceForwardArgs<T>;
  using Weights = GruWeights<T>;
  T* w_x_grad = nullptr;  // [I, 3H]; not without w_x
  T* w_h_grad = nullptr;  // [H, 3H]
  T* b_grad = nullptr;    // [3H]
  // Not nullptr where the candidate has arrays of its own.
  T* w_c_x_grad = nullptr;  // [I, H]
  T* w_c_h_grad = nullptr;  // [H, H]
  T* b_c_grad = nullptr;    // [H]
};

// A sequence with the reset after the GEMM, as Keras' default and cuDNN's. The
// candidate's gate is the last in every layout.
template <class T>
struct GruAfterWeights {
  GruGateLayout layout = kGruRuc;
  const T* w_x = nullptr;  // [I, 3H]
  const T* w_h = nullptr;  // [H, 3H]
  const T* b_x = nullptr;  // [3H]
  const T* b_h = nullptr;  // [3H]
};

template <class Array>
struct GruAfterSavedArrays : GruSavedArrays<Array> {
  Array hc = nullptr;  // [steps, batch, H], h_prev · R_c + b_h,c
};

template <class T>
struct GruAfterSequenceForwardArgs : SequenceForwardArgs<T>,
                                     GruAfterWeights<T>,
                                     GruAfterSavedArrays<T*> {
  ActivationOptions activations;  // on the CPU, in float, and of no gradient
};

template <class T>
struct GruAfterSequenceBackwardArgs : SequenceBackwardArgs<T>,
                                      GruAfterWeights<T>,
                                      GruAfterSavedArrays<const T*> {
  using Forward = GruAfterSequenceForwardArgs<T>;
  using Weights = GruAfterWeights<T>;
  T* w_x_grad = nullptr;  // [I, 3H]; not without w_x
  T* w_h_grad = nullptr;  // [H, 3H]
  T* b_x_grad = nullptr;  // [3H]
  T* b_h_grad = nullptr;  // [3H]
};

// f(output of the forward call, input of the backward call, width) for each
// array [steps, batch, width] that a backward call with segments needs besides
// h.
template <class T, class F>
void ForEachSavedArray(GruSequenceForwardArgs<T>* forward,
                       GruSequenceBackwardArgs<T>* backward, const F& f) {
  const int64_t units = forward->shape.units;
  f(&forward->r, &backward->r, units);
  f(&forward->u, &backward->u, units);
  f(&forward->c, &backward->c, units);
}

template <class T, class F>
void ForEachSavedArray(GruAfterSequenceForwardArgs<T>* forward,
                       GruAfterSequenceBackwardArgs<T>* backward, const F& f) {
  const int64_t units = forward->shape.units;
  f(&forward->r, &backward->r, units);
  f(&forward->u, &backward->u, units);
  f(&forward->c, &backward->c, units);
  f(&forward->hc, &backward->hc, units);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_GRU_CELL_H_
