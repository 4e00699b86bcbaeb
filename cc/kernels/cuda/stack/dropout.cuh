// Implements dropout between the layers of a stack on the GPU, and other
// elementwise passes. The masks have the bits of the CPU's.

#ifndef BLOCKRNN_KERNELS_CUDA_STACK_DROPOUT_CUH_
#define BLOCKRNN_KERNELS_CUDA_STACK_DROPOUT_CUH_

#include <cstdint>

#include "cc/core/dropout.h"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// Draws a byte of the mask: eight elements, four from each counter, the first
// in the lowest bit; zeros past the last one.
struct MaskByte {
  PhiloxState philox;
  DropoutRule rule;
  int64_t elements;
  uint8_t* mask;

  __device__ void operator()(int64_t byte) const {
    constexpr int kCounters = 2;
    const PhiloxNumbers<kCounters> numbers = Philox4x32<kCounters>(
        PhiloxSkip(philox, static_cast<uint64_t>(byte) * kCounters));
    unsigned bits = 0;
#pragma unroll
    for (int n = 0; n < kCounters; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (rule.Keeps(numbers.value[k][n])) bits |= 1u << (4 * n + k);
      }
    }
    const int64_t left = elements - 8 * byte;
    if (left < 8) bits &= (1u << left) - 1;
    mask[byte] = static_cast<uint8_t>(bits);
  }
};

inline Error DrawMask(const HostInterface& host, const PhiloxState& philox,
                      float rate, int64_t elements, uint8_t* mask) {
  return RunForEach(host, (elements + 7) / 8,
                    MaskByte{philox, DropoutRule(rate), elements, mask});
}

// to[j] = from[j] · scale where the mask keeps it, else 0 whatever from[j] is.
// May run in place.
template <class T>
struct MaskedElement {
  const uint8_t* mask;
  ComputeType<T> scale;
  const T* from;
  T* to;

  __device__ void operator()(int64_t j) const {
    using C = ComputeType<T>;
    const bool keeps = ((mask[j / 8] >> (j % 8)) & 1) != 0;
    Store(to, j, keeps ? Load(from, j) * scale : C(0));
  }
};

template <class T>
Error ApplyMask(const HostInterface& host, const uint8_t* mask, float rate,
                int64_t elements, const T* from, T* to) {
  const ComputeType<T> scale = DropoutScale<ComputeType<T>>(rate);
  return RunForEach(host, elements, MaskedElement<T>{mask, scale, from, to});
}

// grad[j] += other[j]: the sum of the two directions' gradients of the same
// input.
template <class T>
struct AddedElement {
  const T* other;
  T* grad;

  __device__ void operator()(int64_t j) const {
    Store(grad, j, Load(grad, j) + Load(other, j));
  }
};

template <class T>
Error AddGradients(const HostInterface& host, const T* other, int64_t elements,
                   T* grad) {
  return RunForEach(host, elements, AddedElement<T>{other, grad});
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STACK_DROPOUT_CUH_
