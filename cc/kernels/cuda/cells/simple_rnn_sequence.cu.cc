// Owns the engine's simple RNN over a whole sequence, forward and backward, for
// every type.

#include "cc/kernels/cuda/cells/simple_rnn_sequence.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const SimpleRnnForwardArgs<T>& args, const HostInterface& host) {
  return SimpleRnnForwardCall<T>(args, host).Run();
}

template Error Run(const SimpleRnnForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const SimpleRnnForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const SimpleRnnForwardArgs<float>&, const HostInterface&);
template Error Run(const SimpleRnnForwardArgs<double>&, const HostInterface&);

template <class T>
Error Run(const SimpleRnnBackwardArgs<T>& args, const HostInterface& host) {
  return SimpleRnnBackwardCall<T>(args, host).Run();
}

template Error Run(const SimpleRnnBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const SimpleRnnBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const SimpleRnnBackwardArgs<float>&, const HostInterface&);
template Error Run(const SimpleRnnBackwardArgs<double>&, const HostInterface&);

}  // namespace blockrnn::cuda
