// Implements dropout between the layers of a stack: drawing a mask, and
// applying it to activations and to gradients.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_DROPOUT_H_
#define BLOCKRNN_KERNELS_CPU_STACK_DROPOUT_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/dropout.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// Draws the mask of `elements` elements: four to a counter, from `state` on.
// The mask has a bit per element, the lowest of a byte first, zeros past
// the last.
inline void DrawMask(const Executor& executor, const PhiloxState& state,
                     float rate, int64_t elements, uint8_t* mask) {
  constexpr int kCounters = 16;
  constexpr int kBytes = kCounters / 2;
  const DropoutRule rule(rate);
  const int64_t bytes = (elements + 7) / 8;
  const auto draw = [=](int64_t row) {
    const PhiloxNumbers<kCounters> numbers =
        Philox4x32<kCounters>(PhiloxSkip(state, row * kCounters));
    uint8_t nibble[kCounters];  // of a counter's four elements
    for (int n = 0; n < kCounters; ++n) {
      unsigned bits = 0;
      for (int k = 0; k < 4; ++k) {
        bits |= (rule.Keeps(numbers.value[k][n]) ? 1u : 0u) << k;
      }
      nibble[n] = static_cast<uint8_t>(bits);
    }
    const int64_t count = std::min<int64_t>(kBytes, bytes - row * kBytes);
    for (int64_t n = 0; n < count; ++n) {
      mask[row * kBytes + n] =
          static_cast<uint8_t>(nibble[2 * n] | nibble[2 * n + 1] << 4);
    }
  };
  ParallelForRows(executor, (bytes + kBytes - 1) / kBytes, 4 * kCounters,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t row = begin; row < end; ++row) draw(row);
                  });
  if (elements % 8 != 0) mask[bytes - 1] &= (1 << (elements % 8)) - 1;
}

// dropped[j] = from[j] · scale or, whatever from[j] is, 0. May be in place.
template <class T>
void ApplyMask(const Executor& executor, const uint8_t* mask, float rate,
               int64_t elements, const T* from, T* dropped) {
  using C = ComputeType<T>;
  const C scale = DropoutScale<C>(rate);
  const auto apply = [=](int64_t byte, int64_t count) {
    C value[8] = {};
    for (int64_t k = 0; k < count; ++k) {
      value[k] = static_cast<C>(from[8 * byte + k]) * scale;
    }
    for (int k = 0; k < 8; ++k) {
      value[k] = (mask[byte] & (1u << k)) != 0 ? value[k] : C(0);
    }
    for (int64_t k = 0; k < count; ++k) {
      dropped[8 * byte + k] = static_cast<T>(value[k]);
    }
  };
  ParallelForRows(executor, (elements + 7) / 8, 8,
                  [&](int64_t begin, int64_t end) {
                    const int64_t whole = std::min(end, elements / 8);
                    for (int64_t byte = begin; byte < whole; ++byte)
                      apply(byte, 8);
                    if (whole < end) apply(whole, elements % 8);
                  });
}

// grad[j] += other[j]: the gradients that two directions give their input.
template <class T>
void AddGradients(const Executor& executor, const T* other, int64_t elements,
                  T* grad) {
  using C = ComputeType<T>;
  ParallelForRows(executor, elements, 1, [&](int64_t begin, int64_t end) {
    ForEachVector<C>(end - begin, [&](int64_t j, auto lanes) {
      Store(
          grad + begin + j,
          Load<C>(grad + begin + j, lanes) + Load<C>(other + begin + j, lanes),
          lanes);
    });
  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_DROPOUT_H_
