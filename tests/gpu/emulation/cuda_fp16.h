// Defines half precision for the emulation: its bits, and the compiler's
// conversion to and from float (round to nearest, ties to even).

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_CUDA_FP16_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_CUDA_FP16_H_

#include <cstdint>
#include <cstring>

struct __half {
  uint16_t bits;
};

inline __half __float2half_rn(float value) {
  const auto rounded = static_cast<_Float16>(value);
  __half out;
  std::memcpy(&out, &rounded, sizeof(out));
  return out;
}

inline float __half2float(__half value) {
  _Float16 out;
  std::memcpy(&out, &value, sizeof(out));
  return out;
}

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_CUDA_FP16_H_
