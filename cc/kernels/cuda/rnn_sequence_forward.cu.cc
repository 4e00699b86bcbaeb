// Owns the engine's simple RNN over a whole sequence, forward, for every type.

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/rnn_sequence.cuh"

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

}  // namespace blockrnn::cuda
