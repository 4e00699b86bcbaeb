// Defines the equations of a simple recurrent cell (Elman 1990), forward and
// backward.
//
//   h = act(x · w_x + h_prev · w_h + b)     act: tanh, or relu(v) = max(v, 0)

#ifndef BLOCKRNN_CORE_SIMPLE_RNN_CELL_H_
#define BLOCKRNN_CORE_SIMPLE_RNN_CELL_H_

#include "cc/core/activations.h"
#include "cc/core/portable.h"

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

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_SIMPLE_RNN_CELL_H_
