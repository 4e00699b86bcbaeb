// Implements the gradients of weights over a whole sequence, sums over all rows
// of all steps, block by block, and the gradient of x.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_WEIGHT_GRADIENTS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_WEIGHT_GRADIENTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/gemm/weight_use.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/sequence/state_dropout.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

// The gradient of a matrix or vector of weights, summed in the compute type: in
// the output itself where it has that type and layout.
template <class T>
class WeightGrad {
 public:
  using C = ComputeType<T>;

  // out: [rows, width], rows of `ld` elements, 0 for `width`, or its transpose
  // with by_unit; nullptr: not wanted. Scratch::ok() reports whether there was
  // memory.
  WeightGrad(Scratch* scratch, T* out, int64_t rows, int64_t width,
             int64_t ld = 0, bool by_unit = false)
      : out_(out),
        rows_(rows),
        width_(width),
        ld_out_(ld > 0 ? ld : width),
        by_unit_(by_unit) {
    if (out == nullptr) return;
    if constexpr (std::is_same_v<T, C>) {
      if (!by_unit) sums_ = out;
    }
    ld_ = sums_ == nullptr ? width : ld_out_;
    if (sums_ == nullptr) sums_ = scratch->Array<C>(rows * width);
  }

  // Of w_x[I, width], where there is one.
  WeightGrad(Scratch* scratch, const SequenceShape& shape, T* out,
             int64_t width, int64_t ld = 0)
      : WeightGrad(scratch, shape.HasInputWeights() ? out : nullptr,
                   shape.input, width, ld, shape.weights_by_unit) {}

  // [rows, width], rows of ld() elements.
  C* sums() const { return sums_; }
  int64_t ld() const { return ld_; }

  // The first block of steps stores its sums; without a block they are zeros.
  void Begin(const SequenceRows& rows) const {
    if (sums_ == nullptr || rows.steps() > 0) return;
    for (int64_t m = 0; m < rows_; ++m) ZeroRow(width_, sums_ + m * ld_);
  }

  void Finish(const Executor& executor) const {
    if (sums_ == nullptr || static_cast<const void*>(sums_) == out_) return;
    if (!by_unit_) {
      for (int64_t m = 0; m < rows_; ++m) {
        CopyRow(sums_ + m * ld_, width_, out_ + m * ld_out_);
      }
      return;
    }
    // Square pieces: transposed in registers, stored as rows of the output.
    constexpr int kSize = Vec<C>::kSize;
    ParallelForRows(executor, CeilDiv(width_, kSize), rows_ * kSize,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t j = begin * kSize;
                           j < std::min(end * kSize, width_); j += kSize) {
                        for (int64_t m = 0; m < rows_; m += kSize)
                          StorePiece(m, j);
                      }
                    });
  }

 private:
  void StorePiece(int64_t m, int64_t j) const {
    constexpr int kSize = Vec<C>::kSize;
    alignas(64) C piece[kSize * kSize];
    const int lanes = static_cast<int>(std::min<int64_t>(kSize, rows_ - m));
    const int64_t columns = std::min<int64_t>(kSize, width_ - j);
    TransposeRows<C>([&](int lane) { return sums_ + (m + lane) * ld_ + j; },
                     columns, lanes, piece, kSize);
    for (int64_t p = 0; p < columns; ++p) {
      Store(out_ + (j + p) * rows_ + m, Load<C>(piece + p * kSize),
            FirstLanes{lanes});
    }
  }

  C* sums_ = nullptr;
  T* out_ = nullptr;
  int64_t rows_ = 0;
  int64_t width_ = 0;
  int64_t ld_ = 0;
  int64_t ld_out_ = 0;
  bool by_unit_ = false;
};

// The rows of a block, and whether to add to the sums of earlier blocks.
struct SummedRows {
  int64_t count = 0;
  bool add = false;
};

// A sum over the rows of a block: gradients of weights are [left, 1]ᵀ · right.
// Without `grad` and `bias` there is nothing to sum.
template <class C>
struct RowSum {
  const C* left_t = nullptr;  // [left + 1, block rows], the last row ones
  int64_t left = 0;
  WeightView<C> right;  // [block rows, width]
  int64_t width = 0;
  C* grad = nullptr;  // [left, …], `width` columns of it; or nullptr
  int64_t ld_grad = 0;
  C* bias = nullptr;  // [width], from the row of ones; or nullptr
};

// Stores the sums, or adds them to those of earlier blocks.
template <class C>
struct StoreSums {
  RowSum<C> sum;
  int64_t first;  // row of the left that the GEMM begins with
  bool add;

  C* To(int64_t row) const {
    row += first;
    return row < sum.left ? sum.grad + row * sum.ld_grad : sum.bias;
  }
  C* StoreTo(int64_t row) const { return add ? nullptr : To(row); }

  void operator()(const GateTile<C>& tile) const {
    tile.ForEachRow([&](const GateRun<C>& run) {
      C* const to = To(run.row) + run.unit;
      if (add) {
        AddRow(run.gates, run.count, to);
      } else {
        CopyRow(run.gates, run.count, to);
      }
    });
  }
};

// In a call whose storage type is T.
template <class T, class C = ComputeType<T>>
auto SumOverRows(const SummedRows& rows, const RowSum<C>& sum) {
  // Rows of the left whose sums are not wanted are left out of the GEMM.
  const int64_t first = sum.grad == nullptr ? sum.left : 0;
  const int64_t end = sum.left + (sum.bias == nullptr ? 0 : 1);
  const int64_t stride = TransposedStride<C>(rows.count);
  Gemm<T, 1, C> gemm;
  gemm.rows = end - first;
  gemm.units = sum.width;
  if (gemm.rows > 0) {
    gemm.num_parts = 1;
    gemm.parts[0] = {
        {sum.left_t + first * stride, stride}, rows.count, sum.right};
  }
  return GemmWithEpilogue{gemm, StoreSums<C>{sum, first, rows.add}};
}

// The left operands of the GEMMs of a block's gradients: its rows of x, and the
// states before its steps.
//
// A masked step takes part as zeros, not as its values times zero, which would
// let a NaN through.
template <class T>
class BlockOperands {
 public:
  using C = ComputeType<T>;

  struct States {
    const T* h = nullptr;  // [steps, batch, ld]
    int64_t ld = 0;
    const T* first = nullptr;  // [B, width], before the first step
    int64_t width = 0;
    bool transposed = true;  // whether h_t() is wanted
  };

  BlockOperands(const Executor& executor, Scratch* scratch,
                const SequenceShape& shape, const SequenceRows& rows,
                const States& states)
      : executor_(executor),
        rows_(rows),
        states_(states),
        input_(shape.HasInputWeights() ? shape.input : 0),
        block_(rows, scratch),
        previous_(scratch->Array<PreviousRow>(rows.MaxRowsInBlock())),
        wide_x_(WideRowsScratch<T>(scratch, rows.MaxRowsInBlock(), input_)),
        x_t_(scratch->Array<C>(TransposedSize(input_))),
        h_t_(states.transposed ? scratch->Array<C>(TransposedSize(states.width))
                               : nullptr) {}

  void Set(const StepBlock& block, const T* x) {
    block_.Set(block);
    PreviousRow* next = previous_;
    for (int64_t step = block.first; step < block.end(); ++step) {
      for (int64_t b = 0; b < rows_.ActiveRows(step); ++b) {
        const bool masked = rows_.IsMasked(step, b);
        *next++ = {masked ? nullptr : PreviousState(step, b)};
      }
    }
    const RowView<C> wide = WideRows(executor_, block_.View(x, input_),
                                     block.rows, input_, wide_x_);
    Transpose([&](int64_t m) { return IsMasked(m) ? nullptr : wide.Row(m); },
              input_, x_t_);
    if (states_.transposed) {
      Transpose([&](int64_t m) { return previous_[m].h; }, states_.width, h_t_);
    }
  }

  // out[j, m] = row(m)[j] or 0 where row(m) is nullptr, and a row of ones.
  template <class Rows>
  void Transpose(const Rows& row, int64_t width, C* out) const {
    const int64_t rows = block_.block().rows;
    TransposedRows<C>(executor_, row, rows, width, out);
    std::fill_n(out + width * TransposedStride<C>(rows), rows, C(1));
  }
  // Elements that an operand of that width takes.
  int64_t TransposedSize(int64_t width) const {
    return (width + 1) * TransposedStride<C>(rows_.MaxRowsInBlock());
  }

  // The state before a step.
  const T* PreviousState(int64_t step, int64_t b) const {
    return step == 0 ? rows_.FirstState(states_.first, states_.width, b)
                     : states_.h + rows_.MemoryRow(step - 1, b) * states_.ld;
  }
  // Whether the step of a row of the block is masked.
  bool IsMasked(int64_t row) const { return previous_[row].h == nullptr; }

  const BlockRows& block() const { return block_; }
  int64_t FirstRow(int64_t step) const { return block_.FirstRow(step); }
  // The last block of the sequence is the first to be summed.
  SummedRows summed() const {
    const StepBlock& block = block_.block();
    return {block.rows, block.end() < rows_.steps()};
  }
  // Of x_t, less the ones: I, or 0 where there is no w_x.
  int64_t input() const { return input_; }
  const C* x_t() const { return x_t_; }
  const C* h_t() const { return h_t_; }

 private:
  struct PreviousRow {
    const T* h;  // nullptr where the step is masked
  };

  const Executor& executor_;
  const SequenceRows& rows_;
  const States states_;
  const int64_t input_;
  BlockRows block_;
  PreviousRow* previous_;  // of each row of the block
  C* wide_x_;
  C* x_t_;  // [I + 1, block rows], the last row ones
  C* h_t_;  // [P + 1, block rows], the last row ones; or nullptr
};

// The states before the steps of a block, times the factors of one gate at a
// time: the left operand of the recurrent weights' gradient. Nothing without
// factors.
template <class T, int kGates>
class DroppedStates {
 public:
  using C = ComputeType<T>;

  DroppedStates(const Executor& executor, Scratch* scratch,
                const SequenceRows& rows, const BlockOperands<T>& operands,
                const StateFactors<T>& factors)
      : executor_(executor),
        rows_(rows),
        operands_(operands),
        factors_(factors) {
    if (!factors) return;
    const int64_t width = factors.width();
    dropped_ = scratch->Array<C>(rows.MaxRowsInBlock() * width);
    dropped_t_ = scratch->Array<C>(operands.TransposedSize(width));
  }

  // The block's share of [grad; bias] = [state ∘ factors, 1]ᵀ · dz. dz is
  // [rows, gates · H], its columns in the order of grad's.
  Status AddGradients(const C* dz, int64_t units, const WeightGrad<T>& grad,
                      C* bias, GemmScratch<T>* gemm_scratch) const {
    if (!factors_) return Status::kOk;
    const int64_t width = factors_.width();
    for (int gate = 0; gate < kGates; ++gate) {
      Drop(gate);
      const int64_t column = gate * units;
      C* const gate_bias = bias == nullptr ? nullptr : bias + column;
      const Status status = RunGemms(
          executor_, gemm_scratch,
          SumOverRows<T>(
              operands_.summed(),
              {dropped_t_, width, WeightView<C>{dz + column, kGates * units},
               units, grad.sums() + column, grad.ld(), gate_bias}));
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }

 private:
  void Drop(int gate) const {
    const int64_t width = factors_.width();
    const StepBlock& block = operands_.block().block();
    ParallelForRows(executor_, block.steps,
                    rows_.ActiveRows(block.first) * width,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t step = block.first + begin;
                           step < block.first + end; ++step) {
                        const int64_t first = operands_.FirstRow(step);
                        for (int64_t b = 0; b < rows_.ActiveRows(step); ++b) {
                          if (operands_.IsMasked(first + b)) continue;
                          factors_.Multiply(gate, b, 0, width,
                                            operands_.PreviousState(step, b),
                                            dropped_ + (first + b) * width);
                        }
                      }
                    });
    operands_.Transpose(
        [&](int64_t m) {
          return operands_.IsMasked(m) ? nullptr : dropped_ + m * width;
        },
        width, dropped_t_);
  }

  const Executor& executor_;
  const SequenceRows& rows_;
  const BlockOperands<T>& operands_;
  const StateFactors<T>& factors_;
  C* dropped_ = nullptr;    // [block rows, width], of one gate
  C* dropped_t_ = nullptr;  // [width + 1, block rows], the last row ones
};

// Gradients of pre-activations, [rows of a block, width], and after them those
// of the step that follows the block.
template <class C>
class BlockGradients {
 public:
  BlockGradients(Scratch* scratch, const SequenceRows& rows, int64_t width)
      : rows_(rows),
        width_(width),
        max_rows_(rows.MaxRowsInBlock()),
        data_(scratch->Array<C>((max_rows_ + rows.batch()) * width)) {}

  void Set(const StepBlock& block) {
    // The first step of the block set last, which follows this one.
    if (block.end() < rows_.steps()) {
      std::copy(data_, data_ + rows_.ActiveRows(block.end()) * width_,
                data_ + max_rows_ * width_);
    }
    block_ = block;
  }

  C* data() const { return data_; }
  int64_t width() const { return width_; }
  // The first row of a step, or of the step that follows the block.
  C* Step(int64_t step) const {
    const int64_t row =
        step == block_.end()
            ? max_rows_
            : rows_.RowsBefore(step) - rows_.RowsBefore(block_.first);
    return data_ + row * width_;
  }

 private:
  const SequenceRows& rows_;
  const int64_t width_;
  const int64_t max_rows_;
  C* data_;
  StepBlock block_;
};

// The sizes and recurrent weights of a cell.
template <class T>
struct BackwardShape {
  int64_t width = 0;       // of h: P with a projection, else H
  int stages = 1;          // GEMMs of a step, each with its epilogue
  double columns = 0;      // of all recurrent matrices, at depth `width`
  const T* w_h = nullptr;  // [width, gates · H], or transposed
  T* w_h_grad = nullptr;
  T* b_h_grad = nullptr;  // [gates · H], the sums of dz
  int64_t ld_w_h = 0;     // elements from row to row of w_h and its gradient,
                          // unless transposed; 0: gates · H
};

// What the cells without more to do have in common (sequence_backward.h).
template <class T>
struct BackwardCell {
  void Begin() const {}
  void SecondStage(int64_t, Share, Range) const {}
  RowSum<ComputeType<T>> MoreWeights() const { return {}; }
  void Finish() const {}
  StateGradient<T> CellGrad() const { return {}; }
};

// What the driver provides to a cell.
template <class T, int kGates>
struct BackwardContext {
  const Executor& executor;
  Scratch* scratch;
  const SequenceRows& rows;
  const StateFactors<T>& factors;
  const StateZoneout<ComputeType<T>>& zoneout;  // of h
  const BlockOperands<T>& operands;
  const BlockGradients<ComputeType<T>>& dz;  // [block rows, gates · H]
  ComputeType<T>* d_h;  // [B, width], the gradient of the state before a
                        // step but for what comes through w_h
  int64_t ld_h;         // of h and h_grad
  WeightUses weight_uses;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_WEIGHT_GRADIENTS_H_
