// Owns the engine's LSTM functions for every type.

#include "cc/kernels/cuda/lstm_block_cell.cuh"

#include "cc/core/activations.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error LstmCellForward(const LstmCellForwardArgs<T>& args, const Host& host) {
  return LstmForward<T, StandardActivations>(args, host);
}

template <class T>
Error LstmCellBackward(const LstmCellBackwardArgs<T>& args, const Host& host) {
  return LstmBackward(args, host);
}

template Error LstmCellForward(const LstmCellForwardArgs<Eigen::half>&,
                               const Host&);
template Error LstmCellForward(const LstmCellForwardArgs<Eigen::bfloat16>&,
                               const Host&);
template Error LstmCellForward(const LstmCellForwardArgs<float>&, const Host&);
template Error LstmCellForward(const LstmCellForwardArgs<double>&, const Host&);

template Error LstmCellBackward(const LstmCellBackwardArgs<Eigen::half>&,
                                const Host&);
template Error LstmCellBackward(const LstmCellBackwardArgs<Eigen::bfloat16>&,
                                const Host&);
template Error LstmCellBackward(const LstmCellBackwardArgs<float>&,
                                const Host&);
template Error LstmCellBackward(const LstmCellBackwardArgs<double>&,
                                const Host&);

}  // namespace blockrnn::cuda
