// Implements the GEMM of a few rows with some panels of the weights of a step,
// with an epilogue that sees finished tiles while they are in cache.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PACKED_GEMM_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PACKED_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/int8_panel.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/streamed_gemm.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/gemm/weight_use.h"
#include "cc/kernels/cpu/range.h"

namespace blockrnn::cpu {

// Calls f(some of the panels) for all of them, as many as are packed at once.
template <class Weights, class F>
EIGEN_ALWAYS_INLINE void ForEachPacking(const Weights& w, Range panels,
                                        const F& f) {
  for (Range some = panels; some.begin < panels.end; some.begin = some.end) {
    some.end = std::min(some.begin + w.PanelsAtOnce(), panels.end);
    f(some);
  }
}

namespace internal {

// sums = what begin puts into a tile of `size` rows from `row` on + a · w. Not
// inlined into every epilogue's code: there is one body per tile size.
template <int kOperands, class T, int kGates, class P, class Begin>
EIGEN_DONT_INLINE void MultiplyTile(const GateRows<ComputeType<T>>& a,
                                    const PackedWeights<T, kGates, P>& w,
                                    const P* packed, int64_t panel, int64_t row,
                                    int64_t size, const Begin& begin,
                                    ComputeType<T>* sums) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  const int64_t count = std::min(kUnits, w.units() - panel * kUnits);
  WithTile<kGates>(size, CeilDiv(count, Vec<C>::kSize),
                   [&](auto tile_rows, auto vectors) {
                     Tile<C, tile_rows(), kPanelVectors<kGates>> tile;
                     begin(TilePlace<vectors()>{row, panel}, &tile);
                     MultiplyPanel<kGates, vectors(), kOperands>(
                         RowsFrom<tile_rows()>(a.rows, row), w.depth(), packed,
                         &tile, a.gate_stride);
                     tile.Store(sums, kPanelWidth<C, kGates>);
                   });
}

// The same for the first tile of the rows with a full panel, which it packs.
template <class T, int kGates, class P, class Begin>
EIGEN_DONT_INLINE void MultiplyFirstTile(const GateRows<ComputeType<T>>& a,
                                         const PackedWeights<T, kGates, P>& w,
                                         P* to, int64_t panel, int64_t row,
                                         int64_t size, const Begin& begin,
                                         ComputeType<T>* sums) {
  using C = ComputeType<T>;
  if constexpr (kValuesByRow<T, P>) {
    const auto multiply = [&](auto tile_rows) {
      Tile<C, tile_rows(), kPanelVectors<kGates>> tile;
      begin(TilePlace<kGateVectors<kGates>>{row, panel}, &tile);
      MultiplyAndPack<kGates>(RowsFrom<tile_rows()>(a.rows, row), w.depth(),
                              w.view().FromColumn(panel * w.kUnits), w.units(),
                              to, &tile);
      tile.Store(sums, kPanelWidth<C, kGates>);
    };
    if (size == kTileRows) {
      multiply(std::integral_constant<int, kTileRows>());
    } else {
      multiply(std::integral_constant<int, kFewestRowsInPassing>());
    }
  }
}

// The inner loop over a panel of int8: the one of panel.h or, where the
// processor multiplies matrices of bytes (FEAT_I8MM), one by 2 × 2 sums.
//
// tile = a · panel, the bits of int32, for a depth of so many quads, a multiple
// of kQuadsAtOnce.
template <int kGates, int kUsed, int kRows, int kVectors>
EIGEN_ALWAYS_INLINE void MultiplyQuads(const RowPointers<Int8Quad, kRows>& a,
                                       int64_t quads, const Int8Quad* panel,
                                       Tile<float, kRows, kVectors>* tile) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  constexpr int kWidth = kVectors * Vec<Int8Quad>::kSize;
  MatrixSums<kGates, kUsed, kRows, kVectors> sums;
  sums.Clear();
  int64_t quad = 0;
  for (; quad + 4 <= quads; quad += 4) {
    sums.template Add<2>(a, quad, panel + quad * kWidth);
  }
  if (quad < quads) sums.template Add<1>(a, quad, panel + quad * kWidth);
  sums.CopyTo(tile);
#else
  tile->Clear();
  MultiplyElements<kGates, kUsed, 1>(a, 0, quads, panel, tile);
#endif
}

// The sums of int8, without what the offset of unsigned rows added to it.
EIGEN_ALWAYS_INLINE Vec<float> IntegerSum(const Vec<float>& bits,
                                          const int32_t* offsets) {
  using Bits = typename Eigen::internal::unpacket_traits<
      Vec<float>::Packet>::integer_packet;
  Bits sum = Eigen::internal::preinterpret<Bits>(bits.packet);
  if constexpr (kRowsAreUnsigned) {
    sum = Eigen::internal::psub(sum, Eigen::internal::ploadu<Bits>(offsets));
  }
  return Vec<float>(
      Eigen::internal::pcast<Bits, typename Vec<float>::Packet>(sum));
}

// The same for rows and weights of int8.
template <class T, int kGates, class Begin>
EIGEN_DONT_INLINE void MultiplyTile(const QuantizedRows& a,
                                    const PackedWeights<T, kGates, Int8Quad>& w,
                                    const Int8Quad* weights, int64_t panel,
                                    int64_t row, int64_t size,
                                    const Begin& begin, float* sums) {
  constexpr int kSize = Vec<float>::kSize;
  constexpr int64_t kUnits = kPanelUnits<float, kGates>;
  constexpr int64_t kWidth = kPanelWidth<float, kGates>;
  const int64_t count = std::min(kUnits, w.units() - panel * kUnits);
  const int64_t quads = NumQuads(w.depth());
  const auto* const offsets =
      reinterpret_cast<const int32_t*>(weights + quads * kWidth);
  const auto* const scales =
      reinterpret_cast<const float*>(weights + (quads + 1) * kWidth);
  WithTile<kGates>(
      size, CeilDiv(count, kSize), [&](auto tile_rows, auto vectors) {
        constexpr int kVectors = kPanelVectors<kGates>;
        constexpr int kRows = tile_rows();
        Tile<float, kRows, kVectors> tile;  // bits of int32
        MultiplyQuads<kGates, vectors()>(
            RowsFrom<kRows>(RowView<Int8Quad>{a.quads, a.stride}, row), quads,
            weights, &tile);
        // Read from memory below: GCC would have it there throughout.
        tile.template Store<kGateVectors<kGates>, vectors()>(sums, kWidth);
        begin(TilePlace<vectors()>{row, panel}, &tile);
        BLOCKRNN_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          if (v % kGateVectors<kGates> >= vectors()) continue;
          const Vec<float> scale = Load<float>(scales + v * kSize);
          BLOCKRNN_UNROLL
          for (int r = 0; r < kRows; ++r) {
            tile.sum[r][v] =
                MulAdd(Vec<float>(a.scales[row + r]) * scale,
                       IntegerSum(Load<float>(sums + r * kWidth + v * kSize),
                                  offsets + v * kSize),
                       tile.sum[r][v]);
          }
        }
        tile.Store(sums, kWidth);
      });
}

}  // namespace internal

// Calls f(panel, row, size) for tiles of some rows and panels, panels being the
// outer loop. The tiles are as even as can be: a tile of one row costs nearly
// as much as one of three.
template <class F>
EIGEN_ALWAYS_INLINE void ForEachTile(Range panels, Range rows, const F& f) {
  const int64_t tiles = CeilDiv(rows.end - rows.begin, kTileRows);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    int64_t row = rows.begin;
    for (int64_t left = tiles; left > 0; --left) {
      const int64_t size = CeilDiv(rows.end - row, left);
      f(panel, row, size);
      row += size;
    }
  }
}

// Whether the rows of a GEMM differ from gate to gate.
template <class C>
bool EachGateHasRows(const GateRows<C>& a) {
  return a.gate_stride > 0;
}
inline bool EachGateHasRows(const QuantizedRows&) { return false; }

template <class T, int kGates, class P>
using PackedPanels = typename PackedWeights<T, kGates, P>::Packed;

// MultiplyPacked (below) for as many panels as are packed at once. first_begin:
// of the first tile, where that packs the panel in passing.
template <class T, int kGates, class P, class FirstBegin, class Begin,
          class Epilogue>
EIGEN_ALWAYS_INLINE void MultiplyPanels(
    const OperandRows<T, P>& a, const PackedWeights<T, kGates, P>& w,
    const PackedPanels<T, kGates, P>& packed, Range some, Range rows,
    const FirstBegin& first_begin, const Begin& begin,
    const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) C sums[kTileRows * kPanelWidth<C, kGates>];
  ForEachTile(some, rows, [&](int64_t panel, int64_t row, int64_t size) {
    if constexpr (std::is_same_v<P, Int8Quad>) {
      internal::MultiplyTile(a, w, packed[panel], panel, row, size, begin,
                             sums);
    } else if (packed.in_passing != nullptr && row == rows.begin) {
      internal::MultiplyFirstTile(a, w, packed.in_passing, panel, row, size,
                                  first_begin, sums);
    } else if (kGates > 1 && EachGateHasRows(a)) {
      internal::MultiplyTile<kGates>(a, w, packed[panel], panel, row, size,
                                     begin, sums);
    } else {
      internal::MultiplyTile<1>(a, w, packed[panel], panel, row, size, begin,
                                sums);
    }
    const int64_t unit = panel * kUnits;
    const int64_t count = std::min(kUnits, w.units() - unit);
    epilogue(GateTile<C>{
        size, kPanelWidth<C, kGates>, {row, unit, count, sums, kUnits}});
  });
}

// For some rows and panels: what begin(place, tile) puts into the tile + a · w,
// then epilogue(GateTile). Panels are the outer loop, so each is read from
// memory once. An epilogue gets the rows of a tile together, so that it loads
// the activations' constants once for them. A Begin should be a type that many
// epilogues share, since the GEMM is compiled anew for each. Streamed weights
// take the same rows for all gates.
template <class T, int kGates, class P, class Begin, class Epilogue>
void MultiplyPacked(const OperandRows<T, P>& a,
                    const PackedWeights<T, kGates, P>& w, Range panels,
                    Range rows, int worker, const Begin& begin,
                    const Epilogue& epilogue) {
  using C = ComputeType<T>;
  if (rows.begin >= rows.end) return;
  if constexpr (!std::is_same_v<P, Int8Quad>) {
    if (w.use() == WeightUse::kStreamed) {
      internal::MultiplyStreamed<C, kGates>(
          a.rows, w.view(), w.depth(), w.units(), panels, rows,
          [&](const auto& sums) { internal::BeginStreamed(begin, sums); },
          epilogue);
      return;
    }
  }
  ForEachPacking(w, panels, [&](Range some) {
    MultiplyPanels(a, w, w.Panels(some, rows, !EachGateHasRows(a), worker),
                   some, rows, begin, begin, epilogue);
  });
}

// The epilogue alone, for a GEMM with zeros.
template <class T, int kGates, class P, class Epilogue>
void ZeroGemm(const PackedWeights<T, kGates, P>& w, Range panels, Range rows,
              const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) const C sums[kPanelWidth<C, kGates>] = {};
  if (rows.begin >= rows.end) return;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t unit = panel * kUnits;
    const int64_t count = std::min(kUnits, w.units() - unit);
    epilogue(GateTile<C>{
        rows.end - rows.begin, 0, {rows.begin, unit, count, sums, kUnits}});
  }
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PACKED_GEMM_H_
