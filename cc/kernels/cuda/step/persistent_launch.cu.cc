// Implements the limits of persistent kernels' shared memory.

#include "cc/kernels/cuda/step/persistent_launch.cuh"

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace blockrnn::cuda {

cudaError_t AllowSharedMemory(const void* kernel, int64_t bytes) {
  constexpr int64_t kDefaultLimit = 48 * 1024;  // of every kernel
  if (bytes <= kDefaultLimit) return cudaSuccess;
  // Never destroyed: calls may run until the process ends.
  static auto* const mutex = new std::mutex;
  static auto* const limits =
      new std::map<std::pair<int, const void*>, int64_t>;
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) return found;
  const std::lock_guard<std::mutex> lock(*mutex);
  int64_t& limit = (*limits)[{device, kernel}];
  if (bytes <= limit) return cudaSuccess;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
  if (code == cudaSuccess) limit = bytes;
  return code;
}

}  // namespace blockrnn::cuda
