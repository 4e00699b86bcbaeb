// Defines the C functions that measure what the engine's plans assume about the
// device: how long launches, grid barriers and loads of a state take. Times are
// the host's, over so many of them that nothing else counts.

#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/step/persistent.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace blockrnn::cuda {
namespace {

// A block publishes a cache line of its own.
constexpr int64_t kLine = 128;

__global__ void __launch_bounds__(kThreads) EmptyKernel() {}

// Waits as a persistent kernel does: after a store, which the barrier
// publishes, and before a load of `bytes` bytes of what all blocks have stored.
// states: two of state_bytes each, so that none is written while it is read.
__global__ void __launch_bounds__(kThreads, 1)
    BarrierKernel(int64_t barriers, int64_t bytes, unsigned char* states,
                  int64_t state_bytes) {
  BLOCKRNN_DYNAMIC_SHARED(memory);
  constexpr int kCopied = 16;
  const auto grid = cooperative_groups::this_grid();
  for (int64_t n = 0; n < barriers; ++n) {
    unsigned char* const state = states + n % 2 * state_bytes;
    // Not the thread that arrives for the block.
    if (threadIdx.x == kThreads - 1) {
      *reinterpret_cast<int64_t*>(state + blockIdx.x * kLine) = n;
    }
    grid.barrier_wait(grid.barrier_arrive());
    for (int64_t at = threadIdx.x * kCopied; at < bytes;
         at += kThreads * kCopied) {
      __pipeline_memcpy_async(memory + at, state + at, kCopied);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
  }
}

// The shared memory of a block. As of most persistent kernels, two blocks have
// no room on one multiprocessor.
cudaError_t SharedBytes(int* bytes) {
  const cudaError_t code =
      cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  *bytes = std::min(*bytes, 200 * 1024);
  return code;
}

// The launches of one measurement.
class Barriers {
 public:
  ~Barriers() { static_cast<void>(cudaFree(states_)); }

  // bytes: at most 64 KB.
  cudaError_t Prepare(int64_t blocks, int64_t barriers, int64_t bytes) {
    blocks_ = blocks;
    barriers_ = barriers;
    bytes_ = bytes;
    state_bytes_ = std::max(blocks * kLine, bytes);
    cudaError_t code = SharedBytes(&shared_bytes_);
    if (code == cudaSuccess) {
      code = cudaFuncSetAttribute(BarrierKernel,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  shared_bytes_);
    }
    if (code != cudaSuccess) return code;
    return cudaMalloc(reinterpret_cast<void**>(&states_),
                      static_cast<std::size_t>(2 * state_bytes_));
  }

  cudaError_t Launch(cudaStream_t stream) const {
    cudaLaunchAttribute cooperative = {};
    cooperative.id = cudaLaunchAttributeCooperative;
    cooperative.val.cooperative = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes_);
    config.stream = stream;
    config.attrs = &cooperative;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, BarrierKernel, barriers_, bytes_,
                              states_, state_bytes_);
  }

 private:
  int64_t blocks_ = 0;
  int shared_bytes_ = 0;
  int64_t barriers_ = 0;
  int64_t bytes_ = 0;
  int64_t state_bytes_ = 0;
  unsigned char* states_ = nullptr;
};

cudaError_t TheStream(cudaStream_t* stream) {
  static cudaStream_t the_stream = nullptr;
  cudaError_t code = cudaSuccess;
  if (the_stream == nullptr) {
    code = cudaStreamCreateWithFlags(&the_stream, cudaStreamNonBlocking);
  }
  *stream = the_stream;
  return code;
}

// Microseconds until what `launch` queued `count` times is done, after once to
// warm up.
template <class Launch>
Error Time(int64_t count, const Launch& launch, double* microseconds) {
  Error error = launch();
  if (error == nullptr) error = ToError(cudaDeviceSynchronize());
  const auto start = std::chrono::steady_clock::now();
  for (int64_t n = 0; n < count && error == nullptr; ++n) error = launch();
  if (error == nullptr) error = ToError(cudaDeviceSynchronize());
  const std::chrono::duration<double, std::micro> passed =
      std::chrono::steady_clock::now() - start;
  *microseconds = passed.count();
  return error;
}

}  // namespace
}  // namespace blockrnn::cuda

using blockrnn::cuda::Error;
using blockrnn::cuda::ToError;

// The time of `launches` cooperative kernels of `blocks` blocks with
// `barriers` barriers each, and a load of `bytes` bytes after each. Null for
// success, else the error.
EXPORT Error blockrnn_time_barriers(int64_t blocks, int64_t launches,
                                    int64_t barriers, int64_t bytes,
                                    double* microseconds) {
  blockrnn::cuda::Barriers kernel;
  cudaStream_t stream = nullptr;
  if (Error error = ToError(blockrnn::cuda::TheStream(&stream))) return error;
  if (Error error = ToError(kernel.Prepare(blocks, barriers, bytes))) {
    return error;
  }
  return blockrnn::cuda::Time(
      launches, [&] { return ToError(kernel.Launch(stream)); }, microseconds);
}

// The time of so many kernels of `blocks` blocks that do nothing.
EXPORT Error blockrnn_time_launches(int64_t blocks, int64_t launches,
                                    double* microseconds) {
  cudaStream_t stream = nullptr;
  if (Error error = ToError(blockrnn::cuda::TheStream(&stream))) return error;
  blockrnn::cuda::HostInterface host;
  host.stream = stream;
  return blockrnn::cuda::Time(
      launches,
      [&] {
        return blockrnn::cuda::Launch(blockrnn::cuda::EmptyKernel, blocks,
                                      host);
      },
      microseconds);
}
