// Implements a backward call with spans (cc/core/sequence_args.h) by running
// the whole forward pass again into scratch. Between the forward and the
// backward call nothing but h is held; span by span, with less scratch, is the
// CPU engine's alone.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_RECOMPUTED_BACKWARD_H_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_RECOMPUTED_BACKWARD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cc/core/recomputed_forward.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <template <class> class Args, class T>
Error RunRecomputed(Args<T> args, const HostInterface& host) {
  auto forward = RecomputedForward(args);
  const SequenceShape& shape = args.shape;
  const auto bytes = static_cast<std::size_t>(
      std::max<int64_t>(shape.steps * shape.batch * shape.units, 1) *
      static_cast<int64_t>(sizeof(T)));
  bool allocated = true;
  ForEachSavedArray(&forward, &args, [&](T** output, const T** input) {
    *output = static_cast<T*>(host.allocate(host.context, bytes));
    *input = *output;
    allocated = allocated && *output != nullptr;
  });
  if (!allocated) return kOutOfMemory;
  args.span_steps = 0;
  if (Error error = Run(forward, host)) return error;
  return Run(args, host);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_RECOMPUTED_BACKWARD_H_
