// Instantiates the engine's LSTM with layer normalisation, forward.

#include "cc/kernels/cuda/cells/layer_norm_lstm_forward.cuh"

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/instantiate.h"
#include "cc/kernels/cuda/sequence/joint_calls.cuh"

namespace blockrnn::cuda {

template <class T>
Error Run(const LayerNormLstmForwardArgs<T>& args, const HostInterface& host) {
  return RunCalls<LayerNormLstmForwardCall<T>>(host, args);
}

BLOCKRNN_INSTANTIATE_RUN(LayerNormLstmForwardArgs)

}  // namespace blockrnn::cuda
