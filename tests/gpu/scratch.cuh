// Defines the device scratch of one engine call in the checks, filled with a
// pattern that reveals what was not written, or left as it is for a sanitizer
// that detects this itself.

#ifndef BLOCKRNN_TESTS_GPU_SCRATCH_CUH_
#define BLOCKRNN_TESTS_GPU_SCRATCH_CUH_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace blockrnn::cuda {

// Counted over all calls so far; for the members of HostInterface.
inline int64_t persistent_kernels = 0;
inline int64_t refused_kernels = 0;

// False for initcheck, which regards filled memory as initialised.
inline bool fills_scratch = true;

// Freed when the device is done with it.
struct Scratch {
  int64_t calls_left = 0;  // allocations that succeed
  cudaStream_t stream = nullptr;
  // The emulation aligns the end of an array, so that an access past it is
  // detected; with an alignment the beginning is aligned instead, as scratch
  // that serves several purposes must be.
  std::size_t alignment = 1;
  std::vector<void*> arrays;

  ~Scratch() {
    for (void* array : arrays) static_cast<void>(cudaFree(array));
  }

  // For HostInterface::allocate; context is a Scratch.
  static void* Allocate(void* context, std::size_t bytes) noexcept {
    auto* const self = static_cast<Scratch*>(context);
    void* array = nullptr;
    if (self->calls_left-- <= 0) return nullptr;
    bytes = (bytes + self->alignment - 1) / self->alignment * self->alignment;
    if (cudaMalloc(&array, bytes) != cudaSuccess) return nullptr;
    self->arrays.push_back(array);
    if (!fills_scratch) return array;
    // NaN in every type; on the call's stream, like the work of the memory's
    // previous user.
    const cudaError_t code = cudaMemsetAsync(array, 0xff, bytes, self->stream);
    if (code == cudaSuccess) return array;
    static_cast<void>(cudaGetLastError());  // it is reported by nullptr
    return nullptr;
  }
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_TESTS_GPU_SCRATCH_CUH_
