// Defines the packed form of a weight matrix and the GEMM's inner loop over it.
//
// A panel is kPanelVectors SIMD vectors wide and as deep as the GEMM (K). It
// holds, k by k, the weights of a few neighbouring units for all the gates that
// the epilogue needs together: with G gates, kPanelVectors / G vectors of units
// for each gate, so that a finished tile of rows × panel has everything that
// the gate equations read. 4 vectors suit G = 1, 2 and 4, and 3
// suit 3.
//
//     panel[k] = [gate 0: units u … u+n) | gate 1: the same units | …]
//
// Its elements are values, or pairs of values that are adjacent in depth
// (panel_element.h).

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PANEL_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PANEL_H_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cpu/gemm/multiply_by_lane.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"

namespace blockrnn::cpu {

template <int kGates>
inline constexpr int kPanelVectors = kGates == 3 ? 3 : 4;

// Rows of a tile. The accumulators (kTileRows × panel vectors) must stay in
// registers beside one vector of the panel and one broadcast value for each
// row: 24 + 1 + 6 of 32 registers, 12 + 1 + 3 of 16. Where multiply-adds take a
// lane of a row's vector (multiply_by_lane.h), two vectors of the panel are in
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

// The columns that the gates of a weight matrix begin at: one after the other.
template <int kGates>
struct GateOffsets {
  explicit GateOffsets(int64_t units) {
    for (int g = 0; g < kGates; ++g) at[g] = g * units;
  }
  int64_t at[kGates];
};

// out[p * ld_out + j] = element p of row(j) for j < lanes and 0 for the other
// lanes of a vector; a row that is nullptr is zeros too. Square blocks are
// transposed in registers.
template <class P, class Rows>
void TransposeRows(const Rows& row, int64_t k, int lanes, P* out,
                   int64_t ld_out) {
  constexpr int kSize = Vec<P>::kSize;
  constexpr int kDepth = Elements<P>::kDepth;
  using V = Vec<typename Elements<P>::Operand>;
  using Packet = typename V::Packet;
  decltype(row(0)) rows[kSize] = {};
  for (int j = 0; j < lanes; ++j) rows[j] = row(j);
  const int64_t elements = NumElements<P>(k);
  for (int64_t p = 0; p < elements; p += kSize) {
    Eigen::internal::PacketBlock<Packet, kSize> block;
    BLOCKRNN_UNROLL
    for (int j = 0; j < kSize; ++j) {
      const V v = rows[j] == nullptr ? V(0)
                                     : Elements<P>::Along(rows[j] + p * kDepth,
                                                          k - p * kDepth);
      block.packet[j] = v.packet;
    }
    if constexpr (kSize > 1) Eigen::internal::ptranspose(block);
    const int64_t count = std::min<int64_t>(kSize, elements - p);
    for (int64_t j = 0; j < count; ++j) {
      Elements<P>::Store(out + (p + j) * ld_out, V(block.packet[j]));
    }
  }
}

// The offset of unit `unit` of a gate in panels that start panel_stride apart.
template <class C, int kGates>
int64_t PanelOffset(int gate, int64_t unit, int64_t panel_stride) {
  constexpr int kUnits = kPanelUnits<C, kGates>;
  return unit / kUnits * panel_stride + gate * kUnits + unit % kUnits;
}

// Rows of weights between a prefetch and its use; measured in
// docs/notes/gemm.md.
inline constexpr int64_t kPackAhead = 8;

// Packs depth k of `units` neighbouring units for each gate into panels that
// start panel_stride elements apart. Lanes past the last unit become zero.
template <class P, int kGates, class T>
void PackPanels(const WeightView<T>& view, const int64_t (&gate_offset)[kGates],
                int64_t k, int64_t unit, int64_t units, int64_t panel_stride,
                P* panels) {
  using Operand = typename Elements<P>::Operand;
  constexpr int kSize = Vec<P>::kSize;
  constexpr int kUnits = kPanelUnits<P, kGates>;
  constexpr int kWidth = kPanelWidth<P, kGates>;
  constexpr int kDepth = Elements<P>::kDepth;
  const int64_t elements = NumElements<P>(k);
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t column = gate_offset[gate] + unit;
    const auto out = [&](int64_t j) {
      return panels + PanelOffset<P, kGates>(gate, j, panel_stride);
    };
    if (view.transposed) {
      for (int64_t j = 0; j < units; j += kSize) {
        const T* first = view.w + (column + j) * view.ldw;
        TransposeRows<P>([&](int lane) { return first + lane * view.ldw; }, k,
                         static_cast<int>(std::min<int64_t>(units - j, kSize)),
                         out(j), kWidth);
      }
    } else {
      for (int64_t p = 0; p < k; p += kDepth) {
        const T* row = view.w + p * view.ldw + column;
        // Rows are far apart, so the hardware does not prefetch them.
        for (int64_t ahead = kPackAhead; ahead < kPackAhead + kDepth; ++ahead) {
          if (p + ahead >= k) break;
          for (int64_t j = 0; j < units; j += 64 / sizeof(T)) {
            __builtin_prefetch(row + ahead * view.ldw + j);
          }
        }
        ForEachVector<P>(units, [&](int64_t j, auto lanes) {
          Elements<P>::Store(
              out(j) + p / kDepth * kWidth,
              Elements<P>::Across(row + j, view.ldw, k - p, lanes));
        });
      }
    }
    const int64_t filled = RoundUp(units, kSize);
    const int64_t end = RoundUp(units, kUnits);
    for (int64_t j = filled; j < end; j += kSize) {
      for (int64_t p = 0; p < elements; ++p) {
        Elements<P>::Store(out(j) + p * kWidth, Vec<Operand>(0));
      }
    }
  }
}

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

// tile += a · panel for kRows rows of a, in the order of k, one multiply-add
// for each element: the bits of a sum do not depend on the tile it is in. Only
// the first kUsed vectors of each gate are computed: a last panel is seldom
// full. With kOperands = kGates each gate multiplies rows of its own, those of
// a for the first gate, the next gate's a_stride elements on, and so forth;
// else all multiply the same.
template <int kGates, int kUsed, int kOperands, class P, class C, int kRows,
          int kVectors>
EIGEN_ALWAYS_INLINE void MultiplyElements(
    const RowPointers<typename Elements<P>::Operand, kRows>& a,
    int64_t a_stride, int64_t elements, const P* panel,
    Tile<C, kRows, kVectors>* tile) {
  static_assert(kOperands == 1 || kOperands == kGates);
#if defined(__aarch64__)
  MultiplyByLane<kGateVectors<kGates>, kUsed, kOperands>(a, a_stride, elements,
                                                         panel, tile);
#else
  using Operand = typename Elements<P>::Operand;
  constexpr int kSize = Vec<P>::kSize;
  constexpr int kEach = kVectors / kOperands;
  for (int64_t p = 0; p < elements; ++p) {
    BLOCKRNN_UNROLL
    for (int operand = 0; operand < kOperands; ++operand) {
      Vec<Operand> broadcast[kRows];
      BLOCKRNN_UNROLL
      for (int m = 0; m < kRows; ++m) {
        broadcast[m] = Vec<Operand>(a.row[m][operand * a_stride + p]);
      }
      BLOCKRNN_UNROLL
      for (int v = operand * kEach; v < (operand + 1) * kEach; ++v) {
        if (v % kGateVectors<kGates> >= kUsed) continue;
        Vec<Operand> b = Elements<P>::Load(panel + v * kSize);
        if constexpr (kRows > 1) KeepInRegister(&b);
        BLOCKRNN_UNROLL
        for (int m = 0; m < kRows; ++m) {
          tile->sum[m][v] = MulAdd(broadcast[m], b, tile->sum[m][v]);
        }
      }
    }
    panel += kVectors * kSize;
  }
#endif
}

// Depth to which rows are converted to elements at a time, where they have to
// be: 3 KB for a tile, and little work beside that of a panel.
inline constexpr int64_t kDepthAtOnce = 256;

// The same for rows of values, k of them.
template <int kGates, int kUsed, int kOperands = 1, class P, class C, int kRows,
          int kVectors>
EIGEN_ALWAYS_INLINE void MultiplyPanel(const RowPointers<C, kRows>& a,
                                       int64_t k, const P* panel,
                                       Tile<C, kRows, kVectors>* tile,
                                       int64_t a_stride = 0) {
  if constexpr (std::is_same_v<typename Elements<P>::Operand, C>) {
    MultiplyElements<kGates, kUsed, kOperands>(a, a_stride, k, panel, tile);
  } else {
    constexpr int64_t kDepth = Elements<P>::kDepth;
    constexpr int64_t kAtOnce = kDepthAtOnce / kDepth;
    alignas(64) P elements[kOperands][kRows][kAtOnce];
    for (int64_t p = 0; p < k; p += kDepthAtOnce) {
      const int64_t depth = std::min(kDepthAtOnce, k - p);
      RowPointers<P, kRows> made;
      for (int m = 0; m < kRows; ++m) {
        made.row[m] = elements[0][m];
        for (int operand = 0; operand < kOperands; ++operand) {
          const C* row = a.row[m] + operand * a_stride + p;
          for (int64_t j = 0; j < depth; j += kDepth * Vec<P>::kSize) {
            Elements<P>::Store(elements[operand][m] + j / kDepth,
                               Elements<P>::Along(row + j, depth - j));
          }
        }
      }
      MultiplyElements<kGates, kUsed, kOperands>(
          made, kRows * kAtOnce, NumElements<P>(depth), panel, tile);
      panel += NumElements<P>(depth) * kVectors * Vec<P>::kSize;
    }
  }
}

// The same for a tile's rows and its used vectors of each gate.
template <int kGates, class F>
EIGEN_ALWAYS_INLINE void WithTile(int64_t rows, int64_t used, const F& f) {
  WithRows<kGateVectors<kGates>>(used, [&](auto vectors) {
    WithRows<kTileRows>(rows, [&](auto tile_rows) { f(tile_rows, vectors); });
  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PANEL_H_
