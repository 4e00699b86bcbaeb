// Owns weights that a call uses at every step, and the product of a few rows
// with some of their panels. They are packed once, into panels of full depth,
// or, where the steps are too few to pay for that, read as they stand.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/streamed_gemm.h"
#include "cc/kernels/cpu/threads/parallel.h"
#include "cc/kernels/cpu/threads/scratch.h"

namespace blockrnn::cpu {

// A half-open range of panels or rows.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Steps of a few rows that pay for packing the weights: packing reads and
// writes what a step reads. Measured (docs/notes/step_loop.md).
inline constexpr int64_t kStepsToPack = 12;

// Whether weights are read as they stand in a loop of so many steps and rows.
inline bool StreamsWeights(int64_t steps, int64_t rows) {
  return rows <= internal::kStreamTileRows && steps < kStepsToPack;
}

// Of storage type T.
template <class T, int kGates>
class PackedWeights {
 public:
  using P = PanelElement<T>;
  static constexpr int64_t kUnits = kPanelUnits<P, kGates>;

  // Weights of the given depth and units, packed in parallel into scratch
  // unless they are `streamed`. Scratch::ok() tells whether there was any.
  PackedWeights(const HostInterface& host, Scratch* scratch,
                const WeightView<T>& view, const int64_t (&gate_offset)[kGates],
                int64_t depth, int64_t units, bool streamed = false)
      : view_(view),
        streamed_(streamed),
        depth_(depth),
        units_(units),
        panels_(CeilDiv(units, kUnits)) {
    std::copy(gate_offset, gate_offset + kGates, gate_offset_);
    if (streamed) return;
    P* packed = scratch->Array<P>(panels_ * Stride());
    if (packed == nullptr) return;
    packed_ = packed;
    constexpr int64_t kGroup = kUnits * internal::kMostPanelsInGroup;
    const int64_t tasks = CeilDiv(units, kGroup);
    const double elements = static_cast<double>(depth) * units * kGates;
    const int workers =
        NumWorkers(host, std::min<int64_t>(tasks, 1 + elements / 64e3));
    ParallelFor(host, workers, tasks, [&](int, int64_t task) {
      const int64_t unit = task * kGroup;
      PackPanels(view, gate_offset, depth, unit, std::min(kGroup, units - unit),
                 Stride(), packed + unit / kUnits * Stride());
    });
  }

  int64_t depth() const { return depth_; }
  int64_t units() const { return units_; }
  int64_t panels() const { return panels_; }
  const P* Panel(int64_t panel) const { return packed_ + panel * Stride(); }

  // Where they stand, if nothing is packed.
  bool streamed() const { return streamed_; }
  const WeightView<T>& view() const { return view_; }
  int64_t GateOffset(int gate) const { return gate_offset_[gate]; }

 private:
  // Elements from panel to panel.
  int64_t Stride() const {
    return NumElements<P>(depth_) * kPanelWidth<P, kGates>;
  }

  const P* packed_ = nullptr;
  const WeightView<T> view_;
  int64_t gate_offset_[kGates];
  const bool streamed_;
  int64_t depth_;
  int64_t units_;
  int64_t panels_;
};

// The rows that a product takes: the same for all gates, or, `gate_stride`
// elements from one gate to the next, rows of its own for each.
template <class C>
struct GateRows {
  RowView<C> rows;
  int64_t gate_stride = 0;
};

// Where the tile stands that MultiplyPacked is at, and how many vectors of each
// gate it uses.
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

namespace internal {

// Products of a few rows with weights that are not packed: long runs of units,
// as the weights stand, of which the tiles then take their part.
template <class T, int kGates>
class StreamedProducts {
 public:
  using C = ComputeType<T>;
  static constexpr int64_t kMostPanels = 32;  // at a time

  StreamedProducts(const RowView<C>& a, const PackedWeights<T, kGates>& w,
                   Range panels, Range rows)
      : a_(a.FromRow(rows.begin)),
        w_(w),
        panels_(panels),
        rows_(rows),
        here_{panels.begin, panels.begin} {}

  // sums = what begin puts into a tile + its part of the products.
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
      const C* product =
          products_ + (row + r - rows_.begin) * kGates * count_ + unit;
      for (int gate = 0; gate < kGates; ++gate, product += count_) {
        C* sum = sums + gate * kUnits;
        ForEachVector<C>(used, [&](int64_t j, auto lanes) {
          Store(sum + j, Load<C>(sum + j) + Load<C>(product + j, lanes));
        });
      }
    }
  }

 private:
  static constexpr int64_t kUnits = kPanelUnits<C, kGates>;

  // The products of the panels from `first` on.
  void Multiply(int64_t first) {
    here_ = {first, std::min(first + kMostPanels, panels_.end)};
    count_ = std::min(here_.end * kUnits, w_.units()) - first * kUnits;
    const int64_t num_rows = rows_.end - rows_.begin;
    const int64_t ld = kGates * count_;
    std::fill(products_, products_ + num_rows * ld, C(0));
    const ProductPart<C, T> part = {a_, w_.depth(), w_.view()};
    for (int gate = 0; gate < kGates; ++gate) {
      StreamPart(part, num_rows, w_.GateOffset(gate) + first * kUnits, count_,
                 products_ + gate * count_, ld);
    }
  }

  const RowView<C> a_;
  const PackedWeights<T, kGates>& w_;
  const Range panels_;
  const Range rows_;
  Range here_;         // the panels whose products there are
  int64_t count_ = 0;  // their units
  alignas(64) C products_[kStreamTileRows * kMostPanels *
                          kPanelWidth<C, kGates>];  // [rows, gates, count]
};

// sums = what begin puts into a tile of `size` rows from `row` on + a · w. A
// function of its own, whatever the epilogue is: there is one for each size of
// a tile.
template <int kOperands, class T, int kGates, class Begin>
EIGEN_DONT_INLINE void MultiplyTile(const GateRows<ComputeType<T>>& a,
                                    const PackedWeights<T, kGates>& w,
                                    int64_t panel, int64_t row, int64_t size,
                                    const Begin& begin, ComputeType<T>* sums) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  const int64_t count = std::min(kUnits, w.units() - panel * kUnits);
  WithTile<kGates>(size, CeilDiv(count, Vec<C>::kSize),
                   [&](auto tile_rows, auto vectors) {
                     Tile<C, tile_rows(), kPanelVectors<kGates>> tile;
                     begin(TilePlace<vectors()>{row, panel}, &tile);
                     MultiplyPanel<kGates, vectors(), kOperands>(
                         RowsFrom<tile_rows()>(a.rows, row), w.depth(),
                         w.Panel(panel), &tile, a.gate_stride);
                     tile.Store(sums, kPanelWidth<C, kGates>);
                   });
}

}  // namespace internal

// Calls f(panel, row, size) for tiles of some rows and panels, panels being the
// outer loop. The tiles are as even as can be: one of one row costs nearly what
// one of three costs.
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

// For some rows and panels: what begin(place, tile) puts into the tile + a · w,
// then epilogue(GateTile). Panels are the outer loop, so each is read from
// memory once. An epilogue has the rows of a tile together, so that it loads
// constants of the activations once for them. A Begin is a type that many
// epilogues share, or the product is compiled for each of them. Weights that
// are streamed take the same rows for all gates.
template <class T, int kGates, class Begin, class Epilogue>
void MultiplyPacked(const GateRows<ComputeType<T>>& a,
                    const PackedWeights<T, kGates>& w, Range panels, Range rows,
                    const Begin& begin, const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) C sums[kTileRows * kPanelWidth<C, kGates>];
  internal::StreamedProducts<T, kGates> streamed(a.rows, w, panels, rows);
  ForEachTile(panels, rows, [&](int64_t panel, int64_t row, int64_t size) {
    const int64_t unit = panel * kUnits;
    const int64_t count = std::min(kUnits, w.units() - unit);
    if (w.streamed()) {
      streamed.Tile(panel, row, size, begin, sums);
    } else if (kGates > 1 && a.gate_stride > 0) {
      internal::MultiplyTile<kGates>(a, w, panel, row, size, begin, sums);
    } else {
      internal::MultiplyTile<1>(a, w, panel, row, size, begin, sums);
    }
    epilogue(GateTile<C>{
        size, kPanelWidth<C, kGates>, {row, unit, count, sums, kUnits}});
  });
}

// The epilogue alone, for a product with zeros.
template <class T, int kGates, class Epilogue>
void ZeroProduct(const PackedWeights<T, kGates>& w, Range panels, Range rows,
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

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_
