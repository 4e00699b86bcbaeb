// Defines the equations of layer normalisation, and of an LSTM and a GRU with
// it, forward and backward. Value is one element of one row: a float, a double
// or a SIMD vector. What is summed over a row (mean, variance) is summed by the
// engine.
//
//   norm(s) = gamma ∘ s_hat + beta
//   s_hat   = (s − mean(s)) · rstd      rstd = 1 / √(var(s) + epsilon)
//
// var is the mean of (s − mean(s))². With d the gradient of norm(s):
//
//   gamma_grad = Σ d ∘ s_hat            beta_grad = Σ d
//   s_grad = rstd · (g − mean(g) − s_hat · mean(g ∘ s_hat))    g = gamma ∘ d

#ifndef BLOCKRNN_CORE_LAYER_NORM_H_
#define BLOCKRNN_CORE_LAYER_NORM_H_

#include "cc/core/activations.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/portable.h"

namespace blockrnn {

// s_grad, given g and the means of g and g ∘ s_hat over the row.
template <class Value>
BLOCKRNN_HOST_DEVICE Value LayerNormBackward(Value g, Value s_hat, Value mean_g,
                                             Value mean_g_s_hat, Value rstd) {
  return rstd * (g - mean_g - s_hat * mean_g_s_hat);
}

// [ī f̄ c̄ ō] = norm_x(x · w_x) + norm_h(h_prev · w_h) + b
// i = σ(ī)   f = σ(f̄)   o = σ(ō)   ci = tanh(c̄)
// c = ci ∘ i + cs_prev ∘ f
// cs = norm_c(c)                            h = o ∘ tanh(cs)
// or, with norm_output_only, the form of Ba et al. 2016 (arXiv:1607.06450):
// cs = c                                    h = o ∘ tanh(norm_c(c))
template <class Value>
struct LayerNormLstmGates {
  Value i;
  Value f;
  Value o;
  Value ci;
  Value c;  // before its norm
};

template <class Activations, class Value>
BLOCKRNN_HOST_DEVICE LayerNormLstmGates<Value> LayerNormLstmForward(
    const LstmPreActivations<Value>& bar, Value cs_prev) {
  LayerNormLstmGates<Value> out;
  out.i = Activations::Gate(bar.i_bar);
  out.f = Activations::Gate(bar.f_bar);
  out.o = Activations::Gate(bar.o_bar);
  out.ci = Activations::Candidate(bar.ci_bar);
  out.c = out.ci * out.i + cs_prev * out.f;
  return out;
}

// h = o ∘ co with co = tanh(norm_c(c)); d_o is the gradient of ō, dn that of
// norm_c(c), and n_grad what reaches this from elsewhere: cs_grad, unless
// norm_output_only.
// do = o(1−o) ∘ h_grad ∘ co
// dn = (1−co²) ∘ h_grad ∘ o + n_grad
template <class Value>
struct LayerNormLstmOutputGrad {
  Value d_o;
  Value dn;
};

template <class Value>
BLOCKRNN_HOST_DEVICE LayerNormLstmOutputGrad<Value> LayerNormLstmOutputBackward(
    Value o, Value co, Value n_grad, Value h_grad) {
  const Value one = Value(1);
  return {o * (one - o) * h_grad * co, (one - co * co) * h_grad * o + n_grad};
}

// dci = (1−ci²) ∘ dc ∘ i      df = f(1−f) ∘ dc ∘ cs_prev
// di  = i(1−i) ∘ dc ∘ ci      cs_prev_grad = dc ∘ f
// dc is the gradient of c, before its norm: that of the norm, and with
// norm_output_only cs_grad.
template <class Value>
struct LayerNormLstmGateGrad {
  Value di;
  Value df;
  Value dci;
  Value cs_prev_grad;
};

template <class Value>
BLOCKRNN_HOST_DEVICE LayerNormLstmGateGrad<Value> LayerNormLstmGateBackward(
    Value i, Value f, Value ci, Value cs_prev, Value dc) {
  const Value one = Value(1);
  return {i * (one - i) * dc * ci, f * (one - f) * dc * cs_prev,
          (one - ci * ci) * dc * i, dc * f};
}

// The GRU's gates are those of cc/core/gru_cell.h with the reset after the
// GEMM:
//
// [r̄ ū c̄] = norm_x(x · w_x) + b_x        [r̂ û hc] = norm_h(h_prev · w_h) + b_h
// GruAfterForward(r̄ + r̂, ū + û, c̄, hc, h_prev) and GruAfterBackward, of which
// [d_r_bar d_u_bar d_c_bar] is the gradient behind norm_x, of b_x and of
// beta_x, and [d_r_bar d_u_bar d_hc] that behind norm_h, of b_h and of beta_h.

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_LAYER_NORM_H_
