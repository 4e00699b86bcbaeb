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
#include "cc/kernels/cpu/tuning.h"

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
    // With one row, 4 sums at a time would wait for their additions.
    if (rows == 1) {
      for (; j + 8 <= count; j += 8) {
        StreamDotProducts<C, 1, 8>(RowsFrom<1>(part.a, 0),
                                   view.w + (column + j) * view.ldw, view.ldw,
                                   part.k, sums + j, ld_sums);
      }
    }
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

// Some rows and panels of a GEMM whose weights are streamed, and the sums of
// them: long runs of adjacent units, of which the tiles then take their part.
template <class C, int kGates>
struct StreamedSums {
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  // Sums that stay in the first-level cache while weights pass by.
  static constexpr int64_t kSums = 32 * 1024 / sizeof(C);

  // As many panels from the first of `some` on as have room for the sums.
  StreamedSums(Range some_rows, Range some_panels, int64_t units, C* sums_of)
      : rows(some_rows),
        panels{
            some_panels.begin,
            std::min(some_panels.end,
                     some_panels.begin +
                         std::max<int64_t>(1, kSums / kPanelWidth<C, kGates> /
                                                  (rows.end - rows.begin)))},
        unit(panels.begin * kUnits),
        count(std::min(panels.end * kUnits, units) - unit),
        sums(sums_of) {}

  int64_t num_rows() const { return rows.end - rows.begin; }
  // From row to row.
  int64_t stride() const { return kGates * count; }
  C* Gate(int gate) const { return sums + gate * count; }

  // sums += a · w, of one gate or of all.
  template <class T>
  void Multiply(const RowView<C>& a, const WeightView<T>& w, int64_t depth,
                int64_t units, int gate, C* to, int64_t to_stride) const {
    StreamPart(GemmOperands<C, T>{a.FromRow(rows.begin), depth, w}, num_rows(),
               gate * units + unit, count, to, to_stride);
  }

  GateTile<C> Tile(int64_t panel) const {
    const int64_t first = panel * kUnits;
    return {num_rows(),
            stride(),
            {rows.begin, first, std::min(kUnits, unit + count - first),
             sums + (first - unit), count}};
  }

  const Range rows;
  const Range panels;
  const int64_t unit;   // the first one
  const int64_t count;  // of units
  C* const sums;        // [rows, gates, count]
};

// sums = what begin(place, tile) puts into tiles.
template <class C, int kGates, class Begin>
EIGEN_DONT_INLINE void BeginStreamed(const Begin& begin,
                                     const StreamedSums<C, kGates>& streamed) {
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) C from[kPanelWidth<C, kGates>];
  for (int64_t r = 0; r < streamed.num_rows(); ++r) {
    for (int64_t panel = streamed.panels.begin; panel < streamed.panels.end;
         ++panel) {
      Tile<C, 1, kPanelVectors<kGates>> tile;
      begin(TilePlace<kGateVectors<kGates>>{streamed.rows.begin + r, panel},
            &tile);
      tile.Store(from, kPanelWidth<C, kGates>);
      const int64_t at = panel * kUnits - streamed.unit;
      const int64_t used = std::min(kUnits, streamed.count - at);
      for (int gate = 0; gate < kGates; ++gate) {
        C* const to = streamed.Gate(gate) + r * streamed.stride() + at;
        ForEachVector<C>(used, [&](int64_t j, auto lanes) {
          Store(to + j, Load<C>(from + gate * kUnits + j), lanes);
        });
      }
    }
  }
}

// For some rows and panels: what begin(StreamedSums) puts there + a · w, each
// weight read once from memory for up to kStreamRows rows, then
// epilogue(GateTile).
template <class C, int kGates, class T, class Begin, class Epilogue>
void MultiplyStreamed(const RowView<C>& a, const WeightView<T>& w,
                      int64_t depth, int64_t units, Range panels, Range rows,
                      const Begin& begin, const Epilogue& epilogue) {
  using Sums = StreamedSums<C, kGates>;
  alignas(64) C sums[Sums::kSums];
  for (Range some = rows; some.begin < rows.end; some.begin = some.end) {
    some.end = std::min(some.begin + Blocking::kStreamRows, rows.end);
    for (Range left = panels; left.begin < left.end;) {
      const Sums streamed(some, left, units, sums);
      begin(streamed);
      for (int gate = 0; gate < kGates; ++gate) {
        streamed.Multiply(a, w, depth, units, gate, streamed.Gate(gate),
                          streamed.stride());
      }
      for (; left.begin < streamed.panels.end; ++left.begin) {
        epilogue(streamed.Tile(left.begin));
      }
    }
  }
}

}  // namespace internal
}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_STREAMED_GEMM_H_
