// Owns the engine's GRU functions for every type.

#include "cc/kernels/cuda/gru_block_cell.cuh"

#include "cc/core/activations.h"
#include "cc/kernels/cuda/engine.h"

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

}  // namespace blockrnn::cuda
