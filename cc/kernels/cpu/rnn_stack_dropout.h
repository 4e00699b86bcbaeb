// Owns dropout between the layers of a stack: drawing a mask, and applying it
// in the forward and to gradients.

#ifndef BLOCKRNN_KERNELS_CPU_RNN_STACK_DROPOUT_H_
#define BLOCKRNN_KERNELS_CPU_RNN_STACK_DROPOUT_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/philox.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/rows.h"
#include "cc/kernels/cpu/simd.h"

namespace blockrnn::cpu {

// What is kept is scaled, so that its mean stays. With a rate of 1 nothing is.
template <class C>
C DropoutScale(float rate) {
  return rate < 1 ? 1 / (1 - static_cast<C>(rate)) : C(0);
}

// Draws the mask of `elements` elements: four to a counter, from `state` on; an
// element is kept where its number, of 2³², is at least rate · 2³². The mask
// has a bit per element, the lowest of a byte first, zeros behind the last.
inline void DrawMask(const Host& host, const PhiloxState& state, float rate,
                     int64_t elements, uint8_t* mask) {
  constexpr int kCounters = 16;
  constexpr int kInRow = 4 * kCounters;
  const auto dropped =
      static_cast<uint64_t>(static_cast<double>(rate) * 0x1p32);
  ParallelForRows(
      host, (elements + kInRow - 1) / kInRow, kInRow,
      [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const PhiloxNumbers<kCounters> numbers =
              Philox4x32<kCounters>(PhiloxSkip(state, row * kCounters));
          const int64_t count =
              std::min<int64_t>(kInRow, elements - row * kInRow);
          for (int64_t j = 0; j < count; j += 8) {
            unsigned bits = 0;
            for (int64_t k = j; k < std::min(j + 8, count); ++k) {
              const bool keep = numbers.value[k % 4][k / 4] >= dropped;
              bits |= static_cast<unsigned>(keep) << (k - j);
            }
            mask[row * (kInRow / 8) + j / 8] = static_cast<uint8_t>(bits);
          }
        }
      });
}

// Calls body(j, keep) for the elements in parallel, in order within a piece.
template <class Body>
void ForEachMasked(const Host& host, const uint8_t* mask, int64_t elements,
                   const Body& body) {
  ParallelForRows(host, (elements + 7) / 8, 8, [&](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      const unsigned bits = mask[byte];
      const int64_t last = std::min(8 * byte + 8, elements);
      for (int64_t j = 8 * byte; j < last; ++j) {
        body(j, (bits >> (j % 8) & 1u) != 0);
      }
    }
  });
}

// dropped[j] = kept · scale or, whatever stands there, 0.
template <class T>
void ApplyMask(const Host& host, const uint8_t* mask, float rate,
               int64_t elements, const T* from, T* dropped) {
  using C = ComputeType<T>;
  const C scale = DropoutScale<C>(rate);
  ForEachMasked(host, mask, elements, [=](int64_t j, bool keep) {
    dropped[j] = keep ? T(static_cast<C>(from[j]) * scale) : T(0);
  });
}

// grad[j] += other[j]: what two directions have to say about the same input.
template <class T>
void AddGradients(const Host& host, const T* other, int64_t elements, T* grad) {
  using C = ComputeType<T>;
  ParallelForRows(host, elements, 1, [&](int64_t begin, int64_t end) {
    ForEachVector<C>(end - begin, [&](int64_t j, auto lanes) {
      Store(
          grad + begin + j,
          Load<C>(grad + begin + j, lanes) + Load<C>(other + begin + j, lanes),
          lanes);
    });
  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RNN_STACK_DROPOUT_H_
