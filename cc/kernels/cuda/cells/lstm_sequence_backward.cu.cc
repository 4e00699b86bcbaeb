// Instantiates the engine's LSTM over a whole sequence, backward.

#include "cc/kernels/cuda/cells/lstm_sequence_backward.cuh"

#include "cc/kernels/cuda/cells/directions.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"
#include "cc/kernels/cuda/sequence/recomputed_backward.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const LstmSequenceBackwardArgs<T>& args, const HostInterface& host) {
  if (args.span_steps > 0) return RunRecomputed(args, host);
  return RunCalls<LstmSequenceBackwardCall<T>>(host, args);
}

template <class T>
Error RunDirections(const LstmSequenceBackwardArgs<T>& first,
                    const LstmSequenceBackwardArgs<T>& second,
                    const HostInterface& host) {
  return RunCalls<LstmSequenceBackwardCall<T>>(host, first, second);
}

BLOCKRNN_INSTANTIATE_RUN(LstmSequenceBackwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(LstmSequenceBackwardArgs)

}  // namespace blockrnn::cuda
