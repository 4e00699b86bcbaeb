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

// f(output of the forward call, input of the backward call) for each array
// [steps, batch, H] that the one saves for the other besides h.
template <class T, class F>
void ForEachSavedArray(LstmSequenceForwardArgs<T>* forward,
                       LstmSequenceBackwardArgs<T>* backward, const F& f) {
  f(&forward->i, &backward->i);
  f(&forward->cs, &backward->cs);
  f(&forward->f, &backward->f);
  f(&forward->o, &backward->o);
  f(&forward->ci, &backward->ci);
}

template <class T, class F>
void ForEachSavedArray(GruSequenceForwardArgs<T>* forward,
                       GruSequenceBackwardArgs<T>* backward, const F& f) {
  f(&forward->r, &backward->r);
  f(&forward->u, &backward->u);
  f(&forward->c, &backward->c);
}

template <class T, class F>
void ForEachSavedArray(GruAfterSequenceForwardArgs<T>* forward,
                       GruAfterSequenceBackwardArgs<T>* backward, const F& f) {
  f(&forward->r, &backward->r);
  f(&forward->u, &backward->u);
  f(&forward->c, &backward->c);
  f(&forward->hc, &backward->hc);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_RECOMPUTED_FORWARD_H_
