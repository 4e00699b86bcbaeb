// Owns how the LSTM's kernels read the peephole weights of a unit.

#ifndef BLOCKRNN_KERNELS_CUDA_LSTM_PEEPHOLES_CUH_
#define BLOCKRNN_KERNELS_CUDA_LSTM_PEEPHOLES_CUH_

#include <cstdint>

#include "cc/core/lstm_cell.h"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Without peepholes nothing is read.
template <bool kPeephole, class Args>
__device__ __forceinline__ auto LoadPeepholes(const Args& args, int64_t unit) {
  LstmPeepholes<decltype(Load(args.wci, unit))> out = {0, 0, 0};
  if constexpr (kPeephole) {
    out.wci = Load(args.wci, unit);
    out.wcf = Load(args.wcf, unit);
    out.wco = Load(args.wco, unit);
  }
  return out;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_LSTM_PEEPHOLES_CUH_
