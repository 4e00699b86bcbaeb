// Owns the engine's LSTM over a whole sequence, forward, for every type.

#include "cc/kernels/cuda/lstm_sequence_forward.cuh"

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error LstmSequenceForward(const LstmSequenceForwardArgs<T>& args,
                          const Host& host) {
  return LstmSequenceForwardCall<T>(args, host).Run();
}

template Error LstmSequenceForward(const LstmSequenceForwardArgs<Eigen::half>&,
                                   const Host&);
template Error LstmSequenceForward(
    const LstmSequenceForwardArgs<Eigen::bfloat16>&, const Host&);
template Error LstmSequenceForward(const LstmSequenceForwardArgs<float>&,
                                   const Host&);
template Error LstmSequenceForward(const LstmSequenceForwardArgs<double>&,
                                   const Host&);

}  // namespace blockrnn::cuda
