// Defines half precision for the emulation: its bits, and conversion to and
// from float (round to nearest, ties to even).

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_CUDA_FP16_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_CUDA_FP16_H_

#include <cmath>
#include <cstdint>
#include <cstring>

struct __half {
  uint16_t bits;
};

inline __half __float2half_rn(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = (bits >> 16) & 0x8000;
  bits &= 0x7fffffff;
  uint32_t out;
  if (bits > 0x7f800000) {
    out = 0x7e00;  // NaN
  } else if (bits >= 0x477ff000) {
    out = 0x7c00;  // 65520 and more: infinity
  } else if (bits >= 0x38800000) {
    // A normal number: 13 bits fewer, and another bias of the exponent.
    bits += 0xfff + ((bits >> 13) & 1);
    out = (bits - 0x38000000) >> 13;
  } else {
    // Below 2^-14 the numbers are multiples of 2^-24.
    out =
        static_cast<uint32_t>(std::nearbyint(std::ldexp(std::fabs(value), 24)));
  }
  return {static_cast<uint16_t>(sign | out)};
}

inline float __half2float(__half value) {
  const int exponent = (value.bits >> 10) & 0x1f;
  const int fraction = value.bits & 0x3ff;
  float magnitude;
  if (exponent == 0x1f) {
    magnitude = fraction != 0 ? NAN : INFINITY;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(0x400 + fraction), exponent - 25);
  }
  return (value.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_CUDA_FP16_H_
