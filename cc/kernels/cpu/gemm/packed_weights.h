// Defines the weights of the steps of a call: in panels of full depth, packed
// before the steps or just before the GEMM of the only one, or in place
// (weight_use.h). Frozen weights were packed before the call; transposed ones,
// which are streamed as dot products, with a copy for that.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/kernels/cpu/gemm/int8_panel.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/gemm/weight_use.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

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

// A first tile that packs its panel in passing has at least so many rows.
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
        panels_at_once_(
            MayPackInPassing() ? 1 : PanelsIn(Tuning::kBytesPackedAtOnce)) {
    if (use_ == WeightUse::kStreamed && !memory->outlives_call()) return;
    if (use_ == WeightUse::kOnce) {
      worker_buffers_ =
          memory->Take<P>(MostStepWorkers(memory->executor()) *
                          std::min(panels_at_once_, panels_) * Stride());
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
    // Not nullptr: the only panel is to be packed there by the first tile.
    P* in_passing = nullptr;

    const P* operator[](int64_t panel) const {
      return first + (panel - begin) * stride;
    }
  };
  // Some panels for a GEMM of some rows, the same ones for all gates; of
  // weights that are used once, up to PanelsAtOnce. Those are packed now or, if
  // the rows are enough to hide it behind their multiply-adds, in passing.
  // Concurrent calls must pass different workers.
  Packed Panels(Range some, Range rows, bool same_rows, int worker) const {
    if (use_ != WeightUse::kOnce) return {packed_, 0, Stride()};
    P* const to = worker_buffers_ +
                  worker * std::min(panels_at_once_, panels_) * Stride();
    const bool is_full = some.end * kUnits <= units_;
    if (MayPackInPassing() && is_full && same_rows &&
        FirstTileRows(rows) >= kFewestRowsInPassing) {
      return {to, some.begin, Stride(), to};
    }
    const int64_t unit = some.begin * kUnits;
    PackPanels<kGates>(view_, units_, depth_, unit,
                       std::min(some.end * kUnits, units_) - unit, Stride(),
                       to);
    return {to, some.begin, Stride()};
  }
  int64_t PanelsAtOnce() const {
    return use_ == WeightUse::kOnce ? panels_at_once_ : panels_;
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
  P* worker_buffers_ =
      nullptr;  // [workers, panels at once, Stride()], with kOnce
  WeightView<T> view_;
  const WeightUse use_;
  int64_t depth_;
  int64_t units_;
  int64_t panels_;
  int64_t panels_at_once_;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PACKED_WEIGHTS_H_
