// Implements a backward call with spans (cc/core/sequence_args.h) by running
// the whole forward pass again into scratch. Between the forward and the
// backward call nothing but h is held; span by span, with less scratch, is the
// CPU engine's alone.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_RECOMPUTED_BACKWARD_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_RECOMPUTED_BACKWARD_CUH_

#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {

template <template <class> class Args, class T>
Error RunRecomputed(Args<T> args, const HostInterface& host) {
  auto forward = RecomputedForward(args);
  const SequenceShape& shape = args.shape;
  const int64_t rows = shape.steps * shape.batch;
  Error error = nullptr;
  ForEachSavedArray(&forward, &args,
                    [&](T** output, const T** input, int64_t width) {
                      if (error == nullptr)
                        error = AllocateStored(host, rows * width, output);
                      *input = *output;
                    });
  if (error != nullptr) return error;
  args.span_steps = 0;
  if ((error = Run(forward, host))) return error;
  return Run(args, host);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_RECOMPUTED_BACKWARD_CUH_
