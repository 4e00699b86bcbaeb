// Defines dropout: its random numbers, and how such a number decides whether an
// element is kept, and by what it is then multiplied.
//
// The numbers are those of Philox4x32-10, a stateless generator that makes four
// numbers from a key and a counter (J. K. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). So any part of a mask can be drawn by
// itself, on any thread, and is always the same.

#ifndef BLOCKRNN_CORE_DROPOUT_H_
#define BLOCKRNN_CORE_DROPOUT_H_

#include <cstdint>

#include "cc/core/portable.h"

namespace blockrnn {

// The numbers' key, and the counter as 32-bit digits, the lowest first.
struct PhiloxState {
  uint32_t key[2] = {};
  uint32_t counter[4] = {};
};

// The numbers of counters one after another: value[n][counter] is the n-th of
// the four of a counter. So stored, a loop over counters fills vectors.
template <int kCounters>
struct PhiloxNumbers {
  uint32_t value[4][kCounters];
};

// `state` with its counter `count` further.
BLOCKRNN_HOST_DEVICE PhiloxState PhiloxSkip(PhiloxState state, uint64_t count) {
  uint64_t carry = 0;
  for (int digit = 0; digit < 4; ++digit) {
    carry += state.counter[digit] + (count & 0xffffffffu);
    count >>= 32;
    state.counter[digit] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  return state;
}

// The numbers of the state's counter and those after it.
template <int kCounters>
BLOCKRNN_HOST_DEVICE PhiloxNumbers<kCounters> Philox4x32(
    const PhiloxState& state) {
  constexpr int kRounds = 10;
  constexpr uint32_t kMultiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
  constexpr uint32_t kKeyStep[2] = {0x9E3779B9u, 0xBB67AE85u};
  // The lowest digit overflows once at most; the others have two values.
  const PhiloxState last = PhiloxSkip(state, kCounters - 1);
  PhiloxNumbers<kCounters> numbers;
  for (int n = 0; n < kCounters; ++n) {
    const uint32_t lowest = state.counter[0] + static_cast<uint32_t>(n);
    const bool carried = lowest < state.counter[0];
    uint32_t x0 = lowest;
    uint32_t x1 = carried ? last.counter[1] : state.counter[1];
    uint32_t x2 = carried ? last.counter[2] : state.counter[2];
    uint32_t x3 = carried ? last.counter[3] : state.counter[3];
    uint32_t key0 = state.key[0];
    uint32_t key1 = state.key[1];
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t a = uint64_t{kMultiplier[0]} * x0;
      const uint64_t b = uint64_t{kMultiplier[1]} * x2;
      x0 = static_cast<uint32_t>(b >> 32) ^ x1 ^ key0;
      x1 = static_cast<uint32_t>(b);
      x2 = static_cast<uint32_t>(a >> 32) ^ x3 ^ key1;
      x3 = static_cast<uint32_t>(a);
      key0 += kKeyStep[0];
      key1 += kKeyStep[1];
    }
    numbers.value[0][n] = x0;
    numbers.value[1][n] = x1;
    numbers.value[2][n] = x2;
    numbers.value[3][n] = x3;
  }
  return numbers;
}

// Elements that are kept are scaled, so that the mean stays the same. With a
// rate of 1 none is kept.
template <class C>
C DropoutScale(float rate) {
  return rate < 1 ? 1 / (1 - static_cast<C>(rate)) : C(0);
}

// Each element has a random number of 0..2³² − 1, and is kept where that is at
// least rate · 2³².
struct DropoutRule {
  bool keeps = false;  // any
  uint32_t least = 0;

  explicit DropoutRule(float rate)
      : keeps(rate < 1),
        least(static_cast<uint32_t>(static_cast<double>(keeps ? rate : 0) *
                                    0x1p32)) {}

  BLOCKRNN_HOST_DEVICE bool Keeps(uint32_t number) const {
    return number >= least && keeps;
  }
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_DROPOUT_H_
