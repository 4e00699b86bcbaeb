// Implements GEMMs of activations with weights that are used once: C = A · W or
// A · Wᵀ, A in up to two adjacent parts ([x, h] without a copy), with an
// epilogue that sees finished values while they are in cache.
//
// With few rows the weights are streamed: read in place, each once, which is
// all the work there is. With more rows, panels are packed on the fly
// (panel.h), and the rows share the packing. Either way the order in which an
// element is summed follows from the shape alone, so neither the number of
// threads nor the split changes a bit.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_GEMM_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/streamed_gemm.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// How many workers a section is worth that does so many multiply-adds with so
// many weights and results.
inline int WorkersWorth(const Executor& executor, double macs,
                        double elements) {
  const double work = macs + Tuning::kMacsPerElement * elements;
  return static_cast<int>(std::clamp<double>(work / Tuning::kMacsPerWorker, 1,
                                             executor.num_threads()));
}

// out[m, g, u] = Σ_parts Σ_k a[m, k] · w[k, g · units + u]
// in a call whose storage type is T; the weights are stored as W.
template <class T, int kGates, class W = T>
struct Gemm {
  int64_t rows = 0;
  int64_t units = 0;  // of one gate
  int num_parts = 0;
  GemmOperands<ComputeType<T>, W> parts[2];
  // Sums have the bits of a GEMM with PackedWeights, with few rows as well.
  bool bits_of_packed = false;
  // Not 0: they have the bits of the same GEMM with so many rows.
  int64_t bits_of_rows = 0;

  int64_t Depth() const {
    int64_t depth = 0;
    for (int s = 0; s < num_parts; ++s) depth += parts[s].k;
    return depth;
  }
  double Macs() const {
    return static_cast<double>(rows) * static_cast<double>(units) * kGates *
           static_cast<double>(Depth());
  }
  // Weights and results.
  double Elements() const {
    return static_cast<double>(units) * kGates *
           static_cast<double>(Depth() + rows);
  }
};

namespace internal {

// How a GEMM is split into tasks of units × rows.
struct Split {
  int64_t units_per_task = 1;
  int64_t rows_per_task = 1;
  int64_t unit_tasks = 0;
  int64_t row_tasks = 0;

  int64_t num_tasks() const { return unit_tasks * row_tasks; }
};

inline constexpr int64_t kPackedDepth = Blocking::kPackedDepth;

// Packed weights may be elements of another type, and transposed weights stream
// as dot products, with a sum per lane: either would have other bits.
template <class T, int kGates, class W>
bool Streams(const Gemm<T, kGates, W>& gemm) {
  const int64_t rows = gemm.bits_of_rows > 0 ? gemm.bits_of_rows : gemm.rows;
  if (rows > Blocking::kStreamRows) return false;
  if (!gemm.bits_of_packed) return true;
  if (!std::is_same_v<PanelElement<T>, ComputeType<T>>) return false;
  return std::none_of(gemm.parts, gemm.parts + gemm.num_parts,
                      [](const auto& part) { return part.weights.transposed; });
}

// Whether panels hold values of the compute type although PanelElement<T> are
// pairs of bfloat16, to which operands would be rounded
// (Blocking::kUnroundedDepth).
template <class T, int kGates, class W>
bool PacksUnrounded(const Gemm<T, kGates, W>& gemm) {
  return !gemm.bits_of_packed && gemm.Depth() <= Blocking::kUnroundedDepth;
}

// Depths to which the parts are packed, one after the other.
template <class T, int kGates, class W>
int64_t NumDepths(const Gemm<T, kGates, W>& gemm) {
  int64_t depths = 0;
  for (int s = 0; s < gemm.num_parts; ++s) {
    depths += CeilDiv(gemm.parts[s].k, kPackedDepth);
  }
  return depths;
}

// Elements that a task packs of each column of a panel at a time.
template <class T, int kGates, class W>
int64_t PackedElements(const Gemm<T, kGates, W>& gemm) {
  int64_t depth = 0;
  for (int s = 0; s < gemm.num_parts; ++s) {
    depth = std::max(depth, std::min(kPackedDepth, gemm.parts[s].k));
  }
  return PacksUnrounded(gemm) ? depth : NumElements<PanelElement<T>>(depth);
}

// Adjacent panels that a task packs together: more of them where they are not
// deep, for longer runs of results.
template <class T, int kGates, class W>
int64_t MostPanelsPerTask(const Gemm<T, kGates, W>& gemm) {
  if (NumDepths(gemm) > 1) return Tuning::kPanelsPerGroup;
  const int64_t bytes = PackedElements(gemm) * sizeof(PanelElement<T>) *
                        kPanelWidth<ComputeType<T>, kGates>;
  return std::max(Tuning::kPanelsPerGroup,
                  Tuning::kBytesPackedAtOnce / std::max<int64_t>(1, bytes));
}

template <class T, int kGates, class W>
Split SplitGemm(const Gemm<T, kGates, W>& gemm, int workers) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  Split split;
  if (gemm.units == 0 || gemm.rows == 0) return split;  // no task
  const int64_t panels = CeilDiv(gemm.units, kUnits);
  // Two tasks per worker, so that others can take work from a slow one.
  const int64_t pieces = workers > 1 ? 2 * workers : 1;
  if (Streams(gemm)) {
    // Long runs of units, so that the streams through memory are long too, but
    // 8 rows of them fit the first-level cache.
    split.units_per_task =
        kUnits * std::clamp<int64_t>(CeilDiv(panels, workers), 1, 8 * kGates);
    split.rows_per_task = std::max<int64_t>(gemm.rows, 1);
  } else {
    const int64_t group =
        std::clamp<int64_t>(panels / pieces, 1, MostPanelsPerTask(gemm));
    split.units_per_task = kUnits * group;
    // As many pieces as keep the workers busy or the blocks small, and all of
    // about one size.
    const int64_t row_pieces =
        std::max(std::clamp<int64_t>(pieces / CeilDiv(panels, group), 1,
                                     CeilDiv(gemm.rows, 4 * kTileRows)),
                 CeilDiv(gemm.rows, Tuning::kRowsPerPacking));
    split.rows_per_task =
        CeilDiv(CeilDiv(gemm.rows, row_pieces), kTileRows) * kTileRows;
  }
  split.unit_tasks = CeilDiv(gemm.units, split.units_per_task);
  split.row_tasks = CeilDiv(gemm.rows, split.rows_per_task);
  return split;
}

// Sums and panel elements that one worker needs for the tasks of a split.
template <class T, int kGates, class W>
int64_t TaskSums(const Gemm<T, kGates, W>& gemm, const Split& split) {
  if (!Streams(gemm) && NumDepths(gemm) <= 1) return 0;
  return std::min(split.rows_per_task, gemm.rows) * kGates *
         split.units_per_task;
}
template <class T, int kGates, class W>
int64_t TaskElements(const Gemm<T, kGates, W>& gemm, const Split& split) {
  if (Streams(gemm)) return 0;
  return PackedElements(gemm) * kGates * split.units_per_task;
}

template <class T, int kGates, class W, class Epilogue>
void StreamTask(const Gemm<T, kGates, W>& gemm, int64_t unit, int64_t count,
                ComputeType<T>* sums, const Epilogue& epilogue) {
  using C = ComputeType<T>;
  const int64_t ld_sums = kGates * count;
  std::fill(sums, sums + gemm.rows * ld_sums, C(0));
  // All units of all gates are one run: fewer partial vectors.
  const bool one_run = count == gemm.units;
  for (int s = 0; s < gemm.num_parts; ++s) {
    if (one_run) {
      StreamPart(gemm.parts[s], gemm.rows, 0, ld_sums, sums, ld_sums);
      continue;
    }
    for (int gate = 0; gate < kGates; ++gate) {
      StreamPart(gemm.parts[s], gemm.rows, gate * gemm.units + unit, count,
                 sums + gate * count, ld_sums);
    }
  }
  epilogue(GateTile<C>{gemm.rows, ld_sums, {0, unit, count, sums, count}});
}

// The rows and the group of panels that one task has, and its scratch. The
// panels hold elements of type P.
template <class T, int kGates, class P>
struct PanelBlock {
  int64_t row = 0;
  int64_t rows = 0;
  int64_t unit = 0;
  int64_t units = 0;
  int64_t panels = 0;
  int64_t stride = 0;              // of the panels
  ComputeType<T>* sums = nullptr;  // [rows, panels, panel width]
  P* packed = nullptr;             // [panels, elements, panel width]
};

// Some adjacent rows of an operand.
template <class C>
struct RowsAt {
  RowView<C> a;
  int64_t row;
  int64_t count;
};
// The rows of a tile in memory, a panel wide.
template <class C>
struct TileAt {
  C* first;
  int64_t ld;
};

// to = from + a · packed for a tile and one panel, of whose gates `used`
// vectors are used; without `from` the sums start from zero. Not inlined into
// every epilogue's code.
template <int kGates, class P, class C>
EIGEN_DONT_INLINE void MultiplyPackedTile(const RowsAt<C>& a, int64_t used,
                                          int64_t k, const P* packed,
                                          TileAt<const C> from, TileAt<C> to) {
  WithTile<kGates>(a.count, used, [&](auto rows, auto vectors) {
    Tile<C, rows(), kPanelVectors<kGates>> tile;
    if (from.first == nullptr) {
      tile.Clear();
    } else {
      tile.template Load<kGateVectors<kGates>, vectors()>(from.first, from.ld);
    }
    MultiplyPanel<kGates, vectors()>(RowsFrom<rows()>(a.a, a.row), k, packed,
                                     &tile);
    tile.template Store<kGateVectors<kGates>, vectors()>(to.first, to.ld);
  });
}

// Sums go from depth to depth in block.sums. Those of the last depth, or of the
// only one, go to the epilogue from the first-level cache.
template <class T, int kGates, class W, class P, class Epilogue>
void PanelTask(const Gemm<T, kGates, W>& gemm,
               const PanelBlock<T, kGates, P>& block,
               const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  constexpr int64_t kWidth = kPanelWidth<C, kGates>;
  alignas(64) C tile[kTileRows * kWidth];
  const int64_t ld_sums = block.panels * kWidth;
  // Rows are the outer loop: those of the operands stay in the first-level
  // cache, and those of the results are written in long runs.
  const auto for_each_tile = [&](const auto& f) {
    for (int64_t m = 0; m < block.rows; m += kTileRows) {
      for (int64_t panel = 0; panel < block.panels; ++panel) {
        const int64_t unit = panel * kUnits;
        const int64_t count = std::min(kUnits, block.units - unit);
        f(panel, m,
          GateTile<C>{std::min<int64_t>(kTileRows, block.rows - m),
                      kWidth,
                      {block.row + m, block.unit + unit, count, tile, kUnits}});
      }
    }
  };
  const int64_t depths = NumDepths(gemm);
  if (depths == 0) {
    std::fill(tile, tile + kTileRows * kWidth, C(0));
    for_each_tile(
        [&](int64_t, int64_t, const GateTile<C>& part) { epilogue(part); });
    return;
  }
  int64_t depth = 0;
  for (int s = 0; s < gemm.num_parts; ++s) {
    const auto& part = gemm.parts[s];
    for (int64_t p = 0; p < part.k; p += kPackedDepth) {
      const int64_t k = std::min(kPackedDepth, part.k - p);
      const RowView<C> a = part.a.From(p);
      const bool first = depth++ == 0;
      const bool last = depth == depths;
      PackPanels<kGates>(part.weights.From(p), gemm.units, k, block.unit,
                         block.units, block.stride, block.packed);
      for_each_tile([&](int64_t panel, int64_t m, const GateTile<C>& out) {
        // With one depth there are none.
        C* const sums =
            first && last ? nullptr : block.sums + m * ld_sums + panel * kWidth;
        MultiplyPackedTile<kGates>(
            RowsAt<C>{a, out.first.row, out.rows},
            CeilDiv(out.first.count, Vec<C>::kSize), k,
            block.packed + panel * block.stride,
            TileAt<const C>{first ? nullptr : sums, ld_sums},
            last ? TileAt<C>{tile, kWidth} : TileAt<C>{sums, ld_sums});
        if (last) epilogue(out);
      });
    }
  }
}

// Whether an epilogue does no more than store rows of sums: StoreTo(row) is
// where, or nullptr if it adds them to something.
template <class Epilogue, class = void>
inline constexpr bool kStoresRows = false;
template <class Epilogue>
inline constexpr bool
    kStoresRows<Epilogue, std::void_t<decltype(&Epilogue::StoreTo)>> = true;

// out[m] = Σ_k a[m, k] · w[k], with a tile's bits, one run of units for each
// row.
template <int kRows, class C>
EIGEN_DONT_INLINE void StoreShallowRows(const RowPointers<C, kRows>& a,
                                        int64_t k, const C* w, int64_t ldw,
                                        int64_t count, C* const* out) {
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Vec<C> sum[kRows];
    BLOCKRNN_UNROLL
    for (Vec<C>& s : sum) s = Vec<C>(0);
    for (int64_t p = 0; p < k; ++p) {
      Vec<C> weight = Load<C>(w + p * ldw + j, lanes);
      if constexpr (kRows > 1) KeepInRegister(&weight);
      BLOCKRNN_UNROLL
      for (int m = 0; m < kRows; ++m) {
        sum[m] = MulAdd(Vec<C>(a.row[m][p]), weight, sum[m]);
      }
    }
    BLOCKRNN_UNROLL
    for (int m = 0; m < kRows; ++m) Store(out[m] + j, sum[m], lanes);
  });
}

// A task of a GEMM of few terms, whose time is that of writing the results:
// they are stored from registers. Returns false where it does not apply.
template <class T, int kGates, class W, class Epilogue>
bool ShallowTask(const Gemm<T, kGates, W>& gemm, Range rows, int64_t unit,
                 int64_t count, const Epilogue& epilogue) {
  using C = ComputeType<T>;
  // Deeper sums may be of pairs of bfloat16.
  static_assert(Tuning::kShallowDepth <= Blocking::kUnroundedDepth);
  if constexpr (kStoresRows<Epilogue> && kGates == 1 && std::is_same_v<W, C>) {
    const auto& part = gemm.parts[0];
    if (gemm.num_parts != 1 || part.k > Tuning::kShallowDepth ||
        part.weights.transposed || gemm.bits_of_packed ||
        epilogue.StoreTo(rows.begin) == nullptr) {
      return false;
    }
    for (int64_t m = rows.begin; m < rows.end; m += kStreamTileRows) {
      WithRows<kStreamTileRows>(rows.end - m, [&](auto tile_rows) {
        C* out[tile_rows()];
        for (int r = 0; r < tile_rows(); ++r) {
          out[r] = epilogue.StoreTo(m + r) + unit;
        }
        StoreShallowRows<tile_rows()>(RowsFrom<tile_rows()>(part.a, m), part.k,
                                      part.weights.w + unit, part.weights.ldw,
                                      count, out);
      });
    }
    return true;
  }
  return false;
}

template <class T, int kGates, class W, class Epilogue>
void RunTask(const Gemm<T, kGates, W>& gemm, const Split& split, int64_t task,
             ComputeType<T>* sums, PanelElement<T>* packed,
             const Epilogue& epilogue) {
  using C = ComputeType<T>;
  const int64_t unit = task / split.row_tasks * split.units_per_task;
  const int64_t count = std::min(split.units_per_task, gemm.units - unit);
  if (Streams(gemm)) {
    StreamTask(gemm, unit, count, sums, epilogue);
    return;
  }
  const int64_t row = task % split.row_tasks * split.rows_per_task;
  const int64_t rows = std::min(split.rows_per_task, gemm.rows - row);
  if (ShallowTask(gemm, {row, row + rows}, unit, count, epilogue)) return;
  const auto run = [&](auto* panels) {
    PanelBlock<T, kGates, std::remove_pointer_t<decltype(panels)>> block;
    block.row = row;
    block.rows = rows;
    block.unit = unit;
    block.units = count;
    block.panels = CeilDiv(count, kPanelUnits<C, kGates>);
    block.stride = PackedElements(gemm) * kPanelWidth<C, kGates>;
    block.packed = panels;
    block.sums = sums;
    PanelTask(gemm, block, epilogue);
  };
  if constexpr (!std::is_same_v<PanelElement<T>, C>) {
    static_assert(sizeof(C) == sizeof(PanelElement<T>));
    if (PacksUnrounded(gemm)) {
      run(reinterpret_cast<C*>(packed));
      return;
    }
  }
  run(packed);
}

}  // namespace internal

// A GEMM and what is done with its results: epilogue(GateTile) is called for
// tiles that cover each unit of each row once, from any worker.
template <class T, int kGates, class W, class Epilogue>
struct GemmWithEpilogue {
  Gemm<T, kGates, W> gemm;
  Epilogue epilogue;
};
template <class T, int kGates, class W, class Epilogue>
GemmWithEpilogue(Gemm<T, kGates, W>, Epilogue)
    -> GemmWithEpilogue<T, kGates, W, Epilogue>;

// The sums and panels of the workers while GEMMs run. Scratch is freed only
// when the engine call is over, so GEMMs that are run again for each block of a
// sequence use one of these.
template <class T>
class GemmScratch {
 public:
  explicit GemmScratch(const Executor& executor) : scratch_(executor) {}

  // Whether there is memory for so much.
  bool Reserve(int64_t num_sums, int64_t num_elements) {
    if (num_sums > num_sums_) {
      sums_ = scratch_.Array<ComputeType<T>>(num_sums);
      num_sums_ = num_sums;
    }
    if (num_elements > num_elements_) {
      elements_ = scratch_.Array<PanelElement<T>>(num_elements);
      num_elements_ = num_elements;
    }
    return scratch_.ok();
  }

  ComputeType<T>* sums() const { return sums_; }
  PanelElement<T>* elements() const { return elements_; }

 private:
  Scratch scratch_;
  ComputeType<T>* sums_ = nullptr;
  PanelElement<T>* elements_ = nullptr;
  int64_t num_sums_ = 0;
  int64_t num_elements_ = 0;
};

// Runs independent GEMMs, all of storage type T, as one parallel section.
template <class T, class... Gemms>
Status RunGemms(const Executor& executor, GemmScratch<T>* scratch,
                const Gemms&... gemms) {
  const int wanted = WorkersWorth(executor, (gemms.gemm.Macs() + ...),
                                  (gemms.gemm.Elements() + ...));

  constexpr int kGemms = sizeof...(Gemms);
  const internal::Split splits[kGemms] = {
      internal::SplitGemm(gemms.gemm, wanted)...};
  int64_t num_tasks = 0;
  for (const internal::Split& split : splits) num_tasks += split.num_tasks();
  if (num_tasks == 0) return Status::kOk;

  const int workers = std::min(wanted, NumWorkers(executor, num_tasks));
  int64_t most_sums = 0;
  int64_t most_elements = 0;
  int index = 0;
  const auto make_room = [&](const auto& one) {
    const internal::Split& split = splits[index++];
    most_sums = std::max(most_sums, internal::TaskSums(one.gemm, split));
    most_elements =
        std::max(most_elements, internal::TaskElements(one.gemm, split));
  };
  (make_room(gemms), ...);
  // Multiples of a cache line, so that workers share none.
  const int64_t sums_each = CeilDiv(most_sums, 64) * 64;
  const int64_t elements_each = CeilDiv(most_elements, 64) * 64;
  if (!scratch->Reserve(sums_each * workers, elements_each * workers)) {
    return Status::kOutOfMemory;
  }

  Cancellation cancellation(executor);
  ParallelFor(executor, workers, num_tasks, [&](int worker, int64_t task) {
    if (cancellation.Seen()) return;
    int which = 0;
    const auto try_gemm = [&](const auto& one) {
      const internal::Split& split = splits[which++];
      const int64_t tasks = split.num_tasks();
      if (task >= 0 && task < tasks) {
        internal::RunTask(
            one.gemm, split, task, scratch->sums() + worker * sums_each,
            scratch->elements() + worker * elements_each, one.epilogue);
      }
      task -= tasks;
    };
    (try_gemm(gemms), ...);
  });
  return cancellation.status();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_GEMM_H_
