// Defines views of the operands of GEMMs, the sizes of panels and tiles, and
// the tiles of results that epilogues get.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_TILE_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_TILE_H_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/simd.h"

namespace blockrnn::cpu {

template <int kGates>
inline constexpr int kPanelVectors = kGates == 3 ? 3 : 4;

// Rows of a tile. The accumulators (kTileRows × panel vectors) must stay in
// registers beside one vector of the panel and one broadcast value for each
// row: 24 + 1 + 6 of 32 registers, 12 + 1 + 3 of 16. Where multiply-adds take a
// lane of a row's vector (panel.h), two vectors of the panel are in
// registers: 24 + 2 + 6.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 3;
#endif

template <class C, int kGates>
inline constexpr int kPanelWidth = kPanelVectors<kGates>* Vec<C>::kSize;

// Units of one gate in a panel.
template <class C, int kGates>
inline constexpr int kPanelUnits = kPanelWidth<C, kGates> / kGates;

// Vectors of one gate in a panel.
template <int kGates>
inline constexpr int kGateVectors = kPanelVectors<kGates> / kGates;

// The weights of a GEMM in memory. Unit u of gate g is column g · units + u of
// w, or, transposed, that row of it.
template <class T>
struct WeightView {
  const T* w = nullptr;
  int64_t ldw = 0;  // elements from one row of w to the next
  bool transposed = false;

  // The same from depth k on. An empty matrix has no address.
  WeightView From(int64_t k) const {
    if (w == nullptr) return *this;
    return {w + (transposed ? k : k * ldw), ldw, transposed};
  }
  // The same from a column on, of weights that are not transposed.
  WeightView FromColumn(int64_t column) const {
    if (w == nullptr) return *this;
    return {w + column, ldw, transposed};
  }
  WeightView Transpose() const { return {w, ldw, !transposed}; }
};

// Rows of an operand, evenly spaced; with `index`, some of them.
template <class C>
struct RowView {
  const C* data = nullptr;
  int64_t stride = 0;  // elements from row to row
  const int64_t* index = nullptr;

  const C* Row(int64_t m) const {
    return data + (index == nullptr ? m : index[m]) * stride;
  }
  // The same from column k on.
  RowView From(int64_t k) const { return {data + k, stride, index}; }
  // The same from row m on.
  RowView FromRow(int64_t m) const {
    if (index != nullptr) return {data, stride, index + m};
    return {data + m * stride, stride};
  }
};

template <class C, class W>
struct GemmOperands {
  RowView<C> a;  // [rows, k]
  int64_t k = 0;
  WeightView<W> weights;
};

// The rows of a GEMM's left operand: the same for all gates, or, `gate_stride`
// elements from one gate to the next, rows of its own for each.
template <class C>
struct GateRows {
  RowView<C> rows;
  int64_t gate_stride = 0;
};

// A run of finished units of one row; gate g of unit `unit + j` is
// gates[g * gate_stride + j].
template <class C>
struct GateRun {
  int64_t row = 0;
  int64_t unit = 0;
  int64_t count = 0;
  const C* gates = nullptr;
  int64_t gate_stride = 0;
};

// What an epilogue gets: the same units of `rows` rows, row_stride elements
// from one to the next.
template <class C>
struct GateTile {
  int64_t rows = 0;
  int64_t row_stride = 0;
  GateRun<C> first;

  template <class F>
  EIGEN_ALWAYS_INLINE void ForEachRow(const F& f) const {
    GateRun<C> run = first;
    for (int64_t left = rows; left > 0; --left) {
      f(run);
      ++run.row;
      run.gates += row_stride;
    }
  }
};

// An epilogue that takes the rows of a tile one by one: f(GateRun).
template <class F>
auto RowByRow(const F& f) {
  return [f](const auto& tile) { tile.ForEachRow(f); };
}

template <class C, int kRows>
struct RowPointers {
  const C* row[kRows];
};

template <class C, int kRows, int kVectors>
struct Tile {
  static constexpr int kNumRows = kRows;
  static constexpr int kNumVectors = kVectors;
  Vec<C> sum[kRows][kVectors];

  void Clear() {
    BLOCKRNN_UNROLL
    for (auto& row : sum) {
      BLOCKRNN_UNROLL
      for (auto& v : row) v = Vec<C>(0);
    }
  }
  // From or to rows of a whole panel's width, ld elements apart: of every
  // kEach vectors the first kUsed. The others would only take registers.
  template <int kEach = kVectors, int kUsed = kEach>
  void Load(const C* from, int64_t ld) {
    BLOCKRNN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BLOCKRNN_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        if (v % kEach >= kUsed) continue;
        sum[r][v] = cpu::Load<C>(from + r * ld + v * Vec<C>::kSize);
      }
    }
  }
  template <int kEach = kVectors, int kUsed = kEach>
  void Store(C* to, int64_t ld) const {
    BLOCKRNN_UNROLL
    for (int r = 0; r < kRows; ++r) {
      BLOCKRNN_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        if (v % kEach >= kUsed) continue;
        cpu::Store(to + r * ld + v * Vec<C>::kSize, sum[r][v]);
      }
    }
  }
};

// The place of the tile that MultiplyPacked computes, and how many vectors of
// each gate it uses.
template <int kVectors>
struct TilePlace {
  int64_t row;
  int64_t panel;
  static constexpr int kUsed = kVectors;
};

// For MultiplyPacked: sums start from zero.
struct BeginAtZero {
  template <class Tile, class Place>
  EIGEN_ALWAYS_INLINE void operator()(Place, Tile* tile) const {
    tile->Clear();
  }
};

// Calls f(std::integral_constant<int, n>) for the n in [1, kMost] that `rows`
// is, or for kMost.
template <int kMost, class F>
EIGEN_ALWAYS_INLINE void WithRows(int64_t rows, const F& f) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      WithRows<kMost - 1>(rows, f);
      return;
    }
  }
  f(std::integral_constant<int, kMost>());
}

// The same for a tile's rows and its used vectors of each gate.
template <int kGates, class F>
EIGEN_ALWAYS_INLINE void WithTile(int64_t rows, int64_t used, const F& f) {
  WithRows<kGateVectors<kGates>>(used, [&](auto vectors) {
    WithRows<kTileRows>(rows, [&](auto tile_rows) { f(tile_rows, vectors); });
  });
}

namespace internal {

template <int kRows, class C>
EIGEN_ALWAYS_INLINE RowPointers<C, kRows> RowsFrom(const RowView<C>& view,
                                                   int64_t m) {
  RowPointers<C, kRows> out;
  BLOCKRNN_UNROLL
  for (int r = 0; r < kRows; ++r) out.row[r] = view.Row(m + r);
  return out;
}

}  // namespace internal

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_TILE_H_
