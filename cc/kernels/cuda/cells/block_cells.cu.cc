// Instantiates the engine's functions of single steps.

#include "cc/core/activations.h"
#include "cc/kernels/cuda/cells/gru_block_cell.cuh"
#include "cc/kernels/cuda/cells/lstm_block_cell.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruCellForwardArgs<T>& args, const HostInterface& host) {
  return GruForward<T, StandardActivations>(args, host);
}

template <class T>
Error Run(const GruCellBackwardArgs<T>& args, const HostInterface& host) {
  return GruBackward(args, host);
}

BLOCKRNN_INSTANTIATE_RUN(GruCellForwardArgs)
BLOCKRNN_INSTANTIATE_RUN(GruCellBackwardArgs)

template <class T>
Error Run(const LstmCellForwardArgs<T>& args, const HostInterface& host) {
  return LstmForward<T, StandardActivations>(args, host);
}

template <class T>
Error Run(const LstmCellBackwardArgs<T>& args, const HostInterface& host) {
  return LstmBackward(args, host);
}

BLOCKRNN_INSTANTIATE_RUN(LstmCellForwardArgs)
BLOCKRNN_INSTANTIATE_RUN(LstmCellBackwardArgs)

}  // namespace blockrnn::cuda
