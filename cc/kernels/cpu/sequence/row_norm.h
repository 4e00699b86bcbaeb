// Implements sums over a row for layer normalisation (cc/core/layer_norm.h). A
// row is summed by one thread, in an order that follows from its size alone.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_NORM_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_NORM_H_

#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/range.h"

namespace blockrnn::cpu {

// Zeros in the lanes past those of a vector's count.
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> ZeroOtherLanes(const Vec<C>& v, AllLanes) {
  return v;
}
template <class C>
EIGEN_ALWAYS_INLINE Vec<C> ZeroOtherLanes(const Vec<C>& v, FirstLanes lanes) {
  C all[Vec<C>::kSize];
  Store(all, v);
  return Load<C>(all, lanes);
}

// The sum of some vectors, and that of their lanes: a fixed tree.
template <class C>
EIGEN_ALWAYS_INLINE C SumAll(const std::array<Vec<C>, 4>& sums) {
  return SumLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
}
template <class C>
EIGEN_ALWAYS_INLINE C SumAll(const std::array<Vec<C>, 3>& sums) {
  return SumLanes((sums[0] + sums[1]) + sums[2]);
}

// 1 / √(variance + epsilon), given the sum of squares of `count` deviations.
template <class C>
EIGEN_ALWAYS_INLINE C ReciprocalDeviation(C squares, int64_t count, C epsilon) {
  return C(1) / std::sqrt(squares / static_cast<C>(count) + epsilon);
}

// A row of sums in the form of panels, [panels, gates, units of a panel].
template <class C, int kGates>
class PanelRows {
 public:
  using V = Vec<C>;
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  static constexpr int64_t kWidth = kPanelWidth<C, kGates>;

  explicit PanelRows(int64_t units)
      : units_(units), panels_(CeilDiv(units, kUnits)) {}

  int64_t width() const { return panels_ * kWidth; }

  // f(unit, its place in a panel's gate 0, lanes) for vectors of units; that of
  // gate n is n · kUnits further on.
  template <class F>
  EIGEN_ALWAYS_INLINE void ForEach(const F& f) const {
    int64_t unit = 0;
    int64_t at = 0;
    for (; unit + kUnits <= units_; unit += kUnits, at += kWidth) {
      BLOCKRNN_UNROLL
      for (int64_t j = 0; j < kUnits; j += V::kSize) {
        f(unit + j, at + j, AllLanes());
      }
    }
    if (unit == units_) return;
    ForEachVector<C>(units_ - unit, [&](int64_t j, auto lanes) {
      f(unit + j, at + j, lanes);
    });
  }

  // Subtracts from row[width] its mean, and returns the reciprocal deviation.
  C Centre(C* row, C epsilon) const {
    const int64_t count = kGates * units_;
    const C mean = SumOf([&](int64_t at, auto lanes) {
                     return Load<C>(row + at, lanes);
                   }) /
                   static_cast<C>(count);
    const V mean_v(mean);
    const C squares = SumOf([&](int64_t at, auto lanes) {
      const V centred =
          ZeroOtherLanes(Load<C>(row + at, lanes) - mean_v, lanes);
      Store(row + at, centred, lanes);
      return centred * centred;
    });
    return ReciprocalDeviation(squares, count, epsilon);
  }

 private:
  // Σ value(place, lanes), a sum for each gate first.
  template <class Value>
  EIGEN_ALWAYS_INLINE C SumOf(const Value& value) const {
    // In registers: no address of theirs is taken in the loop.
    V sums[kGates];
    BLOCKRNN_UNROLL
    for (int gate = 0; gate < kGates; ++gate) sums[gate] = V(0);
    int64_t unit = 0;
    int64_t at = 0;
    for (; unit + kUnits <= units_; unit += kUnits, at += kWidth) {
      BLOCKRNN_UNROLL
      for (int64_t j = 0; j < kUnits; j += V::kSize) {
        BLOCKRNN_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          sums[gate] = sums[gate] + value(at + gate * kUnits + j, AllLanes());
        }
      }
    }
    if (unit < units_) {
      ForEachVector<C>(units_ - unit, [&](int64_t j, auto lanes) {
        BLOCKRNN_UNROLL
        for (int gate = 0; gate < kGates; ++gate) {
          sums[gate] = sums[gate] + value(at + gate * kUnits + j, lanes);
        }
      });
    }
    std::array<V, kGates> all;
    BLOCKRNN_UNROLL
    for (int gate = 0; gate < kGates; ++gate) all[gate] = sums[gate];
    return SumAll<C>(all);
  }

  const int64_t units_;
  const int64_t panels_;
};

// The same for row[count], without gates, given the lanes' sums of it.
template <class C>
C CentreRow(C* row, int64_t count, const Vec<C>& sum, C epsilon) {
  using V = Vec<C>;
  const V mean(SumLanes(sum) / static_cast<C>(count));
  V squares(0);
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    const V centred = ZeroOtherLanes(Load<C>(row + j, lanes) - mean, lanes);
    Store(row + j, centred, lanes);
    squares = squares + centred * centred;
  });
  return ReciprocalDeviation(SumLanes(squares), count, epsilon);
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_ROW_NORM_H_
