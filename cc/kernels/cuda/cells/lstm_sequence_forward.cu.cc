// Instantiates the engine's LSTM over a whole sequence, forward.

#include "cc/kernels/cuda/cells/lstm_sequence_forward.cuh"

#include "cc/kernels/cuda/cells/directions.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const LstmSequenceForwardArgs<T>& args, const HostInterface& host) {
  LstmSequenceForwardCall<T> call(args, host);
  return RunCalls(call);
}

template <class T>
Error RunDirections(const LstmSequenceForwardArgs<T>& first,
                    const LstmSequenceForwardArgs<T>& second,
                    const HostInterface& host) {
  LstmSequenceForwardCall<T> first_call(first, host);
  LstmSequenceForwardCall<T> second_call(second, host);
  return RunCalls(first_call, second_call);
}

BLOCKRNN_INSTANTIATE_RUN(LstmSequenceForwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(LstmSequenceForwardArgs)

}  // namespace blockrnn::cuda
