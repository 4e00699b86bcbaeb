// Owns the engine's LSTM over a whole sequence, backward, for every type.

#include "cc/kernels/cuda/lstm_sequence_backward.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error LstmSequenceBackward(const LstmSequenceBackwardArgs<T>& args,
                           const Host& host) {
  return LstmSequenceBackwardCall<T>(args, host).Run();
}

template Error LstmSequenceBackward(
    const LstmSequenceBackwardArgs<Eigen::half>&, const Host&);
template Error LstmSequenceBackward(
    const LstmSequenceBackwardArgs<Eigen::bfloat16>&, const Host&);
template Error LstmSequenceBackward(const LstmSequenceBackwardArgs<float>&,
                                    const Host&);
template Error LstmSequenceBackward(const LstmSequenceBackwardArgs<double>&,
                                    const Host&);

}  // namespace blockrnn::cuda
