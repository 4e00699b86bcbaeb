// Defines which rows of the batch take part in each step of a sequence, and
// which row of the arrays in memory belongs to a step and row.
//
// Leading and trailing padding, the steps that a mask leaves out at either end
// of a row, takes no step: `step` below counts from the first step that is not
// padding, so a padded row costs as little as a shorter one. Steps that a mask
// leaves out in between are masked: they take part, and carry the state.
//
// Rows are sorted by the number of steps that they take part in, the longest
// first. So the rows of a step are always the first ones, and a step costs what
// they cost. `b` below is a row's place in that order, and the row of the batch
// where no row is shorter than another.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/gemm/tile.h"
#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/scratch.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Steps [first, first + steps), with all their rows.
struct StepBlock {
  int64_t first = 0;
  int64_t steps = 0;
  int64_t rows = 0;

  int64_t end() const { return first + steps; }
};

class SequenceRows {
 public:
  // Scratch::ok() tells whether there was memory for it. `state_width` is that
  // of h, where it may be wider than there are units.
  SequenceRows(const SequenceShape& shape, const uint8_t* mask,
               Scratch* scratch, int64_t state_width = 0)
      : shape_(shape),
        mask_(mask),
        widest_(std::max({shape.units, shape.input, state_width, int64_t{1}})),
        steps_(shape.batch == 0 ? 0 : shape.steps) {
    if (steps_ == 0 || (shape.lengths == nullptr && mask == nullptr)) return;
    Span* spans = scratch->Array<Span>(shape.batch);
    if (!scratch->ok()) {
      steps_ = 0;
      return;
    }
    bool shorter = false;
    for (int64_t b = 0; b < shape.batch; ++b) {
      spans[b] = SpanOfRow(b);
      shorter |= spans[b].steps < shape.steps;
    }
    if (shorter) Sort(spans, scratch);
  }

  const SequenceShape& shape() const { return shape_; }
  int64_t batch() const { return shape_.batch; }
  // Of the longest row.
  int64_t steps() const { return steps_; }
  // Rows of a step.
  int64_t ActiveRows(int64_t step) const {
    if (active_ != nullptr) return active_[step];
    return step < steps_ ? shape_.batch : 0;
  }
  // Rows of all steps before a step.
  int64_t RowsBefore(int64_t step) const {
    return before_ != nullptr ? before_[step] : step * shape_.batch;
  }
  int64_t TotalRows() const { return RowsBefore(steps_); }
  int64_t BatchRow(int64_t b) const {
    return order_ != nullptr ? order_[b] : b;
  }
  // Steps that a row takes part in.
  int64_t Length(int64_t b) const {
    return spans_ != nullptr ? spans_[BatchRow(b)].steps : steps_;
  }

  // The row of x, h and the mask.
  int64_t MemoryRow(int64_t step, int64_t b) const {
    return SequenceRow(FirstStep(b) + step, b);
  }
  // The row of what is saved for backward alone.
  int64_t SavedRow(int64_t step, int64_t b) const {
    return shape_.saved_in_steps ? RowsBefore(step) + b : MemoryRow(step, b);
  }
  // The row of an array of states.
  int64_t StateRow(int64_t b) const {
    return BatchRow(b) * shape_.state_stride;
  }
  bool IsMasked(int64_t step, int64_t b) const {
    return mask_ != nullptr && mask_[MemoryRow(step, b)] == 0;
  }

  // Whether there are steps of the sequence that not all rows take part in.
  bool HasUnused() const { return spans_ != nullptr; }
  // Whether some of these may be padding: only then are there states to carry.
  bool HasPadding() const { return HasUnused() && mask_ != nullptr; }
  // A row's padding, as the sequence counts steps.
  Range LeadingPadding(int64_t b) const { return {0, FirstStep(b)}; }
  Range TrailingPadding(int64_t b) const {
    return {FirstStep(b) + Length(b), shape_.Length(BatchRow(b))};
  }
  // MemoryRow of a step that is counted with the leading padding.
  int64_t SequenceRow(int64_t step, int64_t b) const {
    return shape_.Row(step, BatchRow(b));
  }
  // f(memory row) for a row's padding, and for what is past its length.
  template <class F>
  void ForEachUnusedRow(int64_t b, const F& f) const {
    for (const Range& steps : {LeadingPadding(b), TrailingPadding(b)}) {
      for (int64_t step = steps.begin; step < steps.end; ++step) {
        f(SequenceRow(step, b));
      }
    }
    const int64_t row = BatchRow(b);
    for (int64_t t = shape_.Length(row); t < shape_.steps; ++t) {
      f(shape_.At(t, row));
    }
  }

  // Those of some rows that a step has.
  Range ActiveRange(int64_t step, Range rows) const {
    const int64_t end = std::min(rows.end, ActiveRows(step));
    return {std::min(rows.begin, end), end};
  }

  // A share of the rows, by what there is to do.
  Range RowsOfShare(Share share) const {
    if (order_ == nullptr) return share.Of(shape_.batch);
    const Range steps = share.Of(TotalRows());
    return {RowAfter(steps.begin), RowAfter(steps.end)};
  }

  // Rows that a block has at most.
  int64_t MaxRowsInBlock() const {
    return std::min(TotalRows(), RowsPerBlock() - 1 + shape_.batch);
  }
  // The block that begins with a step; empty past the last.
  StepBlock BlockFrom(int64_t first) const {
    const int64_t most = RowsPerBlock();
    StepBlock block = {first, 0, 0};
    while (block.end() < steps_ && block.rows < most) {
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

  // The steps of a row of the batch that are not padding.
  struct Span {
    int64_t first = 0;
    int64_t steps = 0;
  };
  Span SpanOfRow(int64_t row) const {
    Span span = {0, shape_.Length(row)};
    if (mask_ == nullptr) return span;
    const auto masked = [&](int64_t step) {
      return mask_[shape_.Row(step, row)] == 0;
    };
    while (span.steps > 0 && masked(span.steps - 1)) --span.steps;
    while (span.steps > 0 && masked(span.first)) {
      ++span.first;
      --span.steps;
    }
    return span;
  }
  int64_t FirstStep(int64_t b) const {
    return spans_ != nullptr ? spans_[BatchRow(b)].first : 0;
  }

  // A stable counting sort.
  void Sort(const Span* spans, Scratch* scratch) {
    int64_t* active = scratch->Array<int64_t>(shape_.steps + 1);
    int64_t* before = scratch->Array<int64_t>(shape_.steps + 1);
    int64_t* order = scratch->Array<int64_t>(shape_.batch);
    if (!scratch->ok()) {
      steps_ = 0;
      return;
    }
    // active[s]: rows of more than s steps, which precede the rows of s steps;
    // `before` is first the next place of those, then the sums of `active`.
    std::fill(active, active + shape_.steps + 1, 0);
    for (int64_t b = 0; b < shape_.batch; ++b) ++active[spans[b].steps];
    int64_t longer = 0;
    for (int64_t step = shape_.steps; step >= 0; --step) {
      const int64_t equal = active[step];
      active[step] = before[step] = longer;
      longer += equal;
    }
    for (int64_t b = 0; b < shape_.batch; ++b) {
      order[before[spans[b].steps]++] = b;
    }
    int64_t rows = 0;
    for (int64_t step = 0; step <= shape_.steps; ++step) {
      before[step] = rows;
      rows += active[step];
    }
    while (steps_ > 0 && active[steps_ - 1] == 0) --steps_;
    spans_ = spans;
    active_ = active;
    before_ = before;
    order_ = order;
  }

  // The first b before which the rows have at least `work` steps together.
  int64_t RowAfter(int64_t work) const {
    int64_t b = 0;
    for (int64_t sum = 0; b < shape_.batch && sum < work; ++b) sum += Length(b);
    return b;
  }

  const SequenceShape& shape_;
  const uint8_t* const mask_;
  const int64_t widest_;
  int64_t steps_;
  const Span* spans_ = nullptr;      // [B], by row of the batch
  const int64_t* active_ = nullptr;  // [T + 1]
  const int64_t* before_ = nullptr;  // [T + 1]
  const int64_t* order_ = nullptr;   // [B]
};

// The memory rows of the rows of a block.
class BlockRows {
 public:
  BlockRows(const SequenceRows& rows, Scratch* scratch)
      : rows_(rows),
        memory_rows_(scratch->Array<int64_t>(rows.MaxRowsInBlock())) {}

  void Enter(const StepBlock& block) {
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

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_
