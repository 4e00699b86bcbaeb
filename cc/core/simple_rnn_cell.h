// Defines a simple recurrent cell (Elman 1990): its equations, forward and
// backward, and the arguments of its engine functions.
//
//   h = act(x · w_x + h_prev · w_h + b)     act: tanh, or relu(v) = max(v, 0)

#ifndef BLOCKRNN_CORE_SIMPLE_RNN_CELL_H_
#define BLOCKRNN_CORE_SIMPLE_RNN_CELL_H_

#include "cc/core/activations.h"
#include "cc/core/portable.h"
#include "cc/core/sequence_args.h"

namespace blockrnn {

template <class Activations, bool kRelu, class Value>
BLOCKRNN_HOST_DEVICE Value SimpleRnnStep(Value h_bar) {
  if constexpr (kRelu) {
    return Relu(h_bar);
  } else {
    return Activations::Candidate(h_bar);
  }
}

// d_h_bar = d_h ∘ act'(h_bar), which follows from h alone: 1 − h² for tanh; for
// relu 1 where h is above 0, else 0.
template <bool kRelu, class Value>
BLOCKRNN_HOST_DEVICE Value SimpleRnnStepGrad(Value h, Value d_h) {
  if constexpr (kRelu) {
    return WherePositive(h, d_h);
  } else {
    return d_h * (Value(1) - h * h);
  }
}

template <class T>
struct SimpleRnnWeights {
  bool relu = false;
  const T* w_x = nullptr;  // [I, H]
  const T* w_h = nullptr;  // [H, H]
  const T* b = nullptr;    // [H]
  const T* b_h = nullptr;  // [H], added to b; nullptr: zeros
};

template <class T>
struct SimpleRnnForwardArgs : SequenceForwardArgs<T>, SimpleRnnWeights<T> {};

template <class T>
struct SimpleRnnBackwardArgs : SequenceBackwardArgs<T>, SimpleRnnWeights<T> {
  T* w_x_grad = nullptr;  // [I, H]; not without w_x
  T* w_h_grad = nullptr;  // [H, H]
  T* b_grad = nullptr;    // [H]
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_SIMPLE_RNN_CELL_H_
