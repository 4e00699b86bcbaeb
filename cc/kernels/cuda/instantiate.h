// Instantiates an engine function (cc/kernels/cuda/engine.h) for every element
// type, in the source that defines it.

#ifndef BLOCKRNN_KERNELS_CUDA_INSTANTIATE_H_
#define BLOCKRNN_KERNELS_CUDA_INSTANTIATE_H_

#include "cc/kernels/cuda/engine.h"

// Args: the template of the function's argument struct. Used in the namespace
// blockrnn::cuda, without a semicolon.
#define BLOCKRNN_INSTANTIATE_RUN(Args)                                    \
  template Error Run(const Args<Eigen::half>&, const HostInterface&);     \
  template Error Run(const Args<Eigen::bfloat16>&, const HostInterface&); \
  template Error Run(const Args<float>&, const HostInterface&);           \
  template Error Run(const Args<double>&, const HostInterface&);

// The same for RunDirections (cc/kernels/cuda/cells/directions.h).
#define BLOCKRNN_INSTANTIATE_DIRECTIONS(Args)               \
  BLOCKRNN_INSTANTIATE_DIRECTIONS_OF(Args<Eigen::half>)     \
  BLOCKRNN_INSTANTIATE_DIRECTIONS_OF(Args<Eigen::bfloat16>) \
  BLOCKRNN_INSTANTIATE_DIRECTIONS_OF(Args<float>)           \
  BLOCKRNN_INSTANTIATE_DIRECTIONS_OF(Args<double>)
#define BLOCKRNN_INSTANTIATE_DIRECTIONS_OF(Args) \
  template Error RunDirections(const Args&, const Args&, const HostInterface&);

#endif  // BLOCKRNN_KERNELS_CUDA_INSTANTIATE_H_
