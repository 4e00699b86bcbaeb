// Defines bfloat16 for the emulation: its bits, and conversion to and from
// float (round to nearest, ties to even).

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_CUDA_BF16_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_CUDA_BF16_H_

#include <cstdint>
#include <cstring>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};  // NaN
  bits += 0x7fff + ((bits >> 16) & 1);
  return {static_cast<uint16_t>(bits >> 16)};
}

inline float __bfloat162float(__nv_bfloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof(out));
  return out;
}

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_CUDA_BF16_H_
