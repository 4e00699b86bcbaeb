// Owns the engine's GRU with the reset after the product over a whole sequence,
// forward and backward, for every type.

#include "cc/kernels/cuda/gru_after_sequence.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error GruAfterSequenceForward(const GruAfterSequenceForwardArgs<T>& args,
                              const Host& host) {
  return GruAfterSequenceForwardCall<T>(args, host).Run();
}

template Error GruAfterSequenceForward(
    const GruAfterSequenceForwardArgs<Eigen::half>&, const Host&);
template Error GruAfterSequenceForward(
    const GruAfterSequenceForwardArgs<Eigen::bfloat16>&, const Host&);
template Error GruAfterSequenceForward(
    const GruAfterSequenceForwardArgs<float>&, const Host&);
template Error GruAfterSequenceForward(
    const GruAfterSequenceForwardArgs<double>&, const Host&);

template <class T>
Error GruAfterSequenceBackward(const GruAfterSequenceBackwardArgs<T>& args,
                               const Host& host) {
  return GruAfterSequenceBackwardCall<T>(args, host).Run();
}

template Error GruAfterSequenceBackward(
    const GruAfterSequenceBackwardArgs<Eigen::half>&, const Host&);
template Error GruAfterSequenceBackward(
    const GruAfterSequenceBackwardArgs<Eigen::bfloat16>&, const Host&);
template Error GruAfterSequenceBackward(
    const GruAfterSequenceBackwardArgs<float>&, const Host&);
template Error GruAfterSequenceBackward(
    const GruAfterSequenceBackwardArgs<double>&, const Host&);

}  // namespace blockrnn::cuda
