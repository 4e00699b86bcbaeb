// Defines the engine's functions in terms of the class that each cell declares
// for its arguments. Only the sources that instantiate them include this
// (instances.bzl): whoever sees a definition compiles the kernels again.

#ifndef BLOCKRNN_KERNELS_CUDA_RUN_CUH_
#define BLOCKRNN_KERNELS_CUDA_RUN_CUH_

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {

template <class Args>
Error Run(const Args& args, const HostInterface& host) {
  return FunctionOf<Args>::Run(args, host);
}

template <class Args>
Error RunDirections(const Args& first, const Args& second,
                    const HostInterface& host, bool* ran) {
  return FunctionOf<Args>::RunDirections(first, second, host, ran);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_RUN_CUH_
