// Owns the device scratch of one engine call in the checks, filled with what
// shows where nobody wrote, or left as it is for a sanitizer that looks itself.

#ifndef BLOCKRNN_TESTS_GPU_SCRATCH_CUH_
#define BLOCKRNN_TESTS_GPU_SCRATCH_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace blockrnn::cuda {

// That ran in all calls so far; for HostInterface::persistent_blocks.
inline int64_t persistent_blocks = 0;

// False for initcheck, to which memory that was filled is initialised.
inline bool fills_scratch = true;

// Freed after the device is done with it.
struct Scratch {
  int64_t calls_left = 0;  // allocations that succeed
  cudaStream_t stream = nullptr;
  // The emulation aligns the end of an array, so that a step past it is seen;
  // with an alignment the beginning is aligned instead, as scratch that is used
  // for several things has to be.
  std::size_t alignment = 1;
  std::vector<void*> arrays;

  ~Scratch() {
    for (void* array : arrays) static_cast<void>(cudaFree(array));
  }

  // For HostInterface::allocate; context is a Scratch.
  static void* Allocate(void* context, std::size_t bytes) {
    auto* const self = static_cast<Scratch*>(context);
    void* array = nullptr;
    if (self->calls_left-- <= 0) return nullptr;
    bytes = (bytes + self->alignment - 1) / self->alignment * self->alignment;
    if (cudaMalloc(&array, bytes) != cudaSuccess) return nullptr;
    self->arrays.push_back(array);
    if (!fills_scratch) return array;
    // NaN in every type; on the call's stream, as the work of whoever had the
    // memory before.
    const cudaError_t code = cudaMemsetAsync(array, 0xff, bytes, self->stream);
    return code == cudaSuccess ? array : nullptr;
  }
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_TESTS_GPU_SCRATCH_CUH_
