// Owns the engine's functions of single steps for every type.

#include "cc/core/activations.h"
#include "cc/kernels/cuda/cells/gru_block_cell.cuh"
#include "cc/kernels/cuda/cells/lstm_block_cell.cuh"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
Error Run(const GruCellForwardArgs<T>& args, const HostInterface& host) {
  return GruForward<T, StandardActivations>(args, host);
}

template <class T>
Error Run(const GruCellBackwardArgs<T>& args, const HostInterface& host) {
  return GruBackward(args, host);
}

template Error Run(const GruCellForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const GruCellForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const GruCellForwardArgs<float>&, const HostInterface&);
template Error Run(const GruCellForwardArgs<double>&, const HostInterface&);

template Error Run(const GruCellBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const GruCellBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const GruCellBackwardArgs<float>&, const HostInterface&);
template Error Run(const GruCellBackwardArgs<double>&, const HostInterface&);

template <class T>
Error Run(const LstmCellForwardArgs<T>& args, const HostInterface& host) {
  return LstmForward<T, StandardActivations>(args, host);
}

template <class T>
Error Run(const LstmCellBackwardArgs<T>& args, const HostInterface& host) {
  return LstmBackward(args, host);
}

template Error Run(const LstmCellForwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const LstmCellForwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const LstmCellForwardArgs<float>&, const HostInterface&);
template Error Run(const LstmCellForwardArgs<double>&, const HostInterface&);

template Error Run(const LstmCellBackwardArgs<Eigen::half>&,
                   const HostInterface&);
template Error Run(const LstmCellBackwardArgs<Eigen::bfloat16>&,
                   const HostInterface&);
template Error Run(const LstmCellBackwardArgs<float>&, const HostInterface&);
template Error Run(const LstmCellBackwardArgs<double>&, const HostInterface&);

}  // namespace blockrnn::cuda
