// Defines multiply-adds by lane, for processors whose instruction takes one
// lane of a vector as the factor of all lanes of another (AArch64), and the
// GEMM's inner loop with them: a vector of adjacent values of a row takes the
// place of as many broadcast values. So a tile of 6 rows by 4 vectors has 18
// loads for 96 multiply-adds.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_MULTIPLY_BY_LANE_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_MULTIPLY_BY_LANE_H_

#if defined(__aarch64__)

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"

namespace blockrnn::cpu {

// (Lane kLane of a) · b + c. Of the intrinsics GCC copies sums from register to
// register.
template <int kLane, class C>
EIGEN_ALWAYS_INLINE Vec<C> MulAddLane(const Vec<C>& a, const Vec<C>& b,
                                      const Vec<C>& c) {
  static_assert(kLane < Vec<C>::kSize);
  Vec<C> sum = c;
  if constexpr (std::is_same_v<C, float>) {
    asm("fmla %0.4s, %1.4s, %2.s[%3]"
        : "+w"(sum.packet)
        : "w"(b.packet), "w"(a.packet), "i"(kLane));
  } else {
    asm("fmla %0.2d, %1.2d, %2.d[%3]"
        : "+w"(sum.packet)
        : "w"(b.packet), "w"(a.packet), "i"(kLane));
  }
  return sum;
}

// A part of the GEMM of a tile: adjacent depths, of which `values` has a vector
// of each row, with those vectors of the panel that one of kOperands operands
// multiplies (MultiplyElements in panel.h), numbered depth by depth.
template <int kGateVectors, int kUsed, int kOperands, int kOperand,
          int kVectors>
struct LaneVectors {
  static constexpr int kEach = kVectors / kOperands;
  static constexpr int Lane(int i) { return i / kEach; }
  static constexpr int Vector(int i) { return kOperand * kEach + i % kEach; }
  static constexpr bool Used(int i) { return Vector(i) % kGateVectors < kUsed; }

  template <int kIndex, class P, int kRows, class Tile>
  static EIGEN_ALWAYS_INLINE void Multiply(
      const Vec<typename Elements<P>::Operand> (&values)[kRows],
      const Vec<typename Elements<P>::Operand>& b, Tile* tile) {
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      auto& sum = tile->sum[m][Vector(kIndex)];
      sum = MulAddLane<Lane(kIndex)>(values[m], b, sum);
    }
  }

  // Vector kFirst and, with kTwo, the next: one instruction loads both.
  template <int kFirst, bool kTwo, class P, int kRows, class Tile>
  static EIGEN_ALWAYS_INLINE void MultiplyPair(
      const Vec<typename Elements<P>::Operand> (&values)[kRows], const P* panel,
      Tile* tile) {
    constexpr int kSecond = kFirst + (kTwo ? 1 : 0);
    constexpr bool kUsesFirst = Used(kFirst);
    constexpr bool kUsesSecond = kTwo && Used(kSecond);
    const auto load = [&](int i) {
      return Elements<P>::Load(panel + (Lane(i) * kVectors + Vector(i)) *
                                           Vec<P>::kSize);
    };
    Vec<typename Elements<P>::Operand> b[2];
    if constexpr (kUsesFirst) b[0] = load(kFirst);
    if constexpr (kUsesSecond) b[1] = load(kSecond);
    if constexpr (kUsesFirst) KeepInRegister(&b[0]);
    if constexpr (kUsesSecond) KeepInRegister(&b[1]);
    if constexpr (kUsesFirst) Multiply<kFirst, P>(values, b[0], tile);
    if constexpr (kUsesSecond) Multiply<kSecond, P>(values, b[1], tile);
  }

  template <int kLanes, int... kPair, class P, int kRows, class Tile>
  static EIGEN_ALWAYS_INLINE void MultiplyAll(
      std::integer_sequence<int, kPair...>,
      const Vec<typename Elements<P>::Operand> (&values)[kRows], const P* panel,
      Tile* tile) {
    (MultiplyPair<2 * kPair, (2 * kPair + 1 < kLanes * kEach)>(values, panel,
                                                               tile),
     ...);
  }
};

// The depths from p on, kLanes of them, for all operands.
template <int kGateVectors, int kUsed, int kLanes, int... kOperand, class P,
          int kRows, class Tile>
EIGEN_ALWAYS_INLINE void MultiplyLanes(
    std::integer_sequence<int, kOperand...>,
    const RowPointers<typename Elements<P>::Operand, kRows>& a,
    int64_t a_stride, int64_t p, const P* panel, Tile* tile) {
  using Operand = typename Elements<P>::Operand;
  const auto multiply = [&](auto operand) {
    Vec<Operand> values[kRows];
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      const Operand* const from = a.row[m] + (operand() * a_stride + p);
      if constexpr (kLanes == Vec<P>::kSize) {
        values[m] = Elements<Operand>::Load(from);
      } else {
        values[m] = Vec<Operand>(*from);
      }
    }
    using Vectors = LaneVectors<kGateVectors, kUsed, sizeof...(kOperand),
                                operand(), Tile::kNumVectors>;
    constexpr int kPairs = (kLanes * Vectors::kEach + 1) / 2;
    Vectors::template MultiplyAll<kLanes>(
        std::make_integer_sequence<int, kPairs>(), values, panel, tile);
  };
  (multiply(std::integral_constant<int, kOperand>()), ...);
}

// MultiplyElements of panel.h.
template <int kGateVectors, int kUsed, int kOperands, class P, int kRows,
          class Tile>
EIGEN_ALWAYS_INLINE void MultiplyByLane(
    const RowPointers<typename Elements<P>::Operand, kRows>& a,
    int64_t a_stride, int64_t elements, const P* panel, Tile* tile) {
  constexpr int kLanes = Vec<P>::kSize;
  constexpr int kStep = Tile::kNumVectors * kLanes;  // elements of a depth
  constexpr std::make_integer_sequence<int, kOperands> kAll{};
  int64_t p = 0;
  // With fewer vectors the loop itself counts for more.
  if constexpr (Tile::kNumVectors < 4) {
    for (; p + 2 * kLanes <= elements; p += 2 * kLanes) {
      MultiplyLanes<kGateVectors, kUsed, kLanes>(kAll, a, a_stride, p, panel,
                                                 tile);
      MultiplyLanes<kGateVectors, kUsed, kLanes>(kAll, a, a_stride, p + kLanes,
                                                 panel + kLanes * kStep, tile);
      panel += 2 * kLanes * kStep;
    }
  }
  for (; p + kLanes <= elements; p += kLanes) {
    MultiplyLanes<kGateVectors, kUsed, kLanes>(kAll, a, a_stride, p, panel,
                                               tile);
    panel += kLanes * kStep;
  }
  BLOCKRNN_ROLLED
  for (; p < elements; ++p) {
    MultiplyLanes<kGateVectors, kUsed, 1>(kAll, a, a_stride, p, panel, tile);
    panel += kStep;
  }
}

}  // namespace blockrnn::cpu

#endif  // defined(__aarch64__)

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_MULTIPLY_BY_LANE_H_
