// Instantiates the engine's simple RNN over a whole sequence, forward and
// backward.

#include "cc/kernels/cuda/cells/simple_rnn_sequence.cuh"

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const SimpleRnnForwardArgs<T>& args, const HostInterface& host) {
  return SimpleRnnForwardCall<T>(args, host).Run();
}

BLOCKRNN_INSTANTIATE_RUN(SimpleRnnForwardArgs)

template <class T>
Error Run(const SimpleRnnBackwardArgs<T>& args, const HostInterface& host) {
  return SimpleRnnBackwardCall<T>(args, host).Run();
}

BLOCKRNN_INSTANTIATE_RUN(SimpleRnnBackwardArgs)

}  // namespace blockrnn::cuda
