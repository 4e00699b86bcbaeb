// Defines how an LSTM's gates are taken from the order of its weights.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_GATES_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_GATES_CUH_

#include <cuda_runtime.h>

#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"

namespace blockrnn::cuda {

static_assert(kLstmIcfo.i == kLstmIfco.i && kLstmIcfo.o == kLstmIfco.o);

// Selected, not indexed: the gates stay in registers. i is the first and o the
// last one in both layouts.
template <class C>
__device__ __forceinline__ LstmPreActivations<C> SelectGates(
    const LstmGateLayout& layout, const C (&bars)[kLstmGates]) {
  const bool icfo = layout.ci == kLstmIcfo.ci;
  LstmPreActivations<C> bar;
  bar.i_bar = bars[kLstmIcfo.i];
  bar.ci_bar = icfo ? bars[kLstmIcfo.ci] : bars[kLstmIfco.ci];
  bar.f_bar = icfo ? bars[kLstmIcfo.f] : bars[kLstmIfco.f];
  bar.o_bar = bars[kLstmIcfo.o];
  return bar;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_GATES_CUH_
