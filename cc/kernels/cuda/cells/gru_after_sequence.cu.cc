// Instantiates the engine's GRU with the reset after the GEMM over a whole
// sequence, forward and backward.

#include "cc/kernels/cuda/cells/gru_after_sequence.cuh"

#include "cc/kernels/cuda/cells/directions.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"
#include "cc/kernels/cuda/sequence/recomputed_backward.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruAfterSequenceForwardArgs<T>& args,
          const HostInterface& host) {
  return RunCalls<GruAfterSequenceForwardCall<T>>(host, args);
}

template <class T>
Error RunDirections(const GruAfterSequenceForwardArgs<T>& first,
                    const GruAfterSequenceForwardArgs<T>& second,
                    const HostInterface& host) {
  return RunCalls<GruAfterSequenceForwardCall<T>>(host, first, second);
}

BLOCKRNN_INSTANTIATE_RUN(GruAfterSequenceForwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(GruAfterSequenceForwardArgs)

template <class T>
Error Run(const GruAfterSequenceBackwardArgs<T>& args,
          const HostInterface& host) {
  if (args.span_steps > 0) return RunRecomputed(args, host);
  return RunCalls<GruAfterSequenceBackwardCall<T>>(host, args);
}

template <class T>
Error RunDirections(const GruAfterSequenceBackwardArgs<T>& first,
                    const GruAfterSequenceBackwardArgs<T>& second,
                    const HostInterface& host) {
  return RunCalls<GruAfterSequenceBackwardCall<T>>(host, first, second);
}

BLOCKRNN_INSTANTIATE_RUN(GruAfterSequenceBackwardArgs)
BLOCKRNN_INSTANTIATE_DIRECTIONS(GruAfterSequenceBackwardArgs)

}  // namespace blockrnn::cuda
