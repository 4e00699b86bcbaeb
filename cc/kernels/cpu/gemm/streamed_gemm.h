// Implements GEMMs that stream their weights in place: few rows use each weight
// once, or a few times while it is in a register.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_STREAMED_GEMM_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_STREAMED_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"

namespace blockrnn::cpu {

namespace internal {

#if defined(__aarch64__)
// As below, by lanes of vectors of the rows.
template <class C, int kRows, int... kStep, class T>
void StreamByLane(std::integer_sequence<int, kStep...>,
                  const RowPointers<C, kRows>& a, const T* w, int64_t ldw,
                  int64_t count, C* sums, int64_t ld_sums) {
  constexpr int kSize = Vec<C>::kSize;
  constexpr int kVectors = sizeof...(kStep) / kSize;
  Vec<C> values[kRows][kVectors];
  BLOCKRNN_UNROLL
  for (int m = 0; m < kRows; ++m) {
    BLOCKRNN_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      values[m][i] = Load<C>(a.row[m] + i * kSize);
    }
  }
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Vec<C> sum[kRows];
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      sum[m] = Load<C>(sums + m * ld_sums + j, lanes);
    }
    const auto multiply = [&](auto p) {
      Vec<C> weight = Load<C>(w + p() * ldw + j, lanes);
      if constexpr (kRows > 1) KeepInRegister(&weight);
      BLOCKRNN_UNROLL
      for (int m = 0; m < kRows; ++m) {
        sum[m] =
            MulAddLane<p() % kSize>(values[m][p() / kSize], weight, sum[m]);
      }
    };
    (multiply(std::integral_constant<int, kStep>()), ...);
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      Store(sums + m * ld_sums + j, sum[m], lanes);
    }
  });
}
#endif

// sums[m, 0 … count) += a[m, 0 … kSteps) · w[0 … kSteps, 0 … count)
template <class C, int kRows, int kSteps, class T>
void StreamRowsOfWeights(const RowPointers<C, kRows>& a, const T* w,
                         int64_t ldw, int64_t count, C* sums, int64_t ld_sums) {
#if defined(__aarch64__)
  if constexpr (kSteps % Vec<C>::kSize == 0) {
    StreamByLane(std::make_integer_sequence<int, kSteps>(), a, w, ldw, count,
                 sums, ld_sums);
    return;
  }
#endif
  Vec<C> broadcast[kRows][kSteps];
  BLOCKRNN_UNROLL
  for (int m = 0; m < kRows; ++m) {
    BLOCKRNN_UNROLL
    for (int p = 0; p < kSteps; ++p) broadcast[m][p] = Vec<C>(a.row[m][p]);
  }
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Vec<C> sum[kRows];
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      sum[m] = Load<C>(sums + m * ld_sums + j, lanes);
    }
    BLOCKRNN_UNROLL
    for (int p = 0; p < kSteps; ++p) {
      Vec<C> weight = Load<C>(w + p * ldw + j, lanes);
      if constexpr (kRows > 1) KeepInRegister(&weight);
      BLOCKRNN_UNROLL
      for (int m = 0; m < kRows; ++m) {
        sum[m] = MulAdd(broadcast[m][p], weight, sum[m]);
      }
    }
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      Store(sums + m * ld_sums + j, sum[m], lanes);
    }
  });
}

// sums[m, j] += Σ_k a[m, k] · w[j, k] for kUnits rows of w: one sum per
// lane, the lanes added at the end.
template <class C, int kRows, int kUnits, class T>
void StreamDotProducts(const RowPointers<C, kRows>& a, const T* w, int64_t ldw,
                       int64_t k, C* sums, int64_t ld_sums) {
  Vec<C> sum[kRows][kUnits];
  BLOCKRNN_UNROLL
  for (auto& row : sum) {
    BLOCKRNN_UNROLL
    for (auto& v : row) v = Vec<C>(0);
  }
  ForEachVector<C>(k, [&](int64_t p, auto lanes) {
    Vec<C> x[kRows];
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) {
      x[m] = Load<C>(a.row[m] + p, lanes);
      if constexpr (kUnits > 1) KeepInRegister(&x[m]);
    }
    BLOCKRNN_UNROLL
    for (int j = 0; j < kUnits; ++j) {
      Vec<C> weight = Load<C>(w + j * ldw + p, lanes);
      if constexpr (kRows > 1) KeepInRegister(&weight);
      BLOCKRNN_UNROLL
      for (int m = 0; m < kRows; ++m) {
        sum[m][j] = MulAdd(x[m], weight, sum[m][j]);
      }
    }
  });
  BLOCKRNN_UNROLL
  for (int m = 0; m < kRows; ++m) {
    BLOCKRNN_UNROLL
    for (int j = 0; j < kUnits; ++j) {
      sums[m * ld_sums + j] += SumLanes(sum[m][j]);
    }
  }
}

// Rows that use a weight while it is in a register.
inline constexpr int kStreamTileRows = 4;

// sums += a · w for all rows, w read once from memory: for the later rows it is
// in the first-level cache.
template <class C, class W>
void StreamPart(const GemmOperands<C, W>& part, int64_t rows, int64_t column,
                int64_t count, C* sums, int64_t ld_sums) {
  const WeightView<W>& view = part.weights;
  const auto for_row_tiles = [&](const auto& body) {
    for (int64_t m = 0; m < rows; m += kStreamTileRows) {
      WithRows<kStreamTileRows>(rows - m, [&](auto tile_rows) {
        body(tile_rows, m, sums + m * ld_sums);
      });
    }
  };
  if (view.transposed) {
    const auto units = [&](auto num_units, int64_t j) {
      for_row_tiles([&](auto tile_rows, int64_t m, C* out) {
        StreamDotProducts<C, tile_rows(), num_units()>(
            RowsFrom<tile_rows()>(part.a, m), view.w + (column + j) * view.ldw,
            view.ldw, part.k, out + j, ld_sums);
      });
    };
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) units(std::integral_constant<int, 4>(), j);
    for (; j < count; ++j) units(std::integral_constant<int, 1>(), j);
    return;
  }
  const auto steps = [&](auto num_steps, int64_t p) {
    for_row_tiles([&](auto tile_rows, int64_t m, C* out) {
      StreamRowsOfWeights<C, tile_rows(), num_steps()>(
          RowsFrom<tile_rows()>(part.a.From(p), m),
          view.w + p * view.ldw + column, view.ldw, count, out, ld_sums);
    });
  };
  // 8 streams through memory at a time: enough for the prefetchers to run
  // ahead, few enough for them to track.
  int64_t p = 0;
  for (; p + 8 <= part.k; p += 8) steps(std::integral_constant<int, 8>(), p);
  for (; p + 3 <= part.k; p += 3) steps(std::integral_constant<int, 3>(), p);
  for (; p < part.k; ++p) steps(std::integral_constant<int, 1>(), p);
}

// GEMMs of a few rows with weights that are not packed: long runs of adjacent
// units, of which the tiles then take their part. Weights: PackedWeights.
template <class C, int kGates, class Weights>
class StreamedGemm {
 public:
  static constexpr int64_t kMostPanels = 32;  // at a time

  StreamedGemm(const RowView<C>& a, const Weights& w, Range panels, Range rows)
      : a_(a.FromRow(rows.begin)),
        w_(w),
        panels_(panels),
        rows_(rows),
        here_{panels.begin, panels.begin} {}

  // sums = what begin puts into a tile + its part of the GEMM.
  template <class Begin>
  EIGEN_DONT_INLINE void Tile(int64_t panel, int64_t row, int64_t size,
                              const Begin& begin, C* sums) {
    if (panel == here_.end) Multiply(panel);
    const int64_t unit = (panel - here_.begin) * kUnits;
    const int64_t used = std::min(kUnits, count_ - unit);
    for (int64_t r = 0; r < size; ++r, sums += kPanelWidth<C, kGates>) {
      cpu::Tile<C, 1, kPanelVectors<kGates>> tile;
      begin(TilePlace<kGateVectors<kGates>>{row + r, panel}, &tile);
      tile.Store(sums, kPanelWidth<C, kGates>);
      const C* from =
          panel_sums_ + (row + r - rows_.begin) * kGates * count_ + unit;
      for (int gate = 0; gate < kGates; ++gate, from += count_) {
        C* sum = sums + gate * kUnits;
        ForEachVector<C>(used, [&](int64_t j, auto lanes) {
          Store(sum + j, Load<C>(sum + j) + Load<C>(from + j, lanes));
        });
      }
    }
  }

 private:
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;

  // The sums of the panels from `first` on.
  void Multiply(int64_t first) {
    here_ = {first, std::min(first + kMostPanels, panels_.end)};
    count_ = std::min(here_.end * kUnits, w_.units()) - first * kUnits;
    const int64_t num_rows = rows_.end - rows_.begin;
    const int64_t ld = kGates * count_;
    std::fill(panel_sums_, panel_sums_ + num_rows * ld, C(0));
    const GemmOperands<C, typename Weights::T> part = {a_, w_.depth(),
                                                       w_.view()};
    for (int gate = 0; gate < kGates; ++gate) {
      StreamPart(part, num_rows, gate * w_.units() + first * kUnits, count_,
                 panel_sums_ + gate * count_, ld);
    }
  }

  const RowView<C> a_;
  const Weights& w_;
  const Range panels_;
  const Range rows_;
  Range here_;         // the panels whose sums there are
  int64_t count_ = 0;  // their units
  alignas(64) C panel_sums_[kStreamTileRows * kMostPanels *
                            kPanelWidth<C, kGates>];  // [rows, gates, count]
};

}  // namespace internal
}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_STREAMED_GEMM_H_
