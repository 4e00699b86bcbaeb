// Instantiates the engine's GRU with the reset after the GEMM over a whole
// sequence, forward and backward.

#include "cc/kernels/cuda/cells/gru_after_sequence.cuh"

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/recomputed_backward.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruAfterSequenceForwardArgs<T>& args,
          const HostInterface& host) {
  return GruAfterSequenceForwardCall<T>(args, host).Run();
}

BLOCKRNN_INSTANTIATE_RUN(GruAfterSequenceForwardArgs)

template <class T>
Error Run(const GruAfterSequenceBackwardArgs<T>& args,
          const HostInterface& host) {
  if (args.span_steps > 0) return RunRecomputed(args, host);
  return GruAfterSequenceBackwardCall<T>(args, host).Run();
}

BLOCKRNN_INSTANTIATE_RUN(GruAfterSequenceBackwardArgs)

}  // namespace blockrnn::cuda
