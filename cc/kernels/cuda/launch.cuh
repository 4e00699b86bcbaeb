// Owns the way from the host to the device: shape of the blocks, launches and
// scratch, each with its error. Nothing here waits for the device.

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

// Every kernel has blocks of kWarps warps. A lane of a warp takes a unit, so
// that a warp reads and writes neighbours; the warps take rows.
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
// takes every gridDim.x-th tile, so any grid covers all of them.
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
  // 0 where there is nothing to do.
  BLOCKRNN_HOST_DEVICE int64_t count() const { return across() * down(); }
  BLOCKRNN_HOST_DEVICE int64_t first_row(int64_t tile) const {
    return tile / across() * kTileRows;
  }
  BLOCKRNN_HOST_DEVICE int64_t first_unit(int64_t tile) const {
    return tile % across() * kLanes;
  }
};

inline Error ToError(cudaError_t code) {
  if (code == cudaSuccess) return nullptr;
  // CUDA also keeps the error for whoever asks next; it is reported here.
  static_cast<void>(cudaGetLastError());
  // Of CUDA's own, for a kernel's code or a stream, as much as of the host's.
  if (code == cudaErrorMemoryAllocation) return kOutOfMemory;
  return cudaGetErrorString(code);
}

// Queues kernel(params...) with one block for each tile, or none at all: an
// empty grid is an error to CUDA.
template <class... Params>
Error Launch(void (*kernel)(Params...), int64_t tiles,
             const HostInterface& host,
             const std::common_type_t<Params>&... params) {
  if (tiles == 0) return nullptr;
  constexpr int64_t kMostBlocks = 0x7fffffff;  // CUDA's limit of gridDim.x
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(tiles, kMostBlocks)));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(host.stream);
  return ToError(cudaLaunchKernelEx(&config, kernel, params...));
}

// Gives *array room for `count` elements of device scratch.
template <class C>
Error Allocate(const HostInterface& host, int64_t count, C** array) {
  *array = nullptr;
  if (count == 0) return nullptr;
  *array = static_cast<C*>(
      host.allocate(host.context, static_cast<std::size_t>(count) * sizeof(C)));
  return *array == nullptr ? kOutOfMemory : nullptr;
}

// The same for elements of T, which may be declared only.
template <class T>
Error AllocateStored(const HostInterface& host, int64_t count, T** array) {
  typename StorageOf<T>::Type* stored = nullptr;
  const Error error = Allocate(host, count, &stored);
  *array = reinterpret_cast<T*>(stored);
  return error;
}

// The output itself where T is computed as such, else scratch of its size: what
// is rounded to T in an output goes on unrounded to the next kernel.
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
