// Owns products of activations with weights that are used once: C = A · W or
// A · Wᵀ, A in up to two parts side by side ([x, h] without a copy), with an
// epilogue that sees finished values while they are in cache.
//
// Few rows: the weights are read as they stand, each once, which is all the
// work there is. More rows: panels are packed on the way (panel.h), and the
// packing is shared by the rows. Either way an element is summed in one order
// that follows from the shape alone, so the number of threads and the split do
// not change a bit.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_GEMM_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_GEMM_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/simd.h"
#include "cc/kernels/cpu/gemm/streamed_gemm.h"
#include "cc/kernels/cpu/threads/parallel.h"
#include "cc/kernels/cpu/threads/scratch.h"

namespace blockrnn::cpu {

// Up to here the weights are streamed, above they are packed. Measured on
// H = 64 … 1024 (docs/notes/products.md).
inline constexpr int64_t kStreamRows = 16;

// How many workers a section is worth that does so many multiply-adds with so
// many weights and results: to wake a helper costs what it spares in a section
// of a few tens of microseconds. A weight or result takes as long to come or go
// as four multiply-adds do, which counts where rows are few or sums are short.
// Measured (docs/notes/step_loop.md).
inline int WorkersWorth(const HostInterface& host, double multiplies,
                        double elements) {
  constexpr double kMultipliesPerWorker = 1e6;
  constexpr double kMultipliesPerElement = 4;
  const double work = multiplies + kMultipliesPerElement * elements;
  return static_cast<int>(std::clamp<double>(work / kMultipliesPerWorker, 1,
                                             std::max(host.num_threads, 1)));
}

// out[m, g, u] = Σ_parts Σ_k a[m, k] · w[k, gate_offset[g] + u]
// in a call whose storage type is T; the weights are stored as W.
template <class T, int kGates, class W = T>
struct Product {
  int64_t rows = 0;
  int64_t units = 0;  // of one gate
  int64_t gate_offset[kGates] = {};
  int num_parts = 0;
  ProductPart<ComputeType<T>, W> parts[2];
  // Sums have the bits that PackedWeights give, for few rows as well.
  bool bits_of_packed = false;

  int64_t Depth() const {
    int64_t depth = 0;
    for (int s = 0; s < num_parts; ++s) depth += parts[s].k;
    return depth;
  }
  double Multiplies() const {
    return static_cast<double>(rows) * static_cast<double>(units) * kGates *
           static_cast<double>(Depth());
  }
  // Weights and results.
  double Elements() const {
    return static_cast<double>(units) * kGates *
           static_cast<double>(Depth() + rows);
  }
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

// The same units of `rows` rows, row_stride elements from one to the next.
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

// An epilogue of tiles that does row(GateRun) for each of their rows.
template <class Row>
struct RowByRow {
  Row row;

  template <class C, class... Others>
  EIGEN_ALWAYS_INLINE void operator()(const GateTile<C>& tile,
                                      const Others&...) const {
    tile.ForEachRow(row);
  }
};
template <class Row>
RowByRow(Row) -> RowByRow<Row>;

namespace internal {

// Splits a product into tasks of units × rows.
struct Split {
  int64_t units_per_task = 1;
  int64_t rows_per_task = 1;
  int64_t unit_tasks = 0;
  int64_t row_tasks = 0;

  int64_t num_tasks() const { return unit_tasks * row_tasks; }
};

// Depth to which a group of panels is packed at a time. A group of 4 takes
// 256 KB, which leaves room in a second-level cache of 1 MB (or just fits one
// of 512 KB) beside the rows of A.
inline constexpr int64_t kPackedDepth = 256;

// Panels packed side by side: a row of weights is then read in runs of 256
// bytes and more. With single panels, 64 bytes from each row, a packing of
// wide weights is bound by address translation.
inline constexpr int64_t kMostPanelsInGroup = 4;

// Rows that share a packing: their sums, 1 KB each, stay in the cache as well.
inline constexpr int64_t kMostRowsInBlock = 264;

// Packed weights may be elements of another type, and transposed weights stream
// as dot products, lane by lane: sums of either would have other bits.
template <class T, int kGates, class W>
bool Streams(const Product<T, kGates, W>& product) {
  if (product.rows > kStreamRows) return false;
  if (!product.bits_of_packed) return true;
  if (!std::is_same_v<PanelElement<T>, ComputeType<T>>) return false;
  return std::none_of(product.parts, product.parts + product.num_parts,
                      [](const auto& part) { return part.weights.transposed; });
}

template <class T, int kGates, class W>
Split SplitProduct(const Product<T, kGates, W>& product, int workers) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  Split split;
  if (product.units == 0 || product.rows == 0) return split;  // no task
  const int64_t panels = CeilDiv(product.units, kUnits);
  // Two tasks for each worker, so that one that is held up can be relieved.
  const int64_t pieces = workers > 1 ? 2 * workers : 1;
  if (Streams(product)) {
    // Long runs of units, so that the streams through memory are long too, but
    // 8 rows of them fit the first-level cache.
    split.units_per_task =
        kUnits * std::clamp<int64_t>(CeilDiv(panels, workers), 1, 8 * kGates);
    split.rows_per_task = std::max<int64_t>(product.rows, 1);
  } else {
    const int64_t group =
        std::clamp<int64_t>(panels / pieces, 1, kMostPanelsInGroup);
    split.units_per_task = kUnits * group;
    // As many pieces as keep the workers busy or the blocks small, and all of
    // about one size.
    const int64_t row_pieces =
        std::max(std::clamp<int64_t>(pieces / CeilDiv(panels, group), 1,
                                     CeilDiv(product.rows, 4 * kTileRows)),
                 CeilDiv(product.rows, kMostRowsInBlock));
    split.rows_per_task =
        CeilDiv(CeilDiv(product.rows, row_pieces), kTileRows) * kTileRows;
  }
  split.unit_tasks = CeilDiv(product.units, split.units_per_task);
  split.row_tasks = CeilDiv(product.rows, split.rows_per_task);
  return split;
}

// Sums that one worker keeps for the tasks of a split, and elements of panels.
template <class T, int kGates, class W>
int64_t TaskSums(const Product<T, kGates, W>& product, const Split& split) {
  return std::min(split.rows_per_task, product.rows) * kGates *
         split.units_per_task;
}
template <class T, int kGates, class W>
int64_t TaskElements(const Product<T, kGates, W>& product, const Split& split) {
  if (Streams(product)) return 0;
  return NumElements<PanelElement<T>>(kPackedDepth) * kGates *
         split.units_per_task;
}

template <class T, int kGates, class W, class Epilogue>
void StreamTask(const Product<T, kGates, W>& product, int64_t unit,
                int64_t count, ComputeType<T>* sums, const Epilogue& epilogue) {
  using C = ComputeType<T>;
  const int64_t ld_sums = kGates * count;
  std::fill(sums, sums + product.rows * ld_sums, C(0));
  // Whole gates that stand side by side are one run: fewer ends of rows.
  bool one_run = count == product.units;
  for (int gate = 1; gate < kGates; ++gate) {
    one_run &= product.gate_offset[gate] ==
               product.gate_offset[gate - 1] + product.units;
  }
  for (int s = 0; s < product.num_parts; ++s) {
    if (one_run) {
      StreamPart(product.parts[s], product.rows, product.gate_offset[0],
                 ld_sums, sums, ld_sums);
      continue;
    }
    for (int gate = 0; gate < kGates; ++gate) {
      StreamPart(product.parts[s], product.rows,
                 product.gate_offset[gate] + unit, count, sums + gate * count,
                 ld_sums);
    }
  }
  for (int64_t m = 0; m < product.rows; ++m) {
    epilogue(GateRun<C>{m, unit, count, sums + m * ld_sums, count});
  }
}

// The rows and the group of panels that one task has, and its scratch.
template <class T, int kGates>
struct PanelBlock {
  using P = PanelElement<T>;
  static constexpr int64_t kStride =
      NumElements<P>(kPackedDepth) * kPanelWidth<P, kGates>;  // of the panels

  int64_t row = 0;
  int64_t rows = 0;
  int64_t unit = 0;
  int64_t units = 0;
  int64_t panels = 0;
  ComputeType<T>* sums = nullptr;  // [rows, panels, panel width]
  P* packed = nullptr;             // [panels, elements, panel width]
};

// sums += a · packed, for k ≤ kPackedDepth columns of a.
template <class T, int kGates>
void MultiplyBlock(const PanelBlock<T, kGates>& block,
                   const RowView<ComputeType<T>>& a, int64_t k) {
  using C = ComputeType<T>;
  const int64_t ld_sums = block.panels * kPanelWidth<C, kGates>;
  for (int64_t panel = 0; panel < block.panels; ++panel) {
    const auto* packed = block.packed + panel * block.kStride;
    const int64_t used =
        CeilDiv(block.units - panel * kPanelUnits<C, kGates>, Vec<C>::kSize);
    for (int64_t m = 0; m < block.rows; m += kTileRows) {
      WithTile<kGates>(block.rows - m, used, [&](auto rows, auto vectors) {
        C* sums = block.sums + m * ld_sums + panel * kPanelWidth<C, kGates>;
        Tile<C, rows(), kPanelVectors<kGates>> tile;
        tile.template Load<kGateVectors<kGates>, vectors()>(sums, ld_sums);
        MultiplyPanel<kGates, vectors()>(RowsFrom<rows()>(a, block.row + m), k,
                                         packed, &tile);
        tile.template Store<kGateVectors<kGates>, vectors()>(sums, ld_sums);
      });
    }
  }
}

template <class T, int kGates, class W, class Epilogue>
void PanelTask(const Product<T, kGates, W>& product,
               const PanelBlock<T, kGates>& block, const Epilogue& epilogue) {
  using C = ComputeType<T>;
  constexpr int64_t kUnits = kPanelUnits<C, kGates>;
  std::fill(block.sums,
            block.sums + block.rows * block.panels * kPanelWidth<C, kGates>,
            C(0));
  for (int s = 0; s < product.num_parts; ++s) {
    const auto& part = product.parts[s];
    for (int64_t p = 0; p < part.k; p += kPackedDepth) {
      const int64_t k = std::min(kPackedDepth, part.k - p);
      PackPanels(part.weights.From(p), product.gate_offset, k, block.unit,
                 block.units, block.kStride, block.packed);
      MultiplyBlock(block, part.a.From(p), k);
    }
  }
  for (int64_t m = 0; m < block.rows; ++m) {
    for (int64_t panel = 0; panel < block.panels; ++panel) {
      const int64_t unit = panel * kUnits;
      epilogue(GateRun<C>{
          block.row + m, block.unit + unit,
          std::min(kUnits, block.units - unit),
          block.sums + (m * block.panels + panel) * kPanelWidth<C, kGates>,
          kUnits});
    }
  }
}

template <class T, int kGates, class W, class Epilogue>
void RunTask(const Product<T, kGates, W>& product, const Split& split,
             int64_t task, ComputeType<T>* sums, PanelElement<T>* packed,
             const Epilogue& epilogue) {
  using C = ComputeType<T>;
  const int64_t unit = task / split.row_tasks * split.units_per_task;
  const int64_t count = std::min(split.units_per_task, product.units - unit);
  if (Streams(product)) {
    StreamTask(product, unit, count, sums, epilogue);
    return;
  }
  PanelBlock<T, kGates> block;
  block.row = task % split.row_tasks * split.rows_per_task;
  block.rows = std::min(split.rows_per_task, product.rows - block.row);
  block.unit = unit;
  block.units = count;
  block.panels = CeilDiv(count, kPanelUnits<C, kGates>);
  block.packed = packed;
  block.sums = sums;
  PanelTask(product, block, epilogue);
}

}  // namespace internal

// A product and what is done with its results: epilogue(GateRun) is called once
// for every unit of every row, from any worker.
template <class T, int kGates, class W, class Epilogue>
struct ProductWithEpilogue {
  Product<T, kGates, W> product;
  Epilogue epilogue;
};
template <class T, int kGates, class W, class Epilogue>
ProductWithEpilogue(Product<T, kGates, W>, Epilogue)
    -> ProductWithEpilogue<T, kGates, W, Epilogue>;

// The sums and panels that workers keep while products run. It is the host's
// until the end of the engine call, so whoever runs products again and again,
// for each block of a sequence, does it in the same memory.
template <class T>
class ProductMemory {
 public:
  explicit ProductMemory(const HostInterface& host) : scratch_(host) {}

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

// Runs independent products, all of storage type T, as one parallel section.
template <class T, class... Works>
Status RunProducts(const HostInterface& host, ProductMemory<T>* memory,
                   const Works&... works) {
  const int wanted = WorkersWorth(host, (works.product.Multiplies() + ...),
                                  (works.product.Elements() + ...));

  constexpr int kWorks = sizeof...(Works);
  const internal::Split splits[kWorks] = {
      internal::SplitProduct(works.product, wanted)...};
  int64_t num_tasks = 0;
  for (const internal::Split& split : splits) num_tasks += split.num_tasks();
  if (num_tasks == 0) return Status::kOk;

  const int workers = std::min(wanted, NumWorkers(host, num_tasks));
  int64_t most_sums = 0;
  int64_t most_elements = 0;
  int index = 0;
  const auto make_room = [&](const auto& work) {
    const internal::Split& split = splits[index++];
    most_sums = std::max(most_sums, internal::TaskSums(work.product, split));
    most_elements =
        std::max(most_elements, internal::TaskElements(work.product, split));
  };
  (make_room(works), ...);
  // Multiples of a cache line, so that workers share none.
  const int64_t sums_each = CeilDiv(most_sums, 64) * 64;
  const int64_t elements_each = CeilDiv(most_elements, 64) * 64;
  if (!memory->Reserve(sums_each * workers, elements_each * workers)) {
    return Status::kOutOfMemory;
  }

  Cancellation cancellation(host);
  ParallelFor(host, workers, num_tasks, [&](int worker, int64_t task) {
    if (cancellation.Seen()) return;
    int which = 0;
    const auto try_work = [&](const auto& work) {
      const internal::Split& split = splits[which++];
      const int64_t tasks = split.num_tasks();
      if (task >= 0 && task < tasks) {
        internal::RunTask(
            work.product, split, task, memory->sums() + worker * sums_each,
            memory->elements() + worker * elements_each, work.epilogue);
      }
      task -= tasks;
    };
    (try_work(works), ...);
  });
  return cancellation.status();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_GEMM_H_
