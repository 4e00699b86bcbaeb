// Owns the part of CUDA that the engine uses, for a host compiler: a kernel's
// threads run on the CPU one after the other, each up to its next barrier. It
// stands in for <cuda_runtime.h> where the engine's logic (indices, edges,
// barriers, order of sums) is checked without a GPU. What it cannot show: a
// race within one stretch between barriers that no order of the threads brings
// out, memory models, and speed.

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_

#include <math.h>

#include <cstddef>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One block runs at a time, so its shared memory is one for all. It keeps what
// the block before left there, as a GPU does.
#define __shared__ static
#define __syncthreads() ::emulation::Barrier(__FILE__, __LINE__)

struct dim3 {
  dim3(unsigned x_dim = 1) : x(x_dim) {}  // NOLINT: implicit, as in CUDA
  unsigned x;
  unsigned y = 1;
  unsigned z = 1;
};

// Of the thread that runs at the moment.
extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };

struct EmulatedStream;
using cudaStream_t = EmulatedStream*;
inline constexpr unsigned cudaStreamNonBlocking = 1;

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void** device, std::size_t bytes);
cudaError_t cudaFree(void* device);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind);
cudaError_t cudaMemset(void* device, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* device, int value, std::size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

namespace emulation {

// Where a thread waits for all others of its block.
void Barrier(const char* file, int line);

// Runs `thread` for every thread of every block.
cudaError_t Launch(const cudaLaunchConfig_t& config,
                   const std::function<void()>& thread);

}  // namespace emulation

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Params...), Args&&... args) {
  return emulation::Launch(*config, [&] { kernel(args...); });
}

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_
