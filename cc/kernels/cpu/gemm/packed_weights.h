// Defines weights that a call uses at every step, and the GEMM of a few rows
// with some of their panels. The weights are packed once, into panels of full
// depth, or, where the steps are too few to pay for that, streamed in place.
// Frozen weights were packed before the call; transposed ones, which are
// streamed as dot products, with a copy for that.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/int8_panel.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/streamed_gemm.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Whether a loop of so many steps and rows streams its weights.
inline bool StreamsWeights(int64_t steps, int64_t rows) {
  return rows <= internal::kStreamTileRows && steps < Blocking::kStepsToPack;
}

// Rows of int8, four values in an element, and their scales.
struct QuantizedRows {
  const Int8Quad* quads = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const float* scales = nullptr;  // [rows]
};

// The rows that weights in panels of elements P are multiplied with.
template <class T, class P>
using OperandRows = std::conditional_t<std::is_same_v<P, Int8Quad>,
                                       QuantizedRows, GateRows<ComputeType<T>>>;

// What multiplies the weights: rows in memory or, for weights in int8,
// quantised copies of them.
//
// Of storage type T, for weights in panels of elements P.
template <class T, class P>
class StepRows {
 public:
  // Up to `rows` rows of a depth, for some workers that each need all of them.
  StepRows(Scratch*, int64_t /*workers*/, int64_t /*rows*/, int64_t /*depth*/) {
  }

  // What multiplies the weights; `rows` of it are needed by one worker.
  const GateRows<ComputeType<T>>& operator()(const GateRows<ComputeType<T>>& a,
                                             Range /*rows*/,
                                             int /*worker*/) const {
    return a;
  }
};

template <class T>
class StepRows<T, Int8Quad> {
 public:
  StepRows(Scratch* scratch, int64_t workers, int64_t rows, int64_t depth)
      : rows_(rows),
        depth_(depth),
        stride_(NumQuads(depth)),
        quads_(scratch->Array<Int8Quad>(workers * rows * stride_)),
        scales_(scratch->Array<float>(workers * rows)) {}

  // Every worker quantises the rows that it multiplies: less work than a
  // barrier before the GEMM.
  QuantizedRows operator()(const GateRows<float>& a, Range rows,
                           int worker) const {
    Int8Quad* const quads = quads_ + worker * rows_ * stride_;
    float* const scales = scales_ + worker * rows_;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      QuantizeRow(a.rows.Row(row), depth_, quads + row * stride_, scales + row);
    }
    return {quads, stride_, scales};
  }

 private:
  const int64_t rows_;
  const int64_t depth_;
  const int64_t stride_;
  Int8Quad* const quads_;
  float* const scales_;
};

// Where the weights of a step are read.
enum class WeightUse {
  kPacked,    // in panels that are packed before the first step
  kOnce,      // in panels, a few at a time, packed just before their only GEMM
  kStreamed,  // in place
};

// The sums have the same bits either way, but for transposed weights, which are
// streamed as dot products, and for pairs of bfloat16, to which rows are
// rounded where they multiply panels: those are streamed where the shape of the
// call says so.
struct WeightUses {
  WeightUse plain = WeightUse::kPacked;
  WeightUse transposed = WeightUse::kPacked;
};

// Whether a loop uses weights once, which are not frozen. Workers that share
// the rows each need all weights, so they are packed for all of them before.
inline bool UsesWeightsOnce(int64_t steps, StepSplit split) {
  return steps == 1 && split != StepSplit::kRows;
}

// Those of weights of type T that are not frozen.
template <class T>
WeightUses UsesInCall(int64_t steps, int64_t rows, StepSplit split) {
  if (StreamsWeights(steps, rows)) {
    return {WeightUse::kStreamed, WeightUse::kStreamed};
  }
  if (!UsesWeightsOnce(steps, split)) return {};
  const bool streams = rows <= Blocking::kStreamRows &&
                       std::is_same_v<PanelElement<T>, ComputeType<T>>;
  return {streams ? WeightUse::kStreamed : WeightUse::kOnce, WeightUse::kOnce};
}

// How a cell packs its weights.
struct Packing {
  WeightUses uses;
  bool once = false;         // each GEMM is the only one of its weights
  bool has_dropout = false;  // the state's GEMM has rows for each gate
  bool fuses_input = true;  // or w_x is frozen; else the GEMM reads it in place

  WeightUses OfInput() const {
    if (!once) return {};
    return {uses.plain, WeightUse::kOnce};
  }
  // Streamed weights multiply the same rows for all gates.
  WeightUses OfState() const {
    return has_dropout && uses.plain != WeightUse::kOnce ? WeightUses() : uses;
  }
};

// A first tile that packs its panel in passing has so many rows.
inline constexpr int64_t kFewestRowsInPassing = kTileRows - 1;

// The rows of the first tile of some.
inline int64_t FirstTileRows(Range rows) {
  const int64_t count = rows.end - rows.begin;
  return CeilDiv(count, std::max<int64_t>(1, CeilDiv(count, kTileRows)));
}

// Whether a panel of elements P holds values, in the order in which the inner
// loop of this processor reads weights in place.
template <class T, class P>
inline constexpr bool kValuesByRow =
#if defined(__aarch64__)
    false;
#else
    std::is_same_v<P, ComputeType<T>>;
#endif

// Elements of a panel of such a depth, over its width.
template <class P>
int64_t PanelElements(int64_t k) {
  return std::is_same_v<P, Int8Quad> ? NumQuads(k) + 2 : NumElements<P>(k);
}

// Of storage type T, in panels of elements P.
template <class StorageType, int kGates,
          class Element = PanelElement<StorageType>>
class PackedWeights {
 public:
  using T = StorageType;
  using P = Element;
  static constexpr int64_t kUnits = kPanelUnits<P, kGates>;

  // Weights of the given depth and units, packed in parallel into the next part
  // of the memory if they are to be packed now. Frozen ones are there already.
  PackedWeights(PanelMemory* memory, const WeightView<T>& view, int64_t depth,
                int64_t units, WeightUses uses = {})
      : view_(view),
        use_(view.transposed ? uses.transposed : uses.plain),
        depth_(depth),
        units_(units),
        panels_(CeilDiv(units, kUnits)),
        at_once_(MayPackInPassing() ? 1
                                    : PanelsIn(Tuning::kBytesPackedAtOnce)) {
    if (use_ == WeightUse::kStreamed && !memory->outlives_call()) return;
    if (use_ == WeightUse::kOnce) {
      late_ = memory->Take<P>(MostStepWorkers(memory->executor()) *
                              std::min(at_once_, panels_) * Stride());
      return;
    }
    if (kCopiesTransposed && view.transposed && memory->outlives_call()) {
      CopyTransposed(memory);
    }
    P* const packed = memory->Take<P>(panels_ * Stride());
    packed_ = packed;
    if (packed == nullptr || memory->frozen()) return;
    constexpr int64_t kGroup = kUnits * Tuning::kPanelsPerGroup;
    const int64_t tasks = CeilDiv(units, kGroup);
    const double elements = static_cast<double>(depth) * units * kGates;
    const Executor& executor = memory->executor();
    const int workers =
        NumWorkers(executor, std::min<int64_t>(tasks, 1 + elements / 64e3));
    ParallelFor(executor, workers, tasks, [&](int, int64_t task) {
      const int64_t unit = task * kGroup;
      PackPanels<kGates>(view, units, depth, unit,
                         std::min(kGroup, units - unit), Stride(),
                         packed + unit / kUnits * Stride());
    });
  }

  PackedWeights(PanelMemory&& scratch, const WeightView<T>& view, int64_t depth,
                int64_t units, WeightUses uses = {})
      : PackedWeights(&scratch, view, depth, units, uses) {}

  int64_t depth() const { return depth_; }
  int64_t units() const { return units_; }
  int64_t panels() const { return panels_; }
  // Panels next to each other.
  struct Packed {
    const P* first;
    int64_t begin;
    int64_t stride;

    const P* operator[](int64_t panel) const {
      return first + (panel - begin) * stride;
    }
  };
  // Some panels; of weights that are used once, up to PanelsAtOnce, which are
  // packed now. No two workers that are the same may do so at a time.
  Packed Panels(Range some, int worker) const {
    if (use_ != WeightUse::kOnce) return {packed_, 0, Stride()};
    P* const to = Room(worker);
    const int64_t unit = some.begin * kUnits;
    PackPanels<kGates>(view_, units_, depth_, unit,
                       std::min(some.end * kUnits, units_) - unit, Stride(),
                       to);
    return {to, some.begin, Stride()};
  }
  // Whether the first tile of some rows packs a panel while it reads it, into
  // Room(worker): it hides the packing behind its multiply-adds.
  bool PacksInPassing(int64_t panel, Range rows) const {
    return use_ == WeightUse::kOnce && MayPackInPassing() &&
           (panel + 1) * kUnits <= units_ &&
           FirstTileRows(rows) >= kFewestRowsInPassing;
  }
  P* Room(int worker) const {
    return late_ + worker * std::min(at_once_, panels_) * Stride();
  }
  Packed InRoom(Range some, int worker) const {
    return {Room(worker), some.begin, Stride()};
  }
  int64_t PanelsAtOnce() const {
    return use_ == WeightUse::kOnce ? at_once_ : panels_;
  }

  WeightUse use() const { return use_; }
  // The weights in place, of which nothing is packed if they are streamed.
  const WeightView<T>& view() const { return view_; }

 private:
  // Transposed weights are streamed as dot products, whose bits panels do not
  // give. Weights of lower precision than T's are never streamed.
  static constexpr bool kCopiesTransposed = std::is_same_v<P, PanelElement<T>>;

  bool MayPackInPassing() const {
    return kValuesByRow<T, P> && !view_.transposed;
  }

  // At least one.
  int64_t PanelsIn(int64_t bytes) const {
    const int64_t each = std::max<int64_t>(1, Stride() * sizeof(P));
    return std::clamp<int64_t>(bytes / each, 1, Tuning::kPanelsPerGroup);
  }

  // Elements from panel to panel.
  int64_t Stride() const {
    return PanelElements<P>(depth_) * kPanelWidth<P, kGates>;
  }

  // The weights as they are, for calls that stream them.
  void CopyTransposed(PanelMemory* memory) {
    const int64_t columns = kGates * units_;
    T* const copy = memory->Take<T>(columns * depth_);
    // Without rows there may be no weights either.
    if (copy != nullptr && depth_ > 0 && !memory->frozen()) {
      for (int64_t column = 0; column < columns; ++column) {
        const T* const from = view_.w + column * view_.ldw;
        std::copy(from, from + depth_, copy + column * depth_);
      }
    }
    view_ = {copy, depth_, true};
  }

  const P* packed_ = nullptr;
  P* late_ = nullptr;  // [workers, at_once_, Stride()], of weights used once
  WeightView<T> view_;
  const WeightUse use_;
  int64_t depth_;
  int64_t units_;
  int64_t panels_;
  int64_t at_once_;
};

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
                                         P* room, int64_t panel, int64_t row,
                                         int64_t size, const Begin& begin,
                                         ComputeType<T>* sums) {
  using C = ComputeType<T>;
  if constexpr (kValuesByRow<T, P>) {
    const auto multiply = [&](auto tile_rows) {
      Tile<C, tile_rows(), kPanelVectors<kGates>> tile;
      begin(TilePlace<kGateVectors<kGates>>{row, panel}, &tile);
      MultiplyAndPack<kGates>(RowsFrom<tile_rows()>(a.rows, row), w.depth(),
                              w.view().FromColumn(panel * w.kUnits), w.units(),
                              room, &tile);
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

// MultiplyPacked (below) for as many panels as are packed at once. first_begin:
// of the first tile, where that packs the panel in passing.
template <class T, int kGates, class P, class FirstBegin, class Begin,
          class Epilogue>
EIGEN_ALWAYS_INLINE void MultiplyPanels(const OperandRows<T, P>& a,
                                        const PackedWeights<T, kGates, P>& w,
                                        Range some, Range rows, int worker,
                                        const FirstBegin& first_begin,
                                        const Begin& begin,
                                        const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  alignas(64) C sums[kTileRows * kPanelWidth<C, kGates>];
  const auto multiply = [&](const auto& packed, bool in_passing) {
    ForEachTile(some, rows, [&](int64_t panel, int64_t row, int64_t size) {
      if constexpr (std::is_same_v<P, Int8Quad>) {
        internal::MultiplyTile(a, w, packed[panel], panel, row, size, begin,
                               sums);
      } else if (in_passing && row == rows.begin) {
        internal::MultiplyFirstTile(a, w, w.Room(worker), panel, row, size,
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
  };
  if (EachGateHasRows(a) || !w.PacksInPassing(some.begin, rows)) {
    multiply(w.Panels(some, worker), false);
  } else {
    multiply(w.InRoom(some, worker), true);
  }
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
    MultiplyPanels(a, w, some, rows, worker, begin, begin, epilogue);
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

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_
