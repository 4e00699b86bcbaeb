// Instantiates the engine's GRU with layer normalisation, forward and backward.

#include "cc/kernels/cuda/cells/layer_norm_gru.cuh"

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"
#include "cc/kernels/cuda/sequence/recomputed_backward.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const LayerNormGruForwardArgs<T>& args, const HostInterface& host) {
  return RunCalls<LayerNormGruForwardCall<T>>(host, args);
}

template <class T>
Error Run(const LayerNormGruBackwardArgs<T>& args, const HostInterface& host) {
  if (args.span_steps > 0) return RunRecomputed(args, host);
  return RunCalls<LayerNormGruBackwardCall<T>>(host, args);
}

BLOCKRNN_INSTANTIATE_RUN(LayerNormGruForwardArgs)
BLOCKRNN_INSTANTIATE_RUN(LayerNormGruBackwardArgs)

}  // namespace blockrnn::cuda
