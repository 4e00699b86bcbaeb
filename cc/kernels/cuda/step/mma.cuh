// Defines the tensor core instructions that the engine uses: for 16-bit types,
// with its replacement for devices that lack it, and for TF32.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_MMA_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_MMA_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Four 16-bit elements in two registers, the first one in the lower half of the
// first register.
struct alignas(8) Pairs {
  uint32_t value[2];
};

// c[16, 8] += a[16, 16] · b[16, 8]: mma.m16n8k16 of the PTX ISA. With g = lane
// / 4 and t = lane % 4 a lane holds
//   a  rows g, g + 8, g, g + 8, and of each the depths 2t, 2t + 1; in the last
//      two registers 2t + 8, 2t + 9
//   b  column g, depths 2t, 2t + 1 and 2t + 8, 2t + 9
//   c  row g, columns 2t, 2t + 1; row g + 8, the same columns
// All lanes of a warp must call it together. Returns whether the device has it.
#ifdef BLOCKRNN_EMULATED_MMA
template <class S>
bool TensorMma(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  return BLOCKRNN_EMULATED_MMA(S, a, b, c);
}
#else
template <class S>
__device__ __forceinline__ bool TensorMma(const uint32_t (&a)[4],
                                          const uint32_t (&b)[2],
                                          float (&c)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<S, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    static_assert(std::is_same_v<S, __nv_bfloat16>);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  return true;
#else
  return false;
#endif
}
#endif

// An element of a pair.
template <class S>
__device__ __forceinline__ float WidenLow(uint32_t pair) {
  const auto bits = static_cast<uint16_t>(pair);
  S value;
  memcpy(&value, &bits, sizeof(value));
  return Widen(value);
}
template <class S>
__device__ __forceinline__ float WidenHigh(uint32_t pair) {
  return WidenLow<S>(pair >> 16);
}

// *c += the dot product of two pairs.
template <class S>
__device__ __forceinline__ void AddPairs(uint32_t a, uint32_t b, float* c) {
  *c += WidenLow<S>(a) * WidenLow<S>(b);
  *c += WidenHigh<S>(a) * WidenHigh<S>(b);
}

// The same without tensor cores, before sm_80: slow but correct. A lane reads
// the rows and columns of its own elements of c from the other lanes.
template <class S>
__device__ __forceinline__ void PlainMma(const uint32_t (&a)[4],
                                         const uint32_t (&b)[2],
                                         float (&c)[4]) {
  constexpr uint32_t kAll = 0xffffffff;
  const int row = Lane() / 4 * 4;         // the first lane with row g
  const int column = Lane() % 4 * 2 * 4;  // the first one with column 2t
#pragma unroll 1
  for (int n = 0; n < 4; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t upper = __shfl_sync(kAll, a[2 * half], row + n);
      const uint32_t lower = __shfl_sync(kAll, a[2 * half + 1], row + n);
      const uint32_t left = __shfl_sync(kAll, b[half], column + n);
      const uint32_t right = __shfl_sync(kAll, b[half], column + 4 + n);
      AddPairs<S>(upper, left, &c[0]);
      AddPairs<S>(upper, right, &c[1]);
      AddPairs<S>(lower, left, &c[2]);
      AddPairs<S>(lower, right, &c[3]);
    }
  }
}

template <class S>
__device__ __forceinline__ void Mma(const uint32_t (&a)[4],
                                    const uint32_t (&b)[2], float (&c)[4]) {
  if (!TensorMma<S>(a, b, c)) PlainMma<S>(a, b, c);
}

// Rounds to TF32's 10 bits of mantissa, to the nearest, ties away from zero.
__device__ __forceinline__ float RoundToTf32(float v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
#else
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bits;
  memcpy(&bits, &v, sizeof(bits));
  if ((bits & kExponent) == kExponent) return v;
  bits = (bits + 0x1000) & 0xffffe000;
#endif
  float out;
  memcpy(&out, &bits, sizeof(out));
  return out;
}

// Whether devices of sm_80 and later find the instruction of MmaTf32 in this
// library. One for older devices alone has nothing for them but its PTX, which
// does not have it.
#ifdef __CUDA_ARCH_LIST__
inline constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};  // ascending
inline constexpr bool kHasTf32 =
    kArchitectures[sizeof(kArchitectures) / sizeof(int) - 1] >= 800;
#else
inline constexpr bool kHasTf32 = true;  // the emulation
#endif

// c[16, 8] += a[16, 8] · b[8, 8], of rounded numbers: mma.m16n8k8 of the PTX
// ISA. With g = lane / 4 and t = lane % 4 a lane holds
//   a  rows g, g + 8 of depth t, then of depth t + 4
//   b  column g, depths t and t + 4
//   c  as in TensorMma
// All lanes of a warp must call it together, on a device of sm_80 or later, and
// where kHasTf32.
__device__ __forceinline__ void MmaTf32(const float (&a)[4],
                                        const float (&b)[2], float (&c)[4]) {
#ifdef BLOCKRNN_EMULATED_MMA_TF32
  BLOCKRNN_EMULATED_MMA_TF32(a, b, c);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
        "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#else
  c[0] = c[1] = c[2] = c[3] = nanf("");  // never launched on such a device
#endif
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_MMA_CUH_
