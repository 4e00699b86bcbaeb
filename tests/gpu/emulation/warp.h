// Defines the warp-wide operations for the emulation: shuffles, and the tensor
// cores' multiplication as the PTX ISA defines it (mma.m16n8k16), written from
// its tables of fragments and not from the kernels.

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_WARP_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_WARP_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/emulation/cuda_bf16.h"
#include "tests/gpu/emulation/cuda_fp16.h"
#include "tests/gpu/emulation/cuda_runtime.h"

namespace emulation {

// Whether the device has tensor cores for both 16-bit types, as set by
// emulation_capability.
bool HasTensorCores();

// Counts a multiplication, once for each warp.
void CountMma();

inline float MmaElement(__half v) { return __half2float(v); }
inline float MmaElement(__nv_bfloat16 v) { return __bfloat162float(v); }

// A lane's operands of a multiplication: a0 … a7 and b0 … b3.
struct MmaFragments {
  float a[8];
  float b[4];
};

// Which lane holds A[row, k], and as which element.
inline int LaneOfA(int row, int k) { return row % 8 * 4 + k % 8 / 2; }
inline int ElementOfA(int row, int k) {
  return (k >= 8 ? 4 : 0) + (row >= 8 ? 2 : 0) + k % 2;
}
// And B[k, column].
inline int LaneOfB(int k, int column) { return column * 4 + k % 8 / 2; }
inline int ElementOfB(int k) { return (k >= 8 ? 2 : 0) + k % 2; }

// The elements of registers, two in each, the first one in the lower half.
template <class S>
void Unpack(const uint32_t* registers, int count, float* out) {
  for (int n = 0; n < 2 * count; ++n) {
    const auto bits =
        static_cast<uint16_t>(registers[n / 2] >> (n % 2 == 0 ? 0 : 16));
    S element;
    std::memcpy(&element, &bits, sizeof(element));
    out[n] = MmaElement(element);
  }
}

// c0, c1 are row lane / 4, columns lane % 4 · 2 and the next one; c2, c3 those
// of the row eight below. The order of a sum is up to the hardware; here all
// products are added exactly, or nearly so, and rounded once.
template <class S>
bool Mma(const uint32_t (&a)[4], const uint32_t (&b)[2], float (&c)[4]) {
  if (!HasTensorCores()) return false;
  MmaFragments mine;
  Unpack<S>(a, 4, mine.a);
  Unpack<S>(b, 2, mine.b);
  GiveToWarp(&mine, sizeof(mine), "mma");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) CountMma();
  const MmaFragments* of[32];
  for (int n = 0; n < 32; ++n) {
    of[n] = static_cast<const MmaFragments*>(OfLane(n));
  }
  for (int n = 0; n < 4; ++n) {
    const int row = lane / 4 + (n < 2 ? 0 : 8);
    const int column = lane % 4 * 2 + n % 2;
    double sum = c[n];
    for (int k = 0; k < 16; ++k) {
      const double a_element = of[LaneOfA(row, k)]->a[ElementOfA(row, k)];
      sum += a_element * of[LaneOfB(k, column)]->b[ElementOfB(k)];
    }
    c[n] = static_cast<float>(sum);
  }
  return true;
}

// mma.m16n8k8 of TF32: a0 … a3, b0, b1. What the instruction does not read of a
// number is cut off.
struct MmaTf32Fragments {
  float a[4];
  float b[2];
};

inline float CutToTf32(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof(bits));
  bits &= 0xffffe000;
  std::memcpy(&v, &bits, sizeof(bits));
  return v;
}

inline void MmaTf32(const float (&a)[4], const float (&b)[2], float (&c)[4]) {
  if (!HasTensorCores()) std::abort();
  MmaTf32Fragments mine;
  for (int n = 0; n < 4; ++n) mine.a[n] = CutToTf32(a[n]);
  for (int n = 0; n < 2; ++n) mine.b[n] = CutToTf32(b[n]);
  GiveToWarp(&mine, sizeof(mine), "mma of TF32");
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane == 0) CountMma();
  const auto of = [](int which) {
    return static_cast<const MmaTf32Fragments*>(OfLane(which));
  };
  for (int n = 0; n < 4; ++n) {
    const int row = lane / 4 + (n < 2 ? 0 : 8);
    const int column = lane % 4 * 2 + n % 2;
    double sum = c[n];
    for (int k = 0; k < 8; ++k) {
      const double a_element =
          of(row % 8 * 4 + k % 4)->a[(k >= 4 ? 2 : 0) + (row >= 8 ? 1 : 0)];
      sum += a_element * of(column * 4 + k % 4)->b[k >= 4 ? 1 : 0];
    }
    c[n] = static_cast<float>(sum);
  }
}

}  // namespace emulation

// Where a kernel has the instruction (cc/kernels/cuda/step/mma.cuh).
#define BLOCKRNN_EMULATED_MMA(type, a, b, c) ::emulation::Mma<type>(a, b, c)
#define BLOCKRNN_EMULATED_MMA_TF32(a, b, c) ::emulation::MmaTf32(a, b, c)

template <class V>
V __shfl_sync(unsigned mask, V value, int lane) {
  if (mask != 0xffffffff) std::abort();  // no kernel has another
  ::emulation::GiveToWarp(&value, sizeof(value), "shuffle");
  V out;
  std::memcpy(&out, ::emulation::OfLane(lane), sizeof(out));
  return out;
}

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_WARP_H_
