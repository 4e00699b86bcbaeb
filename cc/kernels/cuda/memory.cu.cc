// Implements the engine's functions that fill and copy device memory.

#include <cuda_runtime.h>

#include <cstddef>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {

Error FillZero(void* device, std::size_t bytes, const HostInterface& host) {
  if (bytes == 0) return nullptr;
  return ToError(cudaMemsetAsync(device, 0, bytes,
                                 static_cast<cudaStream_t>(host.stream)));
}

Error Copy(const void* from, std::size_t bytes, void* to,
           const HostInterface& host) {
  if (bytes == 0) return nullptr;
  return ToError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                 static_cast<cudaStream_t>(host.stream)));
}

Error CopyToHost(const void* from, std::size_t bytes, void* to,
                 const HostInterface& host) {
  if (bytes == 0) return nullptr;
  const auto stream = static_cast<cudaStream_t>(host.stream);
  const Error error =
      ToError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
  return error != nullptr ? error : ToError(cudaStreamSynchronize(stream));
}

}  // namespace blockrnn::cuda
