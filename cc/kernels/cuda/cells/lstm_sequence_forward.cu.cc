// Instantiates the engine's LSTM over a whole sequence, forward.

#include "cc/kernels/cuda/cells/lstm_sequence_forward.cuh"

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const LstmSequenceForwardArgs<T>& args, const HostInterface& host) {
  return LstmSequenceForwardCall<T>(args, host).Run();
}

BLOCKRNN_INSTANTIATE_RUN(LstmSequenceForwardArgs)

}  // namespace blockrnn::cuda
