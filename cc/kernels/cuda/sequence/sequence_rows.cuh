// Owns which rows of the batch take part in each step of a sequence, and where
// what belongs to a step and row stands in memory.
//
// Rows are taken by their length, the longest first, so those that a step has
// are the first ones. `b` below is a row's place in that order. Without lengths
// all steps have all rows, and b is the row of the batch.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_ROWS_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_ROWS_CUH_

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cc/core/portable.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

// Where what belongs to a step and row stands.
struct RowPlace {
  int64_t in_steps = 0;   // the row among those of all steps, step by step
  int64_t in_memory = 0;  // of x, h and the mask
  int64_t saved = 0;      // of what is kept for the backward alone
  bool skipped = false;
};

// What a kernel knows of it.
struct RowMap {
  int64_t steps = 0;  // of the arrays in memory, not of the longest row
  int64_t batch = 0;
  int64_t state_stride = 1;
  bool time_major = true;
  bool backwards = false;
  bool saved_in_steps = false;
  const uint8_t* mask = nullptr;     // [steps, batch]; nullptr: all count
  const int64_t* order = nullptr;    // [B], of each place the row of the batch;
                                     // nullptr: there are no lengths
  const int64_t* lengths = nullptr;  // [B], of each place
  const int64_t* before = nullptr;   // [T + 1], rows of all steps before one

  BLOCKRNN_HOST_DEVICE int64_t BatchRow(int64_t b) const {
    return order == nullptr ? b : order[b];
  }
  BLOCKRNN_HOST_DEVICE int64_t Length(int64_t b) const {
    return order == nullptr ? steps : lengths[b];
  }
  BLOCKRNN_HOST_DEVICE int64_t Before(int64_t step) const {
    return order == nullptr ? step * batch : before[step];
  }
  BLOCKRNN_HOST_DEVICE int64_t Active(int64_t step) const {
    return Before(step + 1) - Before(step);
  }
  // The row of a sequence array that has time t of a row of the batch.
  BLOCKRNN_HOST_DEVICE int64_t RowAt(int64_t t, int64_t batch_row) const {
    return time_major ? t * batch + batch_row : batch_row * steps + t;
  }
  BLOCKRNN_HOST_DEVICE int64_t At(int64_t t, int64_t b) const {
    return RowAt(t, BatchRow(b));
  }
  // The row of x, h and the mask.
  BLOCKRNN_HOST_DEVICE int64_t InMemory(int64_t step, int64_t b) const {
    return At(backwards ? Length(b) - 1 - step : step, b);
  }
  // The row of what is kept for the backward alone.
  BLOCKRNN_HOST_DEVICE int64_t Saved(int64_t step, int64_t b) const {
    return saved_in_steps ? Before(step) + b : InMemory(step, b);
  }
  // The state of a row, among all that stand together.
  BLOCKRNN_HOST_DEVICE int64_t State(int64_t b) const {
    return BatchRow(b) * state_stride;
  }
  BLOCKRNN_HOST_DEVICE bool Skipped(int64_t step, int64_t b) const {
    return mask != nullptr && mask[InMemory(step, b)] == 0;
  }
  // All of it, once for all that a kernel has to read there.
  BLOCKRNN_HOST_DEVICE RowPlace Place(int64_t step, int64_t b) const {
    // What lengths say is asked for together.
    int64_t rows_before = step * batch;
    int64_t length = steps;
    int64_t batch_row = b;
    if (order != nullptr) {
      rows_before = before[step];
      length = lengths[b];
      batch_row = order[b];
    }
    RowPlace place;
    place.in_steps = rows_before + b;
    place.in_memory = RowAt(backwards ? length - 1 - step : step, batch_row);
    place.saved = saved_in_steps ? place.in_steps : place.in_memory;
    place.skipped = mask != nullptr && mask[place.in_memory] == 0;
    return place;
  }
};

// Steps [first, first + steps), with all their rows.
struct StepBlock {
  int64_t first = 0;
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t widest = 0;  // rows of the first step

  int64_t end() const { return first + steps; }
};

// What the host knows of it.
class SequenceRows {
 public:
  // row_bytes: scratch that a row of a block of steps takes.
  Error Prepare(const HostInterface& host, const SequenceShape& shape,
                const uint8_t* mask, int64_t row_bytes);

  const RowMap& map() const { return map_; }
  // The same for the host.
  const RowMap& host_map() const {
    return numbers_ == nullptr ? map_ : host_map_;
  }
  int64_t batch() const { return map_.batch; }
  // Of the longest row.
  int64_t steps() const { return steps_; }
  // Rows of all steps before a step.
  int64_t Before(int64_t step) const {
    return numbers_ == nullptr ? step * map_.batch : host_map_.Before(step);
  }
  // Rows of a step; none behind the last one.
  int64_t Active(int64_t step) const {
    return step < steps_ ? Before(step + 1) - Before(step) : 0;
  }
  int64_t Total() const { return Before(steps_); }

  // Whether the rows of a block stand in memory as they are taken.
  bool InOrder() const {
    return numbers_ == nullptr && !map_.backwards &&
           (map_.time_major || map_.batch == 1);
  }

  // Rows of a block at the most.
  int64_t MostRowsInBlock() const {
    return std::min(
        {Total(), most_steps_ * map_.batch, std::max(most_, map_.batch)});
  }
  // The block that begins with a step; empty behind the last.
  StepBlock BlockFrom(int64_t first) const {
    StepBlock block = {first, 0, 0, Active(first)};
    while (block.end() < steps_ && Fits(block, block.end())) {
      block.rows += Active(block.end());
      ++block.steps;
    }
    return block;
  }
  // The block that ends before a step; empty before the first.
  StepBlock BlockBefore(int64_t end) const {
    StepBlock block = {end, 0, 0, 0};
    while (block.first > 0 && Fits(block, block.first - 1)) {
      --block.first;
      ++block.steps;
      block.widest = Active(block.first);
      block.rows += block.widest;
    }
    return block;
  }

 private:
  bool Fits(const StepBlock& block, int64_t step) const {
    return block.steps == 0 ||
           (block.steps < most_steps_ && block.rows + Active(step) <= most_);
  }

  RowMap map_;
  RowMap host_map_;  // the same numbers in host memory
  int64_t steps_ = 0;
  int64_t most_ = 0;  // rows that a block of several steps may have
  int64_t most_steps_ = 0;
  std::unique_ptr<int64_t[]> numbers_;
};

// Tells who watches the call.
inline Error Enter(const HostInterface& host, const StepBlock& block) {
  const BlockWatch* const watch = host.watch;
  if (watch == nullptr || watch->enter == nullptr) return nullptr;
  return watch->enter(watch->context, block.first, block.steps, host);
}
inline Error Leave(const HostInterface& host, const StepBlock& block) {
  const BlockWatch* const watch = host.watch;
  if (watch == nullptr || watch->leave == nullptr) return nullptr;
  return watch->leave(watch->context, block.first, block.steps, host);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_ROWS_CUH_
