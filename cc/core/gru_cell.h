// Defines the equations of one GRU step, forward and backward, in both forms:
// with the reset before the GEMM with the state, and after it. Value is one
// unit of one row: a float, a double or a SIMD vector. A bar marks a
// pre-activation; d_v is the gradient of v.

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
BLOCKRNN_HOST_DEVICE GruAfterStep<Value> GruAfterForward(Value r_bar,
                                                         Value u_bar,
                                                         Value x_bar, Value hc,
                                                         Value h_prev) {
  GruAfterStep<Value> out;
  out.r = Activations::Gate(r_bar);
  out.u = Activations::Gate(u_bar);
  const GruState<Value> state =
      GruForwardState<Activations>(x_bar + out.r * hc, out.u, h_prev);
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

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_GRU_CELL_H_
