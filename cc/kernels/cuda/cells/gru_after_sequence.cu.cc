// Owns the engine's GRU with the reset after the product over a whole sequence,
// forward and backward, for every type.

#include "cc/kernels/cuda/cells/gru_after_sequence.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruAfterSequenceForwardArgs<T>& args,
          const HostInterface& host) {
  return GruAfterSequenceForwardCall<T>(args, host).Run();
}

template Error Run(const GruAfterSequenceForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const GruAfterSequenceForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const GruAfterSequenceForwardArgs<float>&,
                   const HostInterface&);
template Error Run(const GruAfterSequenceForwardArgs<double>&,
                   const HostInterface&);

template <class T>
Error Run(const GruAfterSequenceBackwardArgs<T>& args,
          const HostInterface& host) {
  return GruAfterSequenceBackwardCall<T>(args, host).Run();
}

template Error Run(const GruAfterSequenceBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const GruAfterSequenceBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const GruAfterSequenceBackwardArgs<float>&,
                   const HostInterface&);
template Error Run(const GruAfterSequenceBackwardArgs<double>&,
                   const HostInterface&);

}  // namespace blockrnn::cuda
