// Defines the packed form of a weight matrix, the memory that it is in, and the
// GEMM's inner loop over it.
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
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

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

// Packs depth k of `units` neighbouring units of the gate_units of each gate
// into panels that start panel_stride elements apart. Lanes past the last unit
// become zero.
template <int kGates, class P, class T>
void PackPanels(const WeightView<T>& view, int64_t gate_units, int64_t k,
                int64_t unit, int64_t units, int64_t panel_stride, P* panels) {
  using Operand = typename Elements<P>::Operand;
  constexpr int kSize = Vec<P>::kSize;
  constexpr int kUnits = kPanelUnits<P, kGates>;
  constexpr int kWidth = kPanelWidth<P, kGates>;
  constexpr int kDepth = Elements<P>::kDepth;
  const int64_t elements = NumElements<P>(k);
  if (elements == 0) return;  // and the view may have no address
  for (int gate = 0; gate < kGates; ++gate) {
    const int64_t column = gate * gate_units + unit;
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

#if defined(__aarch64__)

// The inner loop of processors whose instruction takes one lane of a vector as
// the factor of all lanes of another: a vector of adjacent values of a row
// takes the place of as many broadcast values. So a tile of 6 rows by 4 vectors
// has 18 loads for 96 multiply-adds.

// A part of the GEMM of a tile: adjacent depths, of which `values` has a vector
// of each row, with those vectors of the panel that one of kOperands operands
// multiplies (MultiplyElements below), numbered depth by depth.
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

// MultiplyElements below.
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

#endif

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

// tile += a · w for the weights of a full panel, which are read in place, and
// packs them. w: the first unit of the first gate.
template <int kGates, class C, class T, int kRows, int kVectors>
EIGEN_ALWAYS_INLINE void MultiplyAndPack(const RowPointers<C, kRows>& a,
                                         int64_t k, const WeightView<T>& w,
                                         int64_t gate_units, C* panel,
                                         Tile<C, kRows, kVectors>* tile) {
  constexpr int kSize = Vec<C>::kSize;
  constexpr int kEach = kGateVectors<kGates>;
  for (int64_t p = 0; p < k; ++p) {
    const T* const row = w.w + p * w.ldw;
    const T* const ahead = row + std::min(kPackAhead, k - 1 - p) * w.ldw;
    Vec<C> broadcast[kRows];
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) broadcast[m] = Vec<C>(a.row[m][p]);
    BLOCKRNN_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = v / kEach * gate_units + v % kEach * kSize;
      __builtin_prefetch(ahead + at);
      Vec<C> b = Load<C>(row + at);
      KeepInRegister(&b);
      Store(panel + v * kSize, b);
      BLOCKRNN_UNROLL
      for (int m = 0; m < kRows; ++m) {
        tile->sum[m][v] = MulAdd(broadcast[m], b, tile->sum[m][v]);
      }
    }
    panel += kVectors * kSize;
  }
}

// Where packed weights are: in scratch of the call that packs them, or frozen,
// in memory that the caller of the engine keeps from call to call.
//
// Hands out memory for panels, part after part. Whoever packs weights and
// whoever reads them take the same parts in the same order.
class PanelMemory {
 public:
  // Scratch of a call. Scratch::ok() reports whether there was any.
  PanelMemory(const Executor& executor, Scratch* scratch)
      : executor_(executor), scratch_(scratch) {}

  // The caller's memory, to be packed into; nullptr: only to be measured.
  PanelMemory(const Executor& executor, void* packed)
      : executor_(executor), packed_(packed) {}

  // The caller's memory, packed before: nothing is written to it.
  static PanelMemory Frozen(const Executor& executor, const void* packed) {
    PanelMemory memory(executor, const_cast<void*>(packed));
    memory.frozen_ = true;
    return memory;
  }

  // Whether the weights are there already.
  bool frozen() const { return frozen_; }
  // Whether what is packed is for other calls.
  bool outlives_call() const { return scratch_ == nullptr; }
  const Executor& executor() const { return executor_; }

  // The next `count` elements, aligned to 64 bytes; nullptr: not to be packed.
  template <class P>
  P* Take(int64_t count) {
    if (scratch_ != nullptr) return scratch_->Array<P>(count);
    const int64_t at = bytes_;
    const int64_t size = count * static_cast<int64_t>(sizeof(P));
    bytes_ += RoundUp(size, 64);
    if (packed_ == nullptr) return nullptr;
    auto* const bytes = static_cast<std::byte*>(packed_);
    // What is left of the last 64 bytes: packing leaves none as it was.
    if (!frozen_) std::fill(bytes + at + size, bytes + bytes_, std::byte{0});
    return reinterpret_cast<P*>(bytes + at);
  }

  // What was taken of the caller's memory.
  int64_t bytes() const { return bytes_; }

 private:
  const Executor& executor_;
  Scratch* const scratch_ = nullptr;
  void* const packed_ = nullptr;
  bool frozen_ = false;
  int64_t bytes_ = 0;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PANEL_H_
