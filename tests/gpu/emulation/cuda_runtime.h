// Declares the part of CUDA that the engine uses, for a host compiler: a
// kernel's threads run on the CPU one after the other, each up to its next
// barrier. It replaces <cuda_runtime.h> where the engine's logic (indices,
// edges, barriers, order of sums) is checked without a GPU. What it cannot
// show: a race between two barriers that no order of the threads reveals,
// memory models, and speed.
//
// The blocks of a launch run one after the other. Those of a cooperative launch
// run round robin, each up to the next grid barrier; such a kernel may only
// have dynamic shared memory, since static shared memory is the same for all
// blocks.

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_

#include <math.h>

#include <cstddef>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// One block runs at a time, so there is one shared memory for all. It holds
// what the previous block left there, as on a GPU.
#define __shared__ static
// Where a kernel has its dynamic shared memory
// (cc/kernels/cuda/step/persistent.cuh).
#define BLOCKRNN_DYNAMIC_SHARED(name) \
  auto* const name = static_cast<unsigned char*>(::emulation::DynamicShared())
#define __syncthreads() ::emulation::Barrier(__FILE__, __LINE__)

struct dim3 {
  dim3(unsigned x_dim = 1) : x(x_dim) {}  // NOLINT: implicit, as in CUDA
  unsigned x;
  unsigned y = 1;
  unsigned z = 1;
};

// Of the thread that is running.
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
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorLaunchFailure = 719,
  cudaErrorCooperativeLaunchTooLarge = 720,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};

struct EmulatedStream;
using cudaStream_t = EmulatedStream*;
inline constexpr unsigned cudaStreamNonBlocking = 1;

enum cudaLaunchAttributeID { cudaLaunchAttributeCooperative = 2 };
union cudaLaunchAttributeValue {
  int cooperative;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t code);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaMalloc(void** device, std::size_t bytes);
cudaError_t cudaFree(void* device);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void* device, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* device, int value, std::size_t bytes,
                            cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void* device, std::size_t pitch, int value,
                              std::size_t width, std::size_t height,
                              cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

namespace emulation {

// Waits for all other threads of the block.
void Barrier(const char* file, int line);

// Waits for all other threads of the grid.
void GridBarrier();

// The same in two parts. All blocks meet at one of them: at the arrival, so
// that a block may be at its next one before another has done what it does
// before it waits; or at the wait, so that a block may be there before another
// arrives.
void GridArrive();
void GridWait();

// Passes `bytes` bytes, at most kMostExchanged, to the other lanes of the warp
// and waits for theirs at the same place. `place` is compared by its address.
void GiveToWarp(const void* mine, std::size_t bytes, const char* place);
inline constexpr std::size_t kMostExchanged = 64;

// What a lane has passed, valid until the next exchange but one.
const void* OfLane(int lane);

// Copies that are done when their thread waits for the group that it has
// committed with them, for all but the last `prior` groups (cuda_pipeline.h).
void CopyLater(void* to, const void* from, std::size_t bytes);
void CommitCopies();
void AwaitCopies(std::size_t prior);

// The dynamic shared memory of the running block. It ends at an unreadable
// page, and initially holds arbitrary values.
void* DynamicShared();

// Queues `thread` for every thread of every block.
cudaError_t Launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread);

// Runs `work` on a stream: at once, unless the checks request that it runs late
// (streams.cc).
cudaError_t Enqueue(cudaStream_t stream, std::function<cudaError_t()> work);

// Whether the calling function is the one that is to fail (device.cc).
bool FailsNow();

// The error that the calling function must return: that one, or what a kernel
// did before, after which every function fails.
cudaError_t FailureNow();

// Keeps the error of a function for cudaGetLastError, and one of a kernel for
// all functions that follow; returns it.
cudaError_t Report(cudaError_t code);
cudaError_t ReportOfKernel(cudaError_t code);

cudaError_t SetMostShared(const void* kernel, std::size_t bytes);

// Blocks that fit on a multiprocessor at once.
cudaError_t MostBlocks(int* blocks, const void* kernel, int threads,
                       std::size_t dynamic_shared);

}  // namespace emulation

// The arguments are copied, as CUDA does: the launch may come after the
// caller's are gone. Captured by value, since a tuple for each kernel takes as
// long to compile as a small kernel.
template <class... Params>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Params...),
                               std::common_type_t<Params>... args) {
  return emulation::Launch(*config, reinterpret_cast<const void*>(kernel),
                           [=] { kernel(args...); });
}

inline cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute,
                                        int value) {
  return emulation::SetMostShared(kernel, value);
}
template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...),
                                 cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute,
                              value);
}

template <class... Params>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, void (*kernel)(Params...), int threads,
    std::size_t dynamic_shared) {
  return emulation::MostBlocks(blocks, reinterpret_cast<const void*>(kernel),
                               threads, dynamic_shared);
}

#include "tests/gpu/emulation/warp.h"

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_CUDA_RUNTIME_H_
