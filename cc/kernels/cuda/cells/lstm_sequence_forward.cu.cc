// Owns the engine's LSTM over a whole sequence, forward, for every type.

#include "cc/kernels/cuda/cells/lstm_sequence_forward.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const LstmSequenceForwardArgs<T>& args, const HostInterface& host) {
  return LstmSequenceForwardCall<T>(args, host).Run();
}

template Error Run(const LstmSequenceForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const LstmSequenceForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const LstmSequenceForwardArgs<float>&, const HostInterface&);
template Error Run(const LstmSequenceForwardArgs<double>&,
                   const HostInterface&);

}  // namespace blockrnn::cuda
