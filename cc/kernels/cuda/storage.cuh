// Defines how numbers are stored in device memory and in which type they are
// computed: half and bfloat16 are loaded and stored as such, and computed in
// float32.
//
// The engine's interface only declares Eigen's 16-bit types, so that it does
// not depend on Eigen. They have the bits of CUDA's types; pointer arithmetic
// on them goes through the functions below.

#ifndef BLOCKRNN_KERNELS_CUDA_STORAGE_CUH_
#define BLOCKRNN_KERNELS_CUDA_STORAGE_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cc/core/portable.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

template <class T>
struct StorageOf {
  using Type = T;
};
template <>
struct StorageOf<Eigen::half> {
  using Type = __half;
};
template <>
struct StorageOf<Eigen::bfloat16> {
  using Type = __nv_bfloat16;
};

// A float that the GEMM of a step multiplies on tensor cores, rounded to TF32's
// 10 bits of mantissa. No array of the engine's interface has it.
struct Tf32;
template <>
struct StorageOf<Tf32> {
  using Type = float;
};

// The type in which elements are computed and accumulated.
template <class T>
using ComputeType =
    std::conditional_t<std::is_same_v<T, double>, double, float>;

// p + count
template <class T>
BLOCKRNN_HOST_DEVICE const T* Offset(const T* p, int64_t count) {
  using Storage = typename StorageOf<T>::Type;
  return reinterpret_cast<const T*>(reinterpret_cast<const Storage*>(p) +
                                    count);
}

template <class T>
BLOCKRNN_HOST_DEVICE T* Offset(T* p, int64_t count) {
  return const_cast<T*>(Offset(static_cast<const T*>(p), count));
}

__device__ __forceinline__ float Widen(__half v) { return __half2float(v); }
__device__ __forceinline__ float Widen(__nv_bfloat16 v) {
  return __bfloat162float(v);
}
__device__ __forceinline__ float Widen(float v) { return v; }
__device__ __forceinline__ double Widen(double v) { return v; }

__device__ __forceinline__ void Round(float v, __half* out) {
  *out = __float2half_rn(v);
}
__device__ __forceinline__ void Round(float v, __nv_bfloat16* out) {
  *out = __float2bfloat16_rn(v);
}
__device__ __forceinline__ void Round(float v, float* out) { *out = v; }
__device__ __forceinline__ void Round(double v, double* out) { *out = v; }

template <class T>
__device__ __forceinline__ ComputeType<T> Load(const T* p, int64_t index) {
  return Widen(reinterpret_cast<const typename StorageOf<T>::Type*>(p)[index]);
}

template <class T>
__device__ __forceinline__ void Store(T* p, int64_t index, ComputeType<T> v) {
  Round(v, reinterpret_cast<typename StorageOf<T>::Type*>(p) + index);
}

// v after it is stored as T and loaded again.
template <class T>
__device__ __forceinline__ ComputeType<T> AsStored(ComputeType<T> v) {
  typename StorageOf<T>::Type stored;
  Round(v, &stored);
  return Widen(stored);
}

// Stores v unless p is nullptr.
template <class T>
__device__ __forceinline__ void StoreIf(T* p, int64_t index, ComputeType<T> v) {
  if (p != nullptr) Store(p, index, v);
}

// Stores v to the output, and unrounded to `computed` if that is another array
// (ComputedInPlace).
template <class T>
__device__ __forceinline__ void StoreBoth(T* out, ComputeType<T>* computed,
                                          int64_t index, ComputeType<T> v) {
  Store(out, index, v);
  if constexpr (!std::is_same_v<T, ComputeType<T>>) computed[index] = v;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STORAGE_CUH_
