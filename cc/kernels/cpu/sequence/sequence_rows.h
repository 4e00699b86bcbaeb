// Owns which rows of the batch take part in each step of a sequence, and where
// what belongs to a step and row stands in memory.
//
// A row takes part from the first of its steps that the mask does not skip to
// the last one: `step` below counts from that first one, so a row that is
// padded, at either end, costs as little as one that is shorter. What is
// skipped between takes part.
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
#include "cc/kernels/cpu/gemm/gemm.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/sequence/step_loop.h"
#include "cc/kernels/cpu/threads/scratch.h"

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
      spans[b] = SpanOf(b);
      shorter |= spans[b].steps < shape.steps;
    }
    if (shorter) Order(spans, scratch);
  }

  const SequenceShape& shape() const { return shape_; }
  int64_t batch() const { return shape_.batch; }
  // Of the longest row.
  int64_t steps() const { return steps_; }
  // Rows of a step.
  int64_t Active(int64_t step) const {
    if (active_ != nullptr) return active_[step];
    return step < steps_ ? shape_.batch : 0;
  }
  // Rows of all steps before a step.
  int64_t Before(int64_t step) const {
    return before_ != nullptr ? before_[step] : step * shape_.batch;
  }
  int64_t Total() const { return Before(steps_); }
  // Whether the steps are too few to pack their weights for.
  bool FewUses() const { return StreamsWeights(steps_, shape_.batch); }
  int64_t BatchRow(int64_t b) const {
    return order_ != nullptr ? order_[b] : b;
  }
  // Steps that a row takes part in.
  int64_t Length(int64_t b) const {
    return spans_ != nullptr ? spans_[BatchRow(b)].steps : steps_;
  }

  // The row of x, h and the mask.
  int64_t InMemory(int64_t step, int64_t b) const {
    return OfSequence(First(b) + step, b);
  }
  // The row of what is kept for the backward alone.
  int64_t Saved(int64_t step, int64_t b) const {
    return shape_.saved_in_steps ? Before(step) + b : InMemory(step, b);
  }
  // The state of a row, among all that stand together.
  int64_t State(int64_t b) const { return BatchRow(b) * shape_.state_stride; }
  bool Skipped(int64_t step, int64_t b) const {
    return mask_ != nullptr && mask_[InMemory(step, b)] == 0;
  }

  // Steps of the sequence that not all rows take part in.
  bool HasUnused() const { return spans_ != nullptr; }
  // Whether a mask may skip some of them: only then are there states to carry.
  bool HasSkippedEnds() const { return HasUnused() && mask_ != nullptr; }
  // Those that a row has, skipped before its first one and behind its last one,
  // as the sequence counts them.
  Range SkippedBefore(int64_t b) const { return {0, First(b)}; }
  Range SkippedBehind(int64_t b) const {
    return {First(b) + Length(b), shape_.Length(BatchRow(b))};
  }
  // The row of x, h and the mask of such a step.
  int64_t OfSequence(int64_t step, int64_t b) const {
    return shape_.Row(step, BatchRow(b));
  }
  // f(row of x, h and the mask) for them, and for what is past the row's
  // length.
  template <class F>
  void ForEachUnused(int64_t b, const F& f) const {
    for (const Range& steps : {SkippedBefore(b), SkippedBehind(b)}) {
      for (int64_t step = steps.begin; step < steps.end; ++step) {
        f(OfSequence(step, b));
      }
    }
    const int64_t row = BatchRow(b);
    for (int64_t t = shape_.Length(row); t < shape_.steps; ++t) {
      f(shape_.At(t, row));
    }
  }

  // Those of some rows that a step has.
  Range At(int64_t step, Range rows) const {
    const int64_t end = std::min(rows.end, Active(step));
    return {std::min(rows.begin, end), end};
  }

  // A share of the rows, by what there is to do.
  Range operator()(Share share) const {
    if (order_ == nullptr) return share.Of(shape_.batch);
    const Range steps = share.Of(Total());
    return {RowAfter(steps.begin), RowAfter(steps.end)};
  }

  // Rows of a block at the most.
  int64_t MostRowsInBlock() const {
    return std::min(Total(), RowsInBlock() - 1 + shape_.batch);
  }
  // The block that begins with a step; empty behind the last.
  StepBlock BlockFrom(int64_t first) const {
    const int64_t most = RowsInBlock();
    StepBlock block = {first, 0, 0};
    while (block.end() < steps_ && block.rows < most) {
      block.rows += Active(block.end());
      ++block.steps;
    }
    return block;
  }
  // The block that ends before a step; empty before the first.
  StepBlock BlockBefore(int64_t end) const {
    const int64_t most = RowsInBlock();
    StepBlock block = {end, 0, 0};
    while (block.first > 0 && block.rows < most) {
      --block.first;
      ++block.steps;
      block.rows += Active(block.first);
    }
    return block;
  }

 private:
  // Rows (steps × batch) from which on a block takes no further step. Enough
  // that a product with them runs at full speed and that there is much to do
  // between two points where threads meet, few enough that what it leaves for
  // the steps (or they for it) mostly stays in the last-level cache, and that
  // its memory is small beside the sequence's own. Measured; see
  // docs/notes/step_loop.md.
  int64_t RowsInBlock() const {
    constexpr int64_t kFewest = 480;
    constexpr int64_t kElements = 1 << 16;  // of the widest one of x, h and cs
    return std::max(kFewest, kElements / widest_);
  }

  // The steps of a row of the batch that are not skipped ends.
  struct Span {
    int64_t first = 0;
    int64_t steps = 0;
  };
  Span SpanOf(int64_t row) const {
    Span span = {0, shape_.Length(row)};
    if (mask_ == nullptr) return span;
    const auto skipped = [&](int64_t step) {
      return mask_[shape_.Row(step, row)] == 0;
    };
    while (span.steps > 0 && skipped(span.steps - 1)) --span.steps;
    while (span.steps > 0 && skipped(span.first)) {
      ++span.first;
      --span.steps;
    }
    return span;
  }
  int64_t First(int64_t b) const {
    return spans_ != nullptr ? spans_[BatchRow(b)].first : 0;
  }

  void Order(const Span* spans, Scratch* scratch) {
    int64_t* active = scratch->Array<int64_t>(shape_.steps + 1);
    int64_t* before = scratch->Array<int64_t>(shape_.steps + 1);
    int64_t* order = scratch->Array<int64_t>(shape_.batch);
    if (!scratch->ok()) {
      steps_ = 0;
      return;
    }
    // active[s]: rows of more than s steps. Rows of s steps come right behind
    // them; `before` is first their next place, then the sums of `active`.
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

// Where the rows of a block stand in memory.
class BlockRows {
 public:
  BlockRows(const SequenceRows& rows, Scratch* scratch)
      : rows_(rows),
        in_memory_(scratch->Array<int64_t>(rows.MostRowsInBlock())) {}

  void Enter(const StepBlock& block) {
    block_ = block;
    int64_t* next = in_memory_;
    for (int64_t step = block.first; step < block.end(); ++step) {
      for (int64_t b = 0; b < rows_.Active(step); ++b) {
        *next++ = rows_.InMemory(step, b);
      }
    }
  }

  const StepBlock& block() const { return block_; }
  // The first row of a step of the block, among the block's.
  int64_t Of(int64_t step) const {
    return rows_.Before(step) - rows_.Before(block_.first);
  }
  int64_t InMemory(int64_t row) const { return in_memory_[row]; }
  template <class C>
  RowView<C> In(const C* sequence, int64_t width) const {
    return {sequence, width, in_memory_};
  }

 private:
  const SequenceRows& rows_;
  StepBlock block_;
  int64_t* in_memory_;  // of each row of the block
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SEQUENCE_ROWS_H_
