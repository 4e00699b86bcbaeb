// Owns the engine's simple RNN over a whole sequence, forward and backward, for
// every type.

#include "cc/kernels/cuda/rnn_sequence.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error RnnSequenceForward(const RnnSequenceForwardArgs<T>& args,
                         const Host& host) {
  return RnnSequenceForwardCall<T>(args, host).Run();
}

template Error RnnSequenceForward(const RnnSequenceForwardArgs<Eigen::half>&,
                                  const Host&);
template Error RnnSequenceForward(
    const RnnSequenceForwardArgs<Eigen::bfloat16>&, const Host&);
template Error RnnSequenceForward(const RnnSequenceForwardArgs<float>&,
                                  const Host&);
template Error RnnSequenceForward(const RnnSequenceForwardArgs<double>&,
                                  const Host&);

template <class T>
Error RnnSequenceBackward(const RnnSequenceBackwardArgs<T>& args,
                          const Host& host) {
  return RnnSequenceBackwardCall<T>(args, host).Run();
}

template Error RnnSequenceBackward(const RnnSequenceBackwardArgs<Eigen::half>&,
                                   const Host&);
template Error RnnSequenceBackward(
    const RnnSequenceBackwardArgs<Eigen::bfloat16>&, const Host&);
template Error RnnSequenceBackward(const RnnSequenceBackwardArgs<float>&,
                                   const Host&);
template Error RnnSequenceBackward(const RnnSequenceBackwardArgs<double>&,
                                   const Host&);

}  // namespace blockrnn::cuda
