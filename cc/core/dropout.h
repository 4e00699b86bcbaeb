// Defines the rule of dropout: how its random number decides whether an element
// is kept, and by what it is then multiplied.

#ifndef BLOCKRNN_CORE_DROPOUT_H_
#define BLOCKRNN_CORE_DROPOUT_H_

#include <cstdint>

#include "cc/core/portable.h"

namespace blockrnn {

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
