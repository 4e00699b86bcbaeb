// Instantiates the engine's LSTM with layer normalisation, backward.

#include "cc/kernels/cuda/cells/layer_norm_lstm_backward.cuh"

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"
#include "cc/kernels/cuda/sequence/recomputed_backward.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const LayerNormLstmBackwardArgs<T>& args, const HostInterface& host) {
  if (args.span_steps > 0) return RunRecomputed(args, host);
  return RunCalls<LayerNormLstmBackwardCall<T>>(host, args);
}

BLOCKRNN_INSTANTIATE_RUN(LayerNormLstmBackwardArgs)

}  // namespace blockrnn::cuda
