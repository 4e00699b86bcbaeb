// Defines the C function that measures what the engine's plans assume about
// grid barriers: how long one takes. Times are the host's, over so many
// barriers that launches do not count.

#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace blockrnn::cuda {
namespace {

// Meets as a persistent kernel does.
__global__ void __launch_bounds__(kThreads, 1) MeetKernel(int64_t barriers) {
  const auto grid = cooperative_groups::this_grid();
  for (int64_t n = 0; n < barriers; ++n) {
    grid.barrier_wait(grid.barrier_arrive());
  }
}

// With shared memory as a persistent kernel has it, though less of it.
cudaError_t LaunchMeet(int blocks, int64_t barriers, cudaStream_t stream) {
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = 40 * 1024;
  config.stream = stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, MeetKernel, barriers);
}

// Microseconds until the kernel is done.
cudaError_t Time(int blocks, int64_t barriers, cudaStream_t stream,
                 double* microseconds) {
  cudaError_t code = cudaDeviceSynchronize();
  const auto start = std::chrono::steady_clock::now();
  if (code == cudaSuccess) code = LaunchMeet(blocks, barriers, stream);
  if (code == cudaSuccess) code = cudaDeviceSynchronize();
  const std::chrono::duration<double, std::micro> passed =
      std::chrono::steady_clock::now() - start;
  *microseconds = passed.count();
  return code;
}

}  // namespace
}  // namespace blockrnn::cuda

// The time of a kernel of `blocks` blocks that meet `barriers` times, after one
// that warms up. Null for success, else the error.
EXPORT const char* blockrnn_time_barriers(int blocks, int64_t barriers,
                                          double* microseconds) {
  using blockrnn::cuda::Time;
  static cudaStream_t stream = nullptr;
  cudaError_t code = cudaSuccess;
  if (stream == nullptr) {
    code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  if (code == cudaSuccess) code = Time(blocks, 1, stream, microseconds);
  if (code == cudaSuccess) code = Time(blocks, barriers, stream, microseconds);
  return blockrnn::cuda::ToError(code);
}
