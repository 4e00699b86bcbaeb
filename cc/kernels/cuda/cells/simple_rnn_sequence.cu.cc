// Instantiates the engine's simple RNN over a whole sequence, forward and
// backward.

#include "cc/kernels/cuda/cells/simple_rnn_sequence.cuh"

#include "cc/kernels/cuda/cells/directions.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const SimpleRnnForwardArgs<T>& args, const HostInterface& host) {
  return RunCalls<SimpleRnnForwardCall<T>>(host, args);
}

template <class T>
Error RunDirections(const SimpleRnnForwardArgs<T>& first,
                    const SimpleRnnForwardArgs<T>& second,
                    const HostInterface& host) {
  return RunCalls<SimpleRnnForwardCall<T>>(host, first, second);
}

BLOCKRNN_INSTANTIATE_RUN(SimpleRnnForwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(SimpleRnnForwardArgs)

template <class T>
Error Run(const SimpleRnnBackwardArgs<T>& args, const HostInterface& host) {
  return RunCalls<SimpleRnnBackwardCall<T>>(host, args);
}

template <class T>
Error RunDirections(const SimpleRnnBackwardArgs<T>& first,
                    const SimpleRnnBackwardArgs<T>& second,
                    const HostInterface& host) {
  return RunCalls<SimpleRnnBackwardCall<T>>(host, first, second);
}

BLOCKRNN_INSTANTIATE_RUN(SimpleRnnBackwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(SimpleRnnBackwardArgs)

}  // namespace blockrnn::cuda
