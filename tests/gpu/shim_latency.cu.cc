// Defines the C functions that measure what the engine's plans assume about
// grid barriers: how long one takes, and whether two cooperative kernels, each
// on half of the device, run concurrently on two streams. Times are the host's,
// over so many barriers that launches do not count.

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

// Microseconds until `grids` kernels are done, each on a stream of its own.
cudaError_t Time(int grids, int blocks, int64_t barriers,
                 const cudaStream_t* streams, double* microseconds) {
  cudaError_t code = cudaDeviceSynchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int n = 0; n < grids && code == cudaSuccess; ++n) {
    code = LaunchMeet(blocks, barriers, streams[n]);
  }
  if (code == cudaSuccess) code = cudaDeviceSynchronize();
  const std::chrono::duration<double, std::micro> passed =
      std::chrono::steady_clock::now() - start;
  *microseconds = passed.count();
  return code;
}

}  // namespace
}  // namespace blockrnn::cuda

// The times of `grids` kernels (1 or 2) of `blocks` blocks that meet `barriers`
// times, after one that warms up. Null for success, else the error.
EXPORT const char* blockrnn_time_barriers(int grids, int blocks,
                                          int64_t barriers,
                                          double* microseconds) {
  using blockrnn::cuda::Time;
  static cudaStream_t streams[2] = {};
  cudaError_t code = cudaSuccess;
  for (cudaStream_t& stream : streams) {
    if (stream == nullptr && code == cudaSuccess) {
      code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    }
  }
  if (code == cudaSuccess) code = Time(grids, blocks, 1, streams, microseconds);
  if (code == cudaSuccess) {
    code = Time(grids, blocks, barriers, streams, microseconds);
  }
  return blockrnn::cuda::ToError(code);
}
