// Owns the gradients of weights over a whole sequence: sums over all rows of
// all steps, block by block.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_WEIGHT_GRADIENTS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_WEIGHT_GRADIENTS_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/panel.h"
#include "cc/kernels/cpu/sequence/row_passes.h"
#include "cc/kernels/cpu/sequence/sequence_passes.h"
#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/scratch.h"

namespace blockrnn::cpu {

// The gradient of a matrix or vector of weights, summed in the type that is
// computed in: in the output itself where it has that type and form.
template <class T>
class WeightGrad {
 public:
  using C = ComputeType<T>;

  WeightGrad() = default;
  // out: [rows, width], or its transpose with by_unit; nullptr: not wanted.
  // Scratch::ok() tells whether there was memory.
  WeightGrad(Scratch* scratch, T* out, int64_t rows, int64_t width,
             bool by_unit = false)
      : out_(out), rows_(rows), width_(width), by_unit_(by_unit) {
    if (out == nullptr) return;
    if constexpr (std::is_same_v<T, C>) {
      if (!by_unit) sums_ = out;
    }
    if (sums_ == nullptr) sums_ = scratch->Array<C>(rows * width);
  }

  // [rows, width]
  C* sums() const { return sums_; }

  // The first block of steps puts its sums there; without one they are zeros.
  void Begin(const SequenceRows& rows) const {
    if (sums_ != nullptr && rows.steps() == 0) ZeroRow(rows_ * width_, sums_);
  }

  void Finish(const HostInterface& host) const {
    if (sums_ == nullptr || static_cast<const void*>(sums_) == out_) return;
    if (!by_unit_) {
      CopyRow(sums_, rows_ * width_, out_);
      return;
    }
    // Square pieces: transposed in registers, stored as rows of the output.
    constexpr int kSize = Vec<C>::kSize;
    ParallelForRows(host, CeilDiv(width_, kSize), rows_ * kSize,
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
    TransposeRows<C>([&](int lane) { return sums_ + (m + lane) * width_ + j; },
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
  bool by_unit_ = false;
};

// The rows of a block, and whether sums of other blocks are there already.
struct SummedRows {
  int64_t count = 0;
  bool add = false;
};

// A sum over the rows of a block: gradients of weights are [left, 1]ᵀ · right.
template <class C>
struct RowSum {
  const C* left_t = nullptr;  // [left + 1, block rows], the last row ones
  int64_t left = 0;
  SummedRows rows;
  WeightView<C> right;  // [rows, width]
  int64_t width = 0;
  C* grad = nullptr;  // [left, …], `width` columns of it; or nullptr
  int64_t ld_grad = 0;
  C* bias = nullptr;  // [width], from the row of ones; or nullptr
};

// In a call whose storage type is T.
template <class T, class C = ComputeType<T>>
auto SumOverRows(const RowSum<C>& sum) {
  // Rows of the left that nobody wants are not multiplied.
  const int64_t first = sum.grad == nullptr ? sum.left : 0;
  const int64_t end = sum.left + (sum.bias == nullptr ? 0 : 1);
  const int64_t stride = TransposedStride<C>(sum.rows.count);
  Product<T, 1, C> product;
  product.rows = end - first;
  product.units = sum.width;
  if (product.rows > 0) {
    product.num_parts = 1;
    product.parts[0] = {
        {sum.left_t + first * stride, stride}, sum.rows.count, sum.right};
  }
  const auto keep = [sum, first](const GateRun<C>& run) {
    const int64_t row = first + run.row;
    C* to = row < sum.left ? sum.grad + row * sum.ld_grad : sum.bias;
    if (sum.rows.add) {
      AddRow(run.gates, run.count, to + run.unit);
    } else {
      CopyRow(run.gates, run.count, to + run.unit);
    }
  };
  return ProductWithEpilogue{product, keep};
}

// What the products of a block's gradients have on the left: its rows of x, and
// the states before its steps.
//
// A skipped step takes part as zeros, not as what stands there times zero,
// which would let a NaN through.
template <class T>
class BlockOperands {
 public:
  using C = ComputeType<T>;

  struct States {
    const T* h = nullptr;  // [steps, batch, ld]
    int64_t ld = 0;
    const T* first = nullptr;  // [B, width], before the first step
    int64_t width = 0;
    bool multiplied = true;  // or h_t() is not asked for
  };

  BlockOperands(const HostInterface& host, Scratch* scratch,
                const SequenceShape& shape, const SequenceRows& rows,
                const States& states)
      : host_(host),
        rows_(rows),
        states_(states),
        input_(shape.HasInputWeights() ? shape.input : 0),
        block_(rows, scratch),
        before_(scratch->Array<StateBefore>(rows.MostRowsInBlock())),
        wide_x_(WideRowsScratch<T>(scratch, rows.MostRowsInBlock(), input_)),
        x_t_(scratch->Array<C>((input_ + 1) * MostStride())),
        h_t_(states.multiplied
                 ? scratch->Array<C>((states.width + 1) * MostStride())
                 : nullptr) {}

  void Enter(const StepBlock& block, const T* x) {
    block_.Enter(block);
    StateBefore* next = before_;
    for (int64_t step = block.first; step < block.end(); ++step) {
      for (int64_t b = 0; b < rows_.Active(step); ++b) {
        const bool skip = rows_.Skipped(step, b);
        *next++ = {skip ? nullptr : Before(step, b)};
      }
    }
    const int64_t rows = block.rows;
    const RowView<C> wide =
        WideRows(host_, block_.In(x, input_), rows, input_, wide_x_);
    Transpose([&](int64_t m) { return Kept(m) ? wide.Row(m) : nullptr; },
              input_, x_t_);
    if (states_.multiplied) {
      Transpose([&](int64_t m) { return before_[m].h; }, states_.width, h_t_);
    }
  }

  // out[j, m] = row(m)[j] or 0 where row(m) is nullptr, and a row of ones.
  template <class Rows>
  void Transpose(const Rows& row, int64_t width, C* out) const {
    const int64_t rows = block_.block().rows;
    TransposedRows<C>(host_, row, rows, width, out);
    std::fill_n(out + width * TransposedStride<C>(rows), rows, C(1));
  }
  // Elements of one more operand of that width.
  int64_t TransposedSize(int64_t width) const {
    return (width + 1) * MostStride();
  }

  // The state before a step.
  const T* Before(int64_t step, int64_t b) const {
    return step == 0 ? states_.first + rows_.State(b) * states_.width
                     : states_.h + rows_.InMemory(step - 1, b) * states_.ld;
  }
  // Whether the step of a row of the block is not skipped.
  bool Kept(int64_t row) const { return before_[row].h != nullptr; }

  const BlockRows& block() const { return block_; }
  int64_t rows() const { return block_.block().rows; }
  // The last block of the sequence is the first to be summed.
  SummedRows summed() const {
    return {rows(), block_.block().end() < rows_.steps()};
  }
  // Of x_t, less the ones: I, or 0 where there is no w_x.
  int64_t input() const { return input_; }
  const C* x_t() const { return x_t_; }
  const C* h_t() const { return h_t_; }

 private:
  struct StateBefore {
    const T* h;  // nullptr where the step is skipped
  };

  int64_t MostStride() const {
    return TransposedStride<C>(rows_.MostRowsInBlock());
  }

  const HostInterface& host_;
  const SequenceRows& rows_;
  const States states_;
  const int64_t input_;
  BlockRows block_;
  StateBefore* before_;  // of each row of the block
  C* wide_x_;
  C* x_t_;  // [I + 1, block rows], the last row ones
  C* h_t_;  // [P + 1, block rows], the last row ones; nullptr unless multiplied
};

// Gradients of pre-activations, [rows of a block, width], and behind them those
// of the step that comes after the block.
template <class C>
class BlockGradients {
 public:
  BlockGradients(Scratch* scratch, const SequenceRows& rows, int64_t width)
      : rows_(rows),
        width_(width),
        most_(rows.MostRowsInBlock()),
        data_(scratch->Array<C>((most_ + rows.batch()) * width)) {}

  void Enter(const StepBlock& block) {
    // The first step of the block before this one, which comes after it.
    if (block.end() < rows_.steps()) {
      std::copy(data_, data_ + rows_.Active(block.end()) * width_,
                data_ + most_ * width_);
    }
    block_ = block;
  }

  C* data() const { return data_; }
  // Of the first row of a step, or of the step after the block.
  C* Of(int64_t step) const {
    const int64_t row = step == block_.end()
                            ? most_
                            : rows_.Before(step) - rows_.Before(block_.first);
    return data_ + row * width_;
  }

 private:
  const SequenceRows& rows_;
  const int64_t width_;
  const int64_t most_;
  C* data_;
  StepBlock block_;
};

// The gradients of a state at all steps, [steps, batch, ld], of which the first
// `width` of a row are this one's; data may be nullptr: zeros.
template <class T>
struct StateGrads {
  const T* data = nullptr;
  int64_t width = 0;
  int64_t ld = 0;

  // grad[width] += those of some steps of a row, the last one first.
  template <class C>
  void AddTo(C* grad, const SequenceRows& rows, int64_t b,
             const Range& steps) const {
    if (data == nullptr) return;
    for (int64_t step = steps.end - 1; step >= steps.begin; --step) {
      AddRow(data + rows.OfSequence(step, b) * ld, width, grad);
    }
  }
};

// grad[B, width], the gradients of the states that the rows end with:
// last_grad, or zeros where that is nullptr, and what skipped steps behind a
// row's last one hand on.
template <class T, class C>
void BeginStates(const HostInterface& host, const SequenceRows& rows,
                 const T* last_grad, const StateGrads<T>& grads, C* grad) {
  const int64_t width = grads.width;
  const int64_t most_steps = rows.HasSkippedEnds() ? rows.shape().steps : 1;
  ParallelForRows(host, rows.batch(), most_steps * width,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      C* const to = grad + b * width;
                      if (last_grad != nullptr) {
                        CopyRow(last_grad + rows.State(b) * width, width, to);
                      } else {
                        ZeroRow(width, to);
                      }
                      if (rows.HasSkippedEnds()) {
                        grads.AddTo(to, rows, b, rows.SkippedBehind(b));
                      }
                    }
                  });
}

// Adds to grad[B, width], the gradients of the states that the rows begin with,
// what skipped steps before a row's first one hand on.
template <class T, class C>
void FinishStates(const HostInterface& host, const SequenceRows& rows,
                  const StateGrads<T>& grads, C* grad) {
  if (!rows.HasSkippedEnds()) return;
  ParallelForRows(host, rows.batch(), rows.shape().steps * grads.width,
                  [&](int64_t begin, int64_t end) {
                    for (int64_t b = begin; b < end; ++b) {
                      grads.AddTo(grad + b * grads.width, rows, b,
                                  rows.SkippedBefore(b));
                    }
                  });
}

// Epilogue of the last product with the states' weights: the gradient of the
// states that the rows began with, rest[B, width] added.
template <class T>
struct StoreStateGrad {
  using C = ComputeType<T>;

  const SequenceRows& rows;
  const C* rest;
  int64_t width;
  T* out;

  void operator()(const GateRun<C>& run) const {
    const C* add = rest + run.row * width + run.unit;
    T* to = out + rows.State(run.row) * width + run.unit;
    ForEachVector<C>(run.count, [&](int64_t j, auto lanes) {
      Store(to + j, Load<C>(run.gates + j, lanes) + Load<C>(add + j, lanes),
            lanes);
    });
  }
};

// x_grad without w_x, from the gates' gradients, in their layout's order: one
// beside the other with projected_input, with skip_input their sum.
template <class T>
void StoreGates(const HostInterface& host, const SequenceShape& shape,
                const BlockRows& block,
                std::initializer_list<RowView<ComputeType<T>>> gates,
                T* x_grad) {
  using C = ComputeType<T>;
  if (shape.HasInputWeights()) return;
  const int64_t units = shape.units;
  const auto store = [&](int64_t m, T* out) {
    if (shape.projected_input) {
      for (const RowView<C>& gate : gates) {
        CopyRow(gate.Row(m), units, out);
        out += units;
      }
      return;
    }
    ForEachVector<C>(units, [&](int64_t j, auto lanes) {
      Vec<C> sum(0);
      for (const RowView<C>& gate : gates) {
        sum = sum + Load<C>(gate.Row(m) + j, lanes);
      }
      Store(out + j, sum, lanes);
    });
  };
  ParallelForRows(host, block.block().rows,
                  units * static_cast<int64_t>(gates.size()),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t m = begin; m < end; ++m) {
                      store(m, x_grad + block.InMemory(m) * shape.input);
                    }
                  });
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_WEIGHT_GRADIENTS_H_
