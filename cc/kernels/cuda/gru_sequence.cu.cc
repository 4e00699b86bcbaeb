// Owns the engine's GRU with the reset before the product over a whole
// sequence, forward and backward, for every type.

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/gru_sequence_backward.cuh"
#include "cc/kernels/cuda/gru_sequence_forward.cuh"

namespace blockrnn::cuda {

template <class T>
Error GruSequenceForward(const GruSequenceForwardArgs<T>& args,
                         const Host& host) {
  return GruSequenceForwardCall<T>(args, host).Run();
}

template Error GruSequenceForward(const GruSequenceForwardArgs<Eigen::half>&,
                                  const Host&);
template Error GruSequenceForward(
    const GruSequenceForwardArgs<Eigen::bfloat16>&, const Host&);
template Error GruSequenceForward(const GruSequenceForwardArgs<float>&,
                                  const Host&);
template Error GruSequenceForward(const GruSequenceForwardArgs<double>&,
                                  const Host&);

template <class T>
Error GruSequenceBackward(const GruSequenceBackwardArgs<T>& args,
                          const Host& host) {
  return GruSequenceBackwardCall<T>(args, host).Run();
}

template Error GruSequenceBackward(const GruSequenceBackwardArgs<Eigen::half>&,
                                   const Host&);
template Error GruSequenceBackward(
    const GruSequenceBackwardArgs<Eigen::bfloat16>&, const Host&);
template Error GruSequenceBackward(const GruSequenceBackwardArgs<float>&,
                                   const Host&);
template Error GruSequenceBackward(const GruSequenceBackwardArgs<double>&,
                                   const Host&);

}  // namespace blockrnn::cuda
