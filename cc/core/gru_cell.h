// Owns the equations of one GRU step, reset before the product, forward beside
// backward. Value is one unit of one row: a float, a double or a SIMD vector.
// A bar marks a pre-activation; d_v is the gradient of v.

#ifndef BLOCKRNN_CORE_GRU_CELL_H_
#define BLOCKRNN_CORE_GRU_CELL_H_

#include "cc/core/portable.h"

namespace blockrnn {

template <class Value>
struct GruGates {
  Value r;
  Value u;
  Value h_prev_r;  // h_prev ∘ r, the state half of the candidate's input
};

// [r̄ ū] = [x, h_prev] · w_ru + b_ru     r = σ(r̄)     u = σ(ū)
template <class Activations, class Value>
BLOCKRNN_HOST_DEVICE GruGates<Value> GruForwardGates(Value r_bar, Value u_bar,
                                                     Value h_prev) {
  GruGates<Value> out;
  out.r = Activations::Gate(r_bar);
  out.u = Activations::Gate(u_bar);
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
BLOCKRNN_HOST_DEVICE GruState<Value> GruForwardState(Value c_bar, Value u,
                                                     Value h_prev) {
  GruState<Value> out;
  out.c = Activations::Candidate(c_bar);
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

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_GRU_CELL_H_
