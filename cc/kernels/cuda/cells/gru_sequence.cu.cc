// Instantiates the engine's GRU with the reset before the GEMM over a whole
// sequence, forward and backward.

#include "cc/kernels/cuda/cells/gru_sequence_backward.cuh"
#include "cc/kernels/cuda/cells/gru_sequence_forward.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"
#include "cc/kernels/cuda/sequence/recomputed_backward.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruSequenceForwardArgs<T>& args, const HostInterface& host) {
  return RunCalls<GruSequenceForwardCall<T>>(host, args);
}

BLOCKRNN_INSTANTIATE_RUN(GruSequenceForwardArgs)

template <class T>
Error Run(const GruSequenceBackwardArgs<T>& args, const HostInterface& host) {
  if (args.span_steps > 0) return RunRecomputed(args, host);
  return RunCalls<GruSequenceBackwardCall<T>>(host, args);
}

BLOCKRNN_INSTANTIATE_RUN(GruSequenceBackwardArgs)

}  // namespace blockrnn::cuda
