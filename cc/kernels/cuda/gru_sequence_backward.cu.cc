// Owns the engine's GRU with the reset before the product over a whole
// sequence, backward, for every type.

#include "cc/kernels/cuda/gru_sequence_backward.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

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
