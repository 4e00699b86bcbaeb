// Instantiates the engine's LSTM over a whole sequence, forward.

#include "cc/kernels/cuda/cells/lstm_sequence_forward.cuh"

#include "cc/kernels/cuda/cells/directions.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const LstmSequenceForwardArgs<T>& args, const HostInterface& host) {
  return RunCalls<LstmSequenceForwardCall<T>>(host, args);
}

template <class T>
Error RunDirections(const LstmSequenceForwardArgs<T>& first,
                    const LstmSequenceForwardArgs<T>& second,
                    const HostInterface& host) {
  return RunCalls<LstmSequenceForwardCall<T>>(host, first, second);
}

BLOCKRNN_INSTANTIATE_RUN(LstmSequenceForwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(LstmSequenceForwardArgs)

}  // namespace blockrnn::cuda
