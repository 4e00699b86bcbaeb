// Defines how the host reaches the device: the shape of thread blocks, kernel
// launches and scratch memory, each with its error. Nothing here waits for the
// device.

#ifndef BLOCKRNN_KERNELS_CUDA_LAUNCH_CUH_
#define BLOCKRNN_KERNELS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cc/core/portable.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Every kernel has blocks of kWarps warps. The lanes of a warp take
// neighbouring units, so that its reads and writes are coalesced; the warps
// take rows.
inline constexpr int kLanes = 32;
inline constexpr int kWarps = 8;
inline constexpr int kThreads = kLanes * kWarps;

__device__ __forceinline__ int Lane() {
  return static_cast<int>(threadIdx.x) % kLanes;
}
__device__ __forceinline__ int Warp() {
  return static_cast<int>(threadIdx.x) / kLanes;
}

// [rows, units] cut into tiles of kTileRows rows and kLanes units. A block
// takes every gridDim.x-th tile, so a grid of any size covers all of them.
template <int kTileRows>
struct Tiles {
  int64_t rows = 0;
  int64_t units = 0;

  BLOCKRNN_HOST_DEVICE int64_t across() const {
    return units / kLanes + (units % kLanes != 0);
  }
  BLOCKRNN_HOST_DEVICE int64_t down() const {
    return rows / kTileRows + (rows % kTileRows != 0);
  }
  // 0 where the matrix is empty.
  BLOCKRNN_HOST_DEVICE int64_t count() const { return across() * down(); }
  BLOCKRNN_HOST_DEVICE int64_t first_row(int64_t tile) const {
    return tile / across() * kTileRows;
  }
  BLOCKRNN_HOST_DEVICE int64_t first_unit(int64_t tile) const {
    return tile % across() * kLanes;
  }
};

// What Run (engine.h) calls: a specialization beside each cell, which has
// Run(args, host) and, for the sequences of stacks, RunDirections.
template <class Args>
struct FunctionOf;

inline Error ToError(cudaError_t code) {
  if (code == cudaSuccess) return nullptr;
  // Clears the error that CUDA also keeps for cudaGetLastError: it is reported
  // here.
  static_cast<void>(cudaGetLastError());
  // CUDA may run out of memory of its own, for a kernel's code or a stream.
  if (code == cudaErrorMemoryAllocation) return kOutOfMemory;
  return cudaGetErrorString(code);
}

// Queues kernel(params...) with one block for each tile, or nothing if there is
// no tile: to CUDA an empty grid is an error.
template <class... Params>
Error Launch(void (*kernel)(Params...), int64_t tiles,
             const HostInterface& host,
             const std::common_type_t<Params>&... params) {
  if (tiles == 0) return nullptr;
  constexpr int64_t kMaxBlocks = 0x7fffffff;  // CUDA's limit of gridDim.x
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(tiles, kMaxBlocks)));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(host.stream);
  return ToError(cudaLaunchKernelEx(&config, kernel, params...));
}

// Allocates device scratch for `count` elements.
template <class C>
Error Allocate(const HostInterface& host, int64_t count, C** array) {
  *array = nullptr;
  if (count == 0) return nullptr;
  *array = static_cast<C*>(
      host.allocate(host.context, static_cast<std::size_t>(count) * sizeof(C)));
  return *array == nullptr ? kOutOfMemory : nullptr;
}

// The same for elements of T, which may be an incomplete type.
template <class T>
Error AllocateStored(const HostInterface& host, int64_t count, T** array) {
  typename StorageOf<T>::Type* stored = nullptr;
  const Error error = Allocate(host, count, &stored);
  *array = reinterpret_cast<T*>(stored);
  return error;
}

// Returns the output itself if T is also the compute type, else scratch of its
// size: the next kernel reads the values before they were rounded to T.
template <class T>
Error ComputedInPlace(const HostInterface& host, T* output, int64_t count,
                      ComputeType<T>** array) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    *array = output;
    return nullptr;
  } else {
    return Allocate(host, count, array);
  }
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_LAUNCH_CUH_
