// Owns the engine's GRU with the reset before the product over a whole
// sequence, forward and backward, for every type.

#include "cc/kernels/cuda/cells/gru_sequence_backward.cuh"
#include "cc/kernels/cuda/cells/gru_sequence_forward.cuh"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruSequenceForwardArgs<T>& args, const HostInterface& host) {
  return GruSequenceForwardCall<T>(args, host).Run();
}

template Error Run(const GruSequenceForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const GruSequenceForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const GruSequenceForwardArgs<float>&, const HostInterface&);
template Error Run(const GruSequenceForwardArgs<double>&, const HostInterface&);

template <class T>
Error Run(const GruSequenceBackwardArgs<T>& args, const HostInterface& host) {
  return GruSequenceBackwardCall<T>(args, host).Run();
}

template Error Run(const GruSequenceBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const GruSequenceBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const GruSequenceBackwardArgs<float>&, const HostInterface&);
template Error Run(const GruSequenceBackwardArgs<double>&,
                   const HostInterface&);

}  // namespace blockrnn::cuda
