// Owns the engine's functions of single steps for every type.

#include "cc/core/activations.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/gru_block_cell.cuh"
#include "cc/kernels/cuda/lstm_block_cell.cuh"

namespace blockrnn::cuda {

template <class T>
Error GruCellForward(const GruCellForwardArgs<T>& args, const Host& host) {
  return GruForward<T, StandardActivations>(args, host);
}

template <class T>
Error GruCellBackward(const GruCellBackwardArgs<T>& args, const Host& host) {
  return GruBackward(args, host);
}

template Error GruCellForward(const GruCellForwardArgs<Eigen::half>&,
                              const Host&);
template Error GruCellForward(const GruCellForwardArgs<Eigen::bfloat16>&,
                              const Host&);
template Error GruCellForward(const GruCellForwardArgs<float>&, const Host&);
template Error GruCellForward(const GruCellForwardArgs<double>&, const Host&);

template Error GruCellBackward(const GruCellBackwardArgs<Eigen::half>&,
                               const Host&);
template Error GruCellBackward(const GruCellBackwardArgs<Eigen::bfloat16>&,
                               const Host&);
template Error GruCellBackward(const GruCellBackwardArgs<float>&, const Host&);
template Error GruCellBackward(const GruCellBackwardArgs<double>&, const Host&);

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
