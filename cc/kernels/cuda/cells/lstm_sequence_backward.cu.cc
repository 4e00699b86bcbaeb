// Owns the engine's LSTM over a whole sequence, backward, for every type.

#include "cc/kernels/cuda/cells/lstm_sequence_backward.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const LstmSequenceBackwardArgs<T>& args, const HostInterface& host) {
  return LstmSequenceBackwardCall<T>(args, host).Run();
}

template Error Run(const LstmSequenceBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const LstmSequenceBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const LstmSequenceBackwardArgs<float>&,
                   const HostInterface&);
template Error Run(const LstmSequenceBackwardArgs<double>&,
                   const HostInterface&);

}  // namespace blockrnn::cuda
