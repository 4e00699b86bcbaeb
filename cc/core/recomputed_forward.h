// Defines how a backward call with spans (cc/core/sequence_args.h) runs the
// forward pass again: the arguments of that forward call, and which arrays it
// saves for the backward call to read.

#ifndef BLOCKRNN_CORE_RECOMPUTED_FORWARD_H_
#define BLOCKRNN_CORE_RECOMPUTED_FORWARD_H_

#include "cc/core/sequence_args.h"

namespace blockrnn {

// The forward call without its outputs.
template <class T>
LstmSequenceForwardArgs<T> RecomputedForward(
    const LstmSequenceBackwardArgs<T>& args) {
  LstmSequenceForwardArgs<T> forward;
  static_cast<SequenceInputs<T>&>(forward) = args;
  forward.layout = args.layout;
  forward.options = args.options;
  forward.options.use_peephole = args.use_peephole;
  forward.zoneout_c = args.zoneout_c;
  forward.cs_prev = args.cs_prev;
  forward.w_x = args.w_x;
  forward.w_h = args.w_h;
  forward.proj = args.proj;
  forward.w_p = args.w_p;
  forward.wci = args.wci;
  forward.wcf = args.wcf;
  forward.wco = args.wco;
  forward.b = args.b;
  return forward;
}

template <class T>
GruSequenceForwardArgs<T> RecomputedForward(
    const GruSequenceBackwardArgs<T>& args) {
  GruSequenceForwardArgs<T> forward;
  static_cast<SequenceInputs<T>&>(forward) = args;
  forward.w_ru_x = args.w_ru_x;
  forward.w_ru_h = args.w_ru_h;
  forward.w_c_x = args.w_c_x;
  forward.w_c_h = args.w_c_h;
  forward.b_ru = args.b_ru;
  forward.b_c = args.b_c;
  return forward;
}

template <class T>
GruAfterSequenceForwardArgs<T> RecomputedForward(
    const GruAfterSequenceBackwardArgs<T>& args) {
  GruAfterSequenceForwardArgs<T> forward;
  static_cast<SequenceInputs<T>&>(forward) = args;
  forward.layout = args.layout;
  forward.w_x = args.w_x;
  forward.w_h = args.w_h;
  forward.b_x = args.b_x;
  forward.b_h = args.b_h;
  return forward;
}

template <class T>
LayerNormLstmForwardArgs<T> RecomputedForward(
    const LayerNormLstmBackwardArgs<T>& args) {
  LayerNormLstmForwardArgs<T> forward;
  static_cast<SequenceInputs<T>&>(forward) = args;
  forward.layout = args.layout;
  forward.epsilon = args.epsilon;
  forward.norm_output_only = args.norm_output_only;
  forward.cs_prev = args.cs_prev;
  forward.w_x = args.w_x;
  forward.w_h = args.w_h;
  forward.b = args.b;
  forward.gamma_x = args.gamma_x;
  forward.beta_x = args.beta_x;
  forward.gamma_h = args.gamma_h;
  forward.beta_h = args.beta_h;
  forward.gamma_c = args.gamma_c;
  forward.beta_c = args.beta_c;
  return forward;
}

template <class T>
LayerNormGruForwardArgs<T> RecomputedForward(
    const LayerNormGruBackwardArgs<T>& args) {
  LayerNormGruForwardArgs<T> forward;
  static_cast<SequenceInputs<T>&>(forward) = args;
  forward.layout = args.layout;
  forward.epsilon = args.epsilon;
  forward.w_x = args.w_x;
  forward.w_h = args.w_h;
  forward.b_x = args.b_x;
  forward.b_h = args.b_h;
  forward.gamma_x = args.gamma_x;
  forward.beta_x = args.beta_x;
  forward.gamma_h = args.gamma_h;
  forward.beta_h = args.beta_h;
  return forward;
}

// f(output of the forward call, input of the backward call, width) for each
// array [steps, batch, width] that the one saves for the other besides h.
template <class T, class F>
void ForEachSavedArray(LstmSequenceForwardArgs<T>* forward,
                       LstmSequenceBackwardArgs<T>* backward, const F& f) {
  f(&forward->i, &backward->i, forward->shape.units);
  f(&forward->cs, &backward->cs, forward->shape.units);
  f(&forward->f, &backward->f, forward->shape.units);
  f(&forward->o, &backward->o, forward->shape.units);
  f(&forward->ci, &backward->ci, forward->shape.units);
}

template <class T, class F>
void ForEachSavedArray(GruSequenceForwardArgs<T>* forward,
                       GruSequenceBackwardArgs<T>* backward, const F& f) {
  f(&forward->r, &backward->r, forward->shape.units);
  f(&forward->u, &backward->u, forward->shape.units);
  f(&forward->c, &backward->c, forward->shape.units);
}

template <class T, class F>
void ForEachSavedArray(GruAfterSequenceForwardArgs<T>* forward,
                       GruAfterSequenceBackwardArgs<T>* backward, const F& f) {
  f(&forward->r, &backward->r, forward->shape.units);
  f(&forward->u, &backward->u, forward->shape.units);
  f(&forward->c, &backward->c, forward->shape.units);
  f(&forward->hc, &backward->hc, forward->shape.units);
}

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

#endif  // BLOCKRNN_CORE_RECOMPUTED_FORWARD_H_
