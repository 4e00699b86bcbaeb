// Owns the engine's simple RNN over a whole sequence, backward, for every type.

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/rnn_sequence.cuh"

namespace blockrnn::cuda {

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
