// Defines layer normalisation, and an LSTM and a GRU with it: the equations,
// forward and backward, and the arguments of the engine functions. In the
// equations Value is one element of one row: a float, a double or a SIMD
// vector. What is summed over a row (mean, variance) is summed by the engine.
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

#include <cstdint>

#include "cc/core/activations.h"
#include "cc/core/gate_layout.h"
#include "cc/core/gru_cell.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/portable.h"
#include "cc/core/sequence_args.h"

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

// A sequence of the LSTM. gamma and beta of the norms of x · w_x, of h · w_h
// and of the cell state.
template <class T>
struct LayerNormLstmWeights {
  LstmGateLayout layout = kLstmIfco;
  double epsilon = 1e-3;  // added to the variances
  // Whether h alone is made of the norm of the cell state; else the next step's
  // cell state is, too.
  bool norm_output_only = false;
  const T* cs_prev = nullptr;  // [B, H], the state before the first step
  const T* w_x = nullptr;      // [I, 4H]
  const T* w_h = nullptr;      // [H, 4H]
  const T* b = nullptr;        // [4H]
  const T* gamma_x = nullptr;  // [4H]
  const T* beta_x = nullptr;   // [4H]
  const T* gamma_h = nullptr;  // [4H]
  const T* beta_h = nullptr;   // [4H]
  const T* gamma_c = nullptr;  // [H]
  const T* beta_c = nullptr;   // [H]
};

// The norms of the two GEMMs of a step, of G gates; zeros at masked steps.
template <class Array>
struct NormsSavedArrays {
  Array x_hat = nullptr;  // [steps, batch, G · H], x · w_x normalised
  Array h_hat = nullptr;  // [steps, batch, G · H], h · w_h normalised
  Array rstd = nullptr;  // [steps, batch, 2], 1 / √(variance + epsilon) of both
};

template <class Array>
struct LayerNormLstmSavedArrays : NormsSavedArrays<Array> {
  Array cs = nullptr;  // [steps, batch, H]
};

template <class T>
struct LayerNormLstmForwardArgs : SequenceForwardArgs<T>,
                                  LayerNormLstmWeights<T>,
                                  LayerNormLstmSavedArrays<T*> {
  T* cs_last = nullptr;  // [B, H], the state after the last step
};

template <class T>
struct LayerNormLstmBackwardArgs : SequenceBackwardArgs<T>,
                                   LayerNormLstmWeights<T>,
                                   LayerNormLstmSavedArrays<const T*> {
  using Forward = LayerNormLstmForwardArgs<T>;
  using Weights = LayerNormLstmWeights<T>;
  const T* cs_grad = nullptr;       // [steps, batch, H]; nullptr: zeros
  const T* cs_last_grad = nullptr;  // [B, H]; nullptr: zeros
  T* cs_prev_grad = nullptr;        // [B, H]
  T* w_x_grad = nullptr;            // [I, 4H]; not without w_x
  T* w_h_grad = nullptr;            // [H, 4H]
  T* b_grad = nullptr;              // [4H]
  T* gamma_x_grad = nullptr;        // [4H]
  T* beta_x_grad = nullptr;         // [4H]
  T* gamma_h_grad = nullptr;        // [4H]
  T* beta_h_grad = nullptr;         // [4H]
  T* gamma_c_grad = nullptr;        // [H]
  T* beta_c_grad = nullptr;         // [H]
};

// A sequence of the GRU. gamma and beta of the norms of x · w_x and of h · w_h.
template <class T>
struct LayerNormGruWeights : GruAfterWeights<T> {
  double epsilon = 1e-3;       // added to the variances
  const T* gamma_x = nullptr;  // [3H]
  const T* beta_x = nullptr;   // [3H]
  const T* gamma_h = nullptr;  // [3H]
  const T* beta_h = nullptr;   // [3H]
};

template <class T>
struct LayerNormGruForwardArgs : SequenceForwardArgs<T>,
                                 LayerNormGruWeights<T>,
                                 NormsSavedArrays<T*> {};

template <class T>
struct LayerNormGruBackwardArgs : SequenceBackwardArgs<T>,
                                  LayerNormGruWeights<T>,
                                  NormsSavedArrays<const T*> {
  using Forward = LayerNormGruForwardArgs<T>;
  using Weights = LayerNormGruWeights<T>;
  T* w_x_grad = nullptr;      // [I, 3H]; not without w_x
  T* w_h_grad = nullptr;      // [H, 3H]
  T* b_x_grad = nullptr;      // [3H]
  T* b_h_grad = nullptr;      // [3H]
  T* gamma_x_grad = nullptr;  // [3H]
  T* beta_x_grad = nullptr;   // [3H], equal to b_x_grad
  T* gamma_h_grad = nullptr;  // [3H]
  T* beta_h_grad = nullptr;   // [3H], equal to b_h_grad
};

// f(output of the forward call, input of the backward call, width) for each
// array [steps, batch, width] that a backward call with segments needs besides
// h.
template <class T, class F>
void ForEachSavedArray(LayerNormLstmForwardArgs<T>* forward,
                       LayerNormLstmBackwardArgs<T>* backward, const F& f) {
  const int64_t units = forward->shape.units;
  f(&forward->x_hat, &backward->x_hat, kLstmGates * units);
  f(&forward->h_hat, &backward->h_hat, kLstmGates * units);
  f(&forward->rstd, &backward->rstd, int64_t{2});
  f(&forward->cs, &backward->cs, units);
}

template <class T, class F>
void ForEachSavedArray(LayerNormGruForwardArgs<T>* forward,
                       LayerNormGruBackwardArgs<T>* backward, const F& f) {
  const int64_t units = forward->shape.units;
  f(&forward->x_hat, &backward->x_hat, kGruAfterGates * units);
  f(&forward->h_hat, &backward->h_hat, kGruAfterGates * units);
  f(&forward->rstd, &backward->rstd, int64_t{2});
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_LAYER_NORM_H_
