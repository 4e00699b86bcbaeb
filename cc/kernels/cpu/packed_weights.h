// Owns weights that a call uses at every step: packed once into panels of full
// depth, and the product of a few rows with some of them.

#ifndef BLOCKRNN_KERNELS_CPU_PACKED_WEIGHTS_H_
#define BLOCKRNN_KERNELS_CPU_PACKED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cpu/panel.h"
#include "cc/kernels/cpu/parallel.h"
#include "cc/kernels/cpu/product.h"
#include "cc/kernels/cpu/scratch.h"

namespace blockrnn::cpu {

// A half-open range of panels or rows.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

// Of storage type T.
template <class T, int kGates>
class PackedWeights {
 public:
  using P = PanelElement<T>;
  static constexpr int64_t kUnits = kPanelUnits<P, kGates>;

  // Weights of the given depth and units, packed in parallel into scratch.
  // Scratch::ok() tells whether there was any.
  PackedWeights(const Host& host, Scratch* scratch, const WeightView<T>& view,
                const int64_t (&gate_offset)[kGates], int64_t depth,
                int64_t units)
      : depth_(depth), units_(units), panels_(CeilDiv(units, kUnits)) {
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

 private:
  // Elements from panel to panel.
  int64_t Stride() const {
    return NumElements<P>(depth_) * kPanelWidth<P, kGates>;
  }

  const P* packed_ = nullptr;
  int64_t depth_;
  int64_t units_;
  int64_t panels_;
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

// For some rows and panels: what begin(place, tile) puts into the tile + a · w,
// then the epilogue. Panels are the outer loop, so each is read from memory
// once.
template <class T, int kGates, class Begin, class Epilogue>
void MultiplyPacked(const RowView<ComputeType<T>>& a,
                    const PackedWeights<T, kGates>& w, Range panels, Range rows,
                    const Begin& begin, const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) C sums[kTileRows * kPanelWidth<C, kGates>];
  // Tiles as even as can be: a tile of one row costs nearly what three cost.
  const int64_t tiles = CeilDiv(rows.end - rows.begin, kTileRows);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t unit = panel * kUnits;
    const int64_t count = std::min(kUnits, w.units() - unit);
    const int64_t used = CeilDiv(count, Vec<C>::kSize);
    int64_t row = rows.begin;
    for (int64_t left = tiles; left > 0; --left) {
      const int64_t size = CeilDiv(rows.end - row, left);
      WithTile<kGates>(size, used, [&](auto tile_rows, auto vectors) {
        Tile<C, tile_rows(), kPanelVectors<kGates>> tile;
        begin(TilePlace<vectors()>{row, panel}, &tile);
        MultiplyPanel<kGates, vectors()>(
            internal::RowsFrom<tile_rows()>(a, row), w.depth(), w.Panel(panel),
            &tile);
        for (int r = 0; r < tile_rows(); ++r) {
          tile.Store(r, sums + r * kPanelWidth<C, kGates>);
        }
      });
      for (int64_t r = 0; r < size; ++r) {
        epilogue(GateRun<C>{row + r, unit, count,
                            sums + r * kPanelWidth<C, kGates>, kUnits});
      }
      row += size;
    }
  }
}

// The epilogue alone, for a product with zeros.
template <class T, int kGates, class Epilogue>
void ZeroProduct(const PackedWeights<T, kGates>& w, Range panels, Range rows,
                 const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) const C sums[kPanelWidth<C, kGates>] = {};
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t unit = panel * kUnits;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      epilogue(GateRun<C>{row, unit, std::min(kUnits, w.units() - unit), sums,
                          kUnits});
    }
  }
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_PACKED_WEIGHTS_H_
