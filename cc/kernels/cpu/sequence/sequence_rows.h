// Defines how the rows of a batch are shared among threads and grouped into
// blocks and segments of steps. Their order, and which rows a step has, is that
// of cc/core/row_order.h: `b` below is a row's place in it, and `step` counts
// from a row's first active step.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "cc/core/row_order.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Steps [first, first + steps), with all their rows.
struct StepBlock {
  int64_t first = 0;
  int64_t steps = 0;
  int64_t rows = 0;
  // Not 0: the block is a part of one with so many rows, whose bits its GEMMs
  // have.
  int64_t rows_of_whole = 0;

  int64_t end() const { return first + steps; }
};

// Weights of a sequence, w[depth, columns] or with weights_by_unit its
// transpose.
template <class T>
WeightView<T> WeightsOf(const SequenceShape& shape, const T* w, int64_t depth,
                        int64_t columns) {
  return {w, shape.weights_by_unit ? depth : columns, shape.weights_by_unit};
}

class SequenceRows : private RowOrder {
 public:
  // Scratch::ok() reports whether there was memory for it. `state_width` is
  // that of h, where it may be wider than there are units.
  SequenceRows(const SequenceShape& shape, const uint8_t* mask,
               Scratch* scratch, int64_t state_width = 0)
      : shape_(shape),
        widest_(std::max({shape.units, shape.input, state_width, int64_t{1}})) {
    const int64_t numbers = RowOrderStorage(shape, mask);
    int64_t* const storage = scratch->Array<int64_t>(numbers);
    if (shape.pieces.rows != nullptr) {
      zeros_ = scratch->Array<char>(widest_ * kWidestBytes);
    }
    if (scratch->ok()) {
      static_cast<RowOrder&>(*this) = MakeRowOrder(shape, mask, storage);
      if (zeros_ != nullptr) std::memset(zeros_, 0, widest_ * kWidestBytes);
    }
  }

  using RowOrder::ActiveRows;
  using RowOrder::ActiveSteps;
  using RowOrder::BatchRow;
  using RowOrder::FirstStateRow;
  using RowOrder::HasPadding;
  using RowOrder::IsMasked;
  using RowOrder::LastStateRow;
  using RowOrder::LeadingPadding;
  using RowOrder::MemoryRow;
  using RowOrder::RowsBefore;
  using RowOrder::TotalRows;

  const SequenceShape& shape() const { return shape_; }
  int64_t batch() const { return shape_.batch; }
  // Of sequence arrays, and of factors of recurrent dropout.
  int64_t memory_batch() const { return shape_.MemoryBatch(); }
  // Active steps of the longest row.
  int64_t steps() const { return longest_steps; }
  int64_t SavedRow(int64_t step, int64_t b) const {
    return RowOrder::SavedRow(step, b) - first_saved_;
  }
  // Of shapes with saved_in_steps: arrays of saved rows begin with a step.
  void BeginSavedWith(int64_t step) { first_saved_ = RowsBefore(step); }

  // A row's initial state in states[B, width], or the final state's entry in
  // such an array; zeros where the row has none there.
  template <class T>
  const T* FirstState(const T* states, int64_t width, int64_t b) const {
    return StateOrZeros(states, width, FirstStateRow(b));
  }
  template <class T>
  const T* LastState(const T* states, int64_t width, int64_t b) const {
    return StateOrZeros(states, width, LastStateRow(b));
  }

  // Whether there may be masked padding: only then are there states to carry.
  bool HasMaskedPadding() const { return HasPadding() && mask != nullptr; }
  StepInterval TrailingPadding(int64_t b) const {
    return RowOrder::TrailingPadding(shape_, b);
  }
  // f(memory row) for a row's padding, and for what is past its length.
  template <class F>
  void ForEachPaddingRow(int64_t b, const F& f) const {
    RowOrder::ForEachPaddingRow(shape_, b, f);
  }

  // Those of some rows that a step has.
  Range ActiveRange(int64_t step, Range rows) const {
    const int64_t end = std::min(rows.end, ActiveRows(step));
    return {std::min(rows.begin, end), end};
  }

  // A share of the rows, by what there is to do in a block.
  Range RowsOfShare(Share share, const StepBlock& block) const {
    if (!HasPadding()) return share.RangeOf(shape_.batch);
    const Range steps = share.RangeOf(block.rows);
    return {RowAfter(steps.begin, block), RowAfter(steps.end, block)};
  }

  // Rows that a block has at most.
  int64_t MaxRowsInBlock() const {
    return std::min(TotalRows(), RowsPerBlock() - 1 + shape_.batch);
  }
  // The block that begins with a step; empty past the last.
  StepBlock BlockFrom(int64_t first) const { return BlockFrom(first, steps()); }
  // The same, with steps before `end` only.
  StepBlock BlockFrom(int64_t first, int64_t end) const {
    const int64_t most = RowsPerBlock();
    StepBlock block = {first, 0, 0};
    while (block.end() < end && block.rows < most) {
      block.rows += ActiveRows(block.end());
      ++block.steps;
    }
    return block;
  }
  // The block that ends before a step; empty before the first.
  StepBlock BlockBefore(int64_t end) const {
    const int64_t most = RowsPerBlock();
    StepBlock block = {end, 0, 0};
    while (block.first > 0 && block.rows < most) {
      --block.first;
      ++block.steps;
      block.rows += ActiveRows(block.first);
    }
    return block;
  }

 private:
  // Rows from which on a block takes no further step.
  int64_t RowsPerBlock() const {
    return std::max(Blocking::kRowsPerBlock,
                    Blocking::kElementsPerBlock / widest_);
  }

  static constexpr int64_t kWidestBytes = sizeof(double);  // of a state's type

  template <class T>
  const T* StateOrZeros(const T* states, int64_t width, int64_t row) const {
    static_assert(sizeof(T) <= kWidestBytes);
    return row < 0 ? static_cast<const T*>(zeros_) : states + row * width;
  }

  // The first b before which the rows have at least `work` steps of the block
  // together.
  int64_t RowAfter(int64_t work, const StepBlock& block) const {
    int64_t b = 0;
    for (int64_t sum = 0; b < shape_.batch && sum < work; ++b) {
      sum += std::min(ActiveSteps(b) - block.first, block.steps);
    }
    return b;
  }

  const SequenceShape& shape_;
  const int64_t widest_;
  void* zeros_ = nullptr;    // of any type, [widest], where rows are pieces
  int64_t first_saved_ = 0;  // the row with which arrays of saved rows begin
};

// The memory rows of the rows of a block.
class BlockRows {
 public:
  BlockRows(const SequenceRows& rows, Scratch* scratch)
      : rows_(rows),
        memory_rows_(scratch->Array<int64_t>(rows.MaxRowsInBlock())) {}

  void Set(const StepBlock& block) {
    block_ = block;
    int64_t* next = memory_rows_;
    for (int64_t step = block.first; step < block.end(); ++step) {
      for (int64_t b = 0; b < rows_.ActiveRows(step); ++b) {
        *next++ = rows_.MemoryRow(step, b);
      }
    }
  }

  const StepBlock& block() const { return block_; }
  // The first row of a step of the block, among the block's.
  int64_t FirstRow(int64_t step) const {
    return rows_.RowsBefore(step) - rows_.RowsBefore(block_.first);
  }
  int64_t MemoryRow(int64_t row) const { return memory_rows_[row]; }
  template <class C>
  RowView<C> View(const C* sequence, int64_t width) const {
    return {sequence, width, memory_rows_};
  }

 private:
  const SequenceRows& rows_;
  StepBlock block_;
  int64_t* memory_rows_;  // of each row of the block
};

// A checkpoint segment of a call that saves states for backward
// (cc/core/sequence_args.h): steps [first, end).
struct Segment {
  int64_t first = 0;
  int64_t end = 0;
};

// Each segment is a whole number of the blocks that the backward pass walks,
// from the last one on, so that the order of its sums does not depend on them.
//
// Pieces are so many that a short first segment would have more of them than
// there is room for (StatesBefore): it is a part of the second then. A row of T
// steps has at most ceil(T / min_steps) - 1 pieces that reach beyond min_steps,
// 2 min_steps, ..., each counted as often as it does.
class Segments {
 public:
  // Segments of at least so many steps each, but for the first one, which has
  // what is left; 0: one segment of all steps. Scratch::ok() reports whether
  // there was memory.
  Segments(const SequenceRows& rows, int64_t min_steps, Scratch* scratch)
      : rows_(rows) {
    if (min_steps <= 0) return;
    const int64_t most = MostSegments(rows.steps(), min_steps);
    int64_t* const firsts = scratch->Array<int64_t>(most);
    int64_t* const states = scratch->Array<int64_t>(most + 1);
    if (firsts == nullptr || states == nullptr) return;
    firsts_ = firsts;
    states_ = states;
    count_ = 0;
    states[0] = 0;
    for (int64_t end = rows.steps(); end > 0;) {
      Segment segment = SegmentBefore(end, min_steps);
      if (rows.shape().pieces.rows != nullptr && segment.first < min_steps) {
        segment.first = 0;
      }
      firsts[count_++] = segment.first;
      states[count_] = states[count_ - 1] + rows.ActiveRows(segment.first);
      end = segment.first;
    }
    FindLastBlock();
  }

  static int64_t MostSegments(int64_t steps, int64_t min_steps) {
    return steps / min_steps + (steps % min_steps > 0 ? 1 : 0);
  }

  int64_t count() const { return count_; }
  // Counted from the last one back.
  Segment FromBack(int64_t n) const {
    if (firsts_ == nullptr) return {0, rows_.steps()};
    return {firsts_[n], n == 0 ? rows_.steps() : firsts_[n - 1]};
  }
  // Rows that take part in the first steps of all segments that come before the
  // n-th from the back: whose states are saved before its own.
  int64_t StatesBefore(int64_t n) const {
    return states_ == nullptr ? 0 : states_[n];
  }

  // The block of the forward pass that begins with a step of a segment; empty
  // at its end. Where the pass over the whole sequence would have a last block
  // of so few rows that its GEMMs have other bits, no block has steps of it
  // together with earlier ones.
  StepBlock BlockFrom(int64_t first, const Segment& segment) const {
    if (firsts_ == nullptr) return rows_.BlockFrom(first);
    const bool last = first >= last_block_.first;
    const int64_t end =
        last ? segment.end : std::min(segment.end, last_block_.first);
    StepBlock block = rows_.BlockFrom(first, end);
    block.rows_of_whole = last ? last_block_.rows : Blocking::kRowsPerBlock;
    return block;
  }

 private:
  Segment SegmentBefore(int64_t end, int64_t min_steps) const {
    Segment segment = {end, end};
    while (segment.first > 0 && segment.end - segment.first < min_steps) {
      segment.first = rows_.BlockBefore(segment.first).first;
    }
    return segment;
  }

  void FindLastBlock() {
    for (StepBlock block = rows_.BlockFrom(0); block.steps > 0;
         block = rows_.BlockFrom(block.end())) {
      last_block_ = block;
    }
    if (last_block_.rows > Blocking::kStreamRows) {
      last_block_ = {rows_.steps(), 0, 0};
    }
  }

  const SequenceRows& rows_;
  const int64_t* firsts_ = nullptr;  // [count], from the last segment back
  const int64_t* states_ = nullptr;  // [count + 1]
  int64_t count_ = 1;
  StepBlock last_block_;  // of the whole forward pass, if it has few rows
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_
