// Defines the spans of steps of a call (cc/core/sequence_args.h): each is a
// whole number of the blocks that the backward pass walks, from the last one
// on, so that the order of its sums does not depend on the spans.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_SPANS_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_SPANS_H_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/scratch.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Steps [first, end).
struct Span {
  int64_t first = 0;
  int64_t end = 0;
};

class Spans {
 public:
  // Spans of at least so many steps each, but for the first one, which has what
  // is left; 0: one span of all steps. Scratch::ok() reports whether there was
  // memory.
  Spans(const SequenceRows& rows, int64_t min_steps, Scratch* scratch)
      : rows_(rows) {
    if (min_steps <= 0) return;
    const int64_t most = MostSpans(rows.steps(), min_steps);
    int64_t* const firsts = scratch->Array<int64_t>(most);
    if (firsts == nullptr) return;
    firsts_ = firsts;
    count_ = 0;
    for (int64_t end = rows.steps(); end > 0;) {
      const Span span = SpanBefore(end, min_steps);
      firsts[count_++] = span.first;
      end = span.first;
    }
    FindLastBlock();
  }

  static int64_t MostSpans(int64_t steps, int64_t min_steps) {
    return steps / min_steps + (steps % min_steps > 0 ? 1 : 0);
  }

  int64_t count() const { return count_; }
  // Counted from the last one back.
  Span FromBack(int64_t n) const {
    if (firsts_ == nullptr) return {0, rows_.steps()};
    return {firsts_[n], n == 0 ? rows_.steps() : firsts_[n - 1]};
  }

  // The block of the forward pass that begins with a step of a span; empty at
  // its end. Where the pass over the whole sequence would have a last block of
  // so few rows that its GEMMs have other bits, no block has steps of it
  // together with earlier ones.
  StepBlock BlockFrom(int64_t first, const Span& span) const {
    if (firsts_ == nullptr) return rows_.BlockFrom(first);
    const bool last = first >= last_block_.first;
    const int64_t end = last ? span.end : std::min(span.end, last_block_.first);
    StepBlock block = rows_.BlockFrom(first, end);
    block.rows_of_whole = last ? last_block_.rows : Blocking::kRowsPerBlock;
    return block;
  }

 private:
  Span SpanBefore(int64_t end, int64_t min_steps) const {
    Span span = {end, end};
    while (span.first > 0 && span.end - span.first < min_steps) {
      span.first = rows_.BlockBefore(span.first).first;
    }
    return span;
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
  const int64_t* firsts_ = nullptr;  // [count], from the last span back
  int64_t count_ = 1;
  StepBlock last_block_;  // of the whole forward pass, if it has few rows
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_SPANS_H_
