// Defines how kernels read the options of an LSTM: the peephole weights of a
// unit, and the clip. Neither is a template argument: that would compile four
// kernels instead of one, whose time is its GEMM's.

#ifndef BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_PEEPHOLES_CUH_
#define BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_PEEPHOLES_CUH_

#include <cstdint>
#include <limits>

#include "cc/core/lstm_cell.h"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Reads nothing without peepholes.
template <class Args>
__device__ __forceinline__ auto LoadPeepholes(const Args& args, int64_t unit,
                                              bool use_peephole) {
  LstmPeepholes<decltype(Load(args.wci, unit))> out = {0, 0, 0};
  if (use_peephole) {
    out.wci = Load(args.wci, unit);
    out.wcf = Load(args.wcf, unit);
    out.wco = Load(args.wco, unit);
  }
  return out;
}

// The bound of the cell state: infinity if it is not clipped.
template <class C>
C CellClip(const LstmOptions& options) {
  return options.cell_clip > 0  // false for NaN
             ? C(options.cell_clip)
             : std::numeric_limits<C>::infinity();
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_CELLS_LSTM_PEEPHOLES_CUH_
