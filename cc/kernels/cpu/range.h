// Defines ranges of rows and panels, and shares of them.

#ifndef BLOCKRNN_KERNELS_CPU_RANGE_H_
#define BLOCKRNN_KERNELS_CPU_RANGE_H_

#include <cstdint>

namespace blockrnn::cpu {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// A half-open range.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Part `piece` of `pieces` equal parts of something that is counted.
struct Share {
  int piece = 0;
  int pieces = 1;

  Range RangeOf(int64_t count) const {
    return {count * piece / pieces, count * (piece + 1) / pieces};
  }
  Range PartOf(Range whole) const {
    const Range part = RangeOf(whole.end - whole.begin);
    return {whole.begin + part.begin, whole.begin + part.end};
  }
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RANGE_H_
