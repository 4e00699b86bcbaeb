// Owns what the sequences of all cells share: how steps stand in memory, and
// the blocks of steps whose products with the input are done as one.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/packed_weights.h"
#include "cc/kernels/cpu/product.h"
#include "cc/kernels/cpu/rows.h"
#include "cc/kernels/cpu/simd.h"

namespace blockrnn::cpu {

// Rows (steps × batch) of one block. Enough that a product with them runs at
// full speed, few enough that what it leaves for the steps (or they for it)
// mostly stays in the last-level cache, and that its memory is small beside the
// sequence's own.
inline constexpr int64_t kRowsInBlock = 480;

inline int64_t StepsInBlock(const SequenceShape& shape) {
  return std::clamp<int64_t>(
      CeilDiv(kRowsInBlock, std::max<int64_t>(shape.batch, 1)), 1,
      std::max<int64_t>(shape.steps, 1));
}

// The rows of [steps, batch, width], in the order (step done, row of batch),
// from `step` on.
template <class C>
RowView<C> StepRows(const SequenceShape& shape, const C* data, int64_t width,
                    int64_t step) {
  RowView<C> view;
  view.data = data + shape.Row(step, 0) * width;
  view.stride = width;
  if (shape.time_major && !shape.backwards) return view;
  view.group = shape.batch;
  const int64_t step_stride = shape.time_major ? shape.batch : 1;
  view.group_stride = (shape.backwards ? -step_stride : step_stride) * width;
  if (!shape.time_major) view.stride = shape.steps * width;
  return view;
}

// StepRows in the type that is computed in: as they stand, or, for a 16-bit
// type, `rows` of them copied to wide[rows, width].
template <class T>
RowView<ComputeType<T>> WideStepRows(const Host& host,
                                     const SequenceShape& shape, const T* data,
                                     int64_t width, int64_t step, int64_t rows,
                                     ComputeType<T>* wide) {
  using C = ComputeType<T>;
  const RowView<T> view = StepRows(shape, data, width, step);
  if constexpr (std::is_same_v<T, C>) {
    return view;
  } else {
    ParallelForRows(host, rows, width, [&](int64_t begin, int64_t end) {
      for (int64_t m = begin; m < end; ++m) {
        ForEachVector<C>(width, [&](int64_t j, auto lanes) {
          Store(wide + m * width + j, Load<C>(view.Row(m) + j, lanes), lanes);
        });
      }
    });
    return {wide, width};
  }
}

// Scratch for WideStepRows; none where T is computed as such.
template <class T>
ComputeType<T>* WideRowsScratch(Scratch* scratch, int64_t rows, int64_t width) {
  if constexpr (std::is_same_v<T, ComputeType<T>>) {
    return nullptr;
  } else {
    return scratch->template Array<ComputeType<T>>(rows * width);
  }
}

// Scratch that TransposedRows needs: whole vectors of rows.
template <class C>
int64_t TransposedStride(int64_t rows) {
  return CeilDiv(rows, Vec<C>::kSize) * Vec<C>::kSize;
}

// row(m), the m-th row of a block of steps from step `first` on, or nullptr
// where the step is skipped. Such a row takes part in no gradient: as zeros,
// not as what stands there times zero, which would let a NaN through.
template <class Rows>
auto KeptRows(const SequenceShape& shape, const uint8_t* mask, int64_t first,
              const Rows& row) {
  return [=, &shape](int64_t m) {
    const bool skip =
        mask != nullptr &&
        mask[shape.Row(first + m / shape.batch, m % shape.batch)] == 0;
    return skip ? nullptr : row(m);
  };
}

// out[j, m] = row(m)[j], or 0 where row(m) is nullptr, for m < rows and
// j < width: the left operand of a product that sums over rows.
template <class C, class Rows>
void TransposedRows(const Host& host, const Rows& row, int64_t rows,
                    int64_t width, C* out) {
  constexpr int kSize = Vec<C>::kSize;
  const int64_t stride = TransposedStride<C>(rows);
  ParallelForRows(
      host, stride / kSize, width * kSize, [&](int64_t begin, int64_t end) {
        for (int64_t m = begin * kSize; m < end * kSize; m += kSize) {
          TransposeRows<C>([&](int lane) { return row(m + lane); }, width,
                           static_cast<int>(std::min<int64_t>(rows - m, kSize)),
                           out + m, stride);
        }
      });
}

// sums + bias into the panel form that the steps start from:
// start[row, panel, panel width].
template <class C, int kGates, class T>
void StoreStart(const GateRun<C>& run, const T* const (&bias)[kGates],
                int64_t panels, C* start) {
  C* row = start + run.row * panels * kPanelWidth<C, kGates>;
  for (int gate = 0; gate < kGates; ++gate) {
    const C* sums = run.gates + gate * run.gate_stride;
    const T* b = bias[gate] + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      C* out = row + PanelOffset<C, kGates>(gate, run.unit + j,
                                            kPanelWidth<C, kGates>);
      Store(out, Load<C>(sums + j, lanes) + Load<C>(b + j, lanes));
    });
  }
}

// to[j] = from[j], either of which may be a 16-bit type.
template <class From, class To>
void CopyRow(const From* from, int64_t count, To* to) {
  using C = ComputeType<From>;
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Store(to + j, Load<C>(from + j, lanes), lanes);
  });
}

// The outputs of a computation that was done in scratch, if it was.
template <class C, class T>
void KeepRounded(const C* computed, int64_t count, T* out) {
  if constexpr (!std::is_same_v<C, T>) CopyRow(computed, count, out);
}

// to[j] += from[j]
template <class C>
void AddRow(const C* from, int64_t count, C* to) {
  ForEachVector<C>(count, [&](int64_t j, auto lanes) {
    Store(to + j, Load<C>(to + j, lanes) + Load<C>(from + j, lanes), lanes);
  });
}

// out[j] = Σ rows[m, j] in the order of m.
template <class C, class T>
void SumRows(const C* rows, int64_t num_rows, int64_t width, T* out) {
  ForEachVector<C>(width, [&](int64_t j, auto lanes) {
    Vec<C> sum(0);
    for (int64_t m = 0; m < num_rows; ++m) {
      sum = sum + Load<C>(rows + m * width + j, lanes);
    }
    Store(out + j, sum, lanes);
  });
}

// The state before a step, [H]: the sequence's at the step before, or the one
// it began with.
template <class T>
const T* StateBefore(const SequenceShape& shape, const T* states,
                     const T* first, int64_t step, int64_t b) {
  return step == 0 ? first + b * shape.units
                   : states + shape.Row(step - 1, b) * shape.units;
}

// Epilogue of a product whose rows are those of a block of steps, from step
// `first` on: stores them where they stand in memory.
template <class T>
struct StoreStepRows {
  const SequenceShape& shape;
  int64_t first;
  T* out;  // [steps, batch, width]
  int64_t width;

  template <class C>
  void operator()(const GateRun<C>& run) const {
    const int64_t in_memory =
        shape.Row(first + run.row / shape.batch, run.row % shape.batch);
    CopyRow(run.gates, run.count, out + in_memory * width + run.unit);
  }
};

// A sum over the rows of a block: gradients of weights are [left, 1]ᵀ · right.
template <class C>
struct RowSum {
  const C* left_t = nullptr;  // [left + 1, block rows], the last row ones
  int64_t left = 0;
  int64_t rows = 0;
  WeightView<C> right;  // [rows, width]
  int64_t width = 0;
  C* grad = nullptr;  // [left, …], added to in `width` columns
  int64_t ld_grad = 0;
  C* bias = nullptr;  // [width], from the row of ones; or nullptr
};

template <class C>
auto SumOverRows(const RowSum<C>& sum) {
  Product<C, 1> product;
  product.rows = sum.left + (sum.bias == nullptr ? 0 : 1);
  product.units = sum.width;
  product.num_parts = 1;
  product.parts[0] = {
      {sum.left_t, TransposedStride<C>(sum.rows)}, sum.rows, sum.right};
  const auto add = [sum](const GateRun<C>& run) {
    C* to = run.row < sum.left ? sum.grad + run.row * sum.ld_grad : sum.bias;
    AddRow(run.gates, run.count, to + run.unit);
  };
  return ProductWithEpilogue{product, add};
}

template <class C>
void ZeroRow(int64_t count, C* to) {
  std::fill(to, to + count, C(0));
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_H_
