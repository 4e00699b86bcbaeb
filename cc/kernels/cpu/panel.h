// Owns the packed form of a weight matrix and the inner loop over it.
//
// A panel is kPanelVectors SIMD vectors wide and as deep as the product. It
// holds, k by k, the weights of a few neighbouring units for all the gates that
// the epilogue needs together: with G gates, kPanelVectors / G vectors of units
// for each gate, so that a finished tile of rows × panel has everything that
// the gate equations read. 4 vectors suit all of G = 1, 2 and 4.
//
//     panel[k] = [gate 0: units u … u+n) | gate 1: the same units | …]

#ifndef BLOCKRNN_KERNELS_CPU_PANEL_H_
#define BLOCKRNN_KERNELS_CPU_PANEL_H_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cpu/simd.h"

namespace blockrnn::cpu {

inline constexpr int kPanelVectors = 4;

// Rows of a tile. The accumulators (kTileRows × kPanelVectors) must stay in
// registers beside one vector of the panel and one broadcast value for each
// row: 24 + 1 + 6 of 32 registers, 12 + 1 + 3 of 16.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 3;
#endif

template <class C>
inline constexpr int kPanelWidth = kPanelVectors* Vec<C>::kSize;

// Units of one gate in a panel.
template <class C, int kGates>
inline constexpr int kPanelUnits = kPanelWidth<C> / kGates;

// Where the weights of a product stand. Unit u of gate g is column
// gate_offset[g] + u of w, or, transposed, that row of it.
template <class T>
struct WeightView {
  const T* w = nullptr;
  int64_t ldw = 0;  // elements from one row of w to the next
  bool transposed = false;
};

// out[p * panel width + j] = w[j * ldw + p] for j < lanes, 0 for the others.
// Square blocks are transposed in registers.
template <class C, class T>
void PackTransposed(const T* w, int64_t ldw, int64_t k, int lanes, C* out) {
  constexpr int kSize = Vec<C>::kSize;
  using Packet = typename Vec<C>::Packet;
  int64_t p = 0;
  if constexpr (kSize > 1) {
    if (lanes == kSize) {
      for (; p + kSize <= k; p += kSize) {
        Eigen::internal::PacketBlock<Packet, kSize> block;
        for (int j = 0; j < kSize; ++j) {
          block.packet[j] = Load<C>(w + j * ldw + p).packet;
        }
        Eigen::internal::ptranspose(block);
        for (int j = 0; j < kSize; ++j) {
          Store(out + (p + j) * kPanelWidth<C>, Vec<C>(block.packet[j]));
        }
      }
    }
  }
  for (; p < k; ++p) {
    C* row = out + p * kPanelWidth<C>;
    for (int j = 0; j < kSize; ++j) {
      row[j] = j < lanes ? static_cast<C>(w[j * ldw + p]) : C(0);
    }
  }
}

// Packs k rows of `count` units (count ≤ kPanelUnits) from `unit` on for each
// gate. Lanes past `count` become zero.
template <class C, int kGates, class T>
void PackPanel(const WeightView<T>& view, const int64_t (&gate_offset)[kGates],
               int64_t k, int64_t unit, int64_t count, C* panel) {
  constexpr int kSize = Vec<C>::kSize;
  constexpr int kUnits = kPanelUnits<C, kGates>;
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t column = gate_offset[gate] + unit;
    for (int lane = 0; lane < kUnits; lane += kSize) {
      C* out = panel + gate * kUnits + lane;
      const int lanes =
          static_cast<int>(std::clamp<int64_t>(count - lane, 0, kSize));
      if (lanes == 0) {
        for (int64_t p = 0; p < k; ++p) {
          Store(out + p * kPanelWidth<C>, Vec<C>(0));
        }
      } else if (!view.transposed) {
        const T* w = view.w + column + lane;
        if (lanes == kSize) {
          for (int64_t p = 0; p < k; ++p) {
            Store(out + p * kPanelWidth<C>, Load<C>(w + p * view.ldw));
          }
        } else {
          for (int64_t p = 0; p < k; ++p) {
            Store(out + p * kPanelWidth<C>,
                  Load<C>(w + p * view.ldw, FirstLanes{lanes}));
          }
        }
      } else {
        PackTransposed(view.w + (column + lane) * view.ldw, view.ldw, k, lanes,
                       out);
      }
    }
  }
}

template <class C, int kRows>
struct Tile {
  Vec<C> sum[kRows][kPanelVectors];

  void Clear() {
    for (auto& row : sum) {
      for (auto& v : row) v = Vec<C>(0);
    }
  }
};

// tile += a · panel for kRows rows of a, in the order of k, one fused
// multiply-add each: the bits of an element do not depend on the tile it is in.
template <class C, int kRows>
EIGEN_ALWAYS_INLINE void MultiplyPanel(const C* a, int64_t lda, int64_t k,
                                       const C* panel, Tile<C, kRows>* tile) {
  constexpr int kSize = Vec<C>::kSize;
  for (int64_t p = 0; p < k; ++p) {
    Vec<C> broadcast[kRows];
    for (int m = 0; m < kRows; ++m) broadcast[m] = Vec<C>(a[m * lda + p]);
    for (int v = 0; v < kPanelVectors; ++v) {
      const Vec<C> b = Load<C>(panel + v * kSize);
      for (int m = 0; m < kRows; ++m) {
        tile->sum[m][v] = MulAdd(broadcast[m], b, tile->sum[m][v]);
      }
    }
    panel += kPanelWidth<C>;
  }
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_PANEL_H_
