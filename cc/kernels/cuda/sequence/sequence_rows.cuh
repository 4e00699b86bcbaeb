// Defines how the CUDA engine walks through the rows of a sequence
// (cc/core/row_order.h): what a kernel reads of a step's row, the state after
// it with zoneout, and the blocks of steps that the host queues.
//
// Rows are trimmed to their lengths, which the host knows. A mask is in device
// memory and is not trimmed: a masked step, padding or not, only carries the
// state. To skip it would take the number of active rows, which sizes grids,
// GEMMs and scratch, back to the host, which would wait for the device at every
// call. Callers that pad at the end pass lengths instead.

#ifndef BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_ROWS_CUH_
#define BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_ROWS_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cc/core/row_order.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

// The rows of arrays that belong to a step and a row.
struct StepRow {
  int64_t packed = 0;  // among the rows of all steps, step after step
  int64_t memory = 0;  // of x, h and the mask
  int64_t saved = 0;   // of what is saved for backward alone
  bool masked = false;
};

// All of them at once, so that a kernel's loads of the order overlap.
__device__ __forceinline__ StepRow FindStepRow(const RowOrder& order,
                                               int64_t step, int64_t b) {
  int64_t rows_before = step * order.batch;
  int64_t first_row = order.origin + b * order.batch_stride;
  if (order.HasPadding()) {
    rows_before = order.rows_before[step];
    first_row = order.first_rows[b];
  }
  StepRow row;
  row.packed = rows_before + b;
  row.memory = first_row + step * order.step_stride;
  row.saved = order.saved_in_steps ? row.packed : row.memory;
  row.masked = order.mask != nullptr && order.mask[row.memory] == 0;
  return row;
}

// Zoneout as kernels take it: kernels of float do not compute in double.
template <class C>
struct StepZoneout {
  const uint8_t* kept = nullptr;
  C rate = 0;

  StepZoneout() = default;
  explicit StepZoneout(const Zoneout& zoneout)
      : kept(zoneout.kept), rate(static_cast<C>(zoneout.rate)) {}

  __device__ __forceinline__ explicit operator bool() const {
    return kept != nullptr || rate > 0;
  }
};

// The share of the state before a step in the one after it, at an element of
// [steps, batch, width]: 1 or 0 with draws, 0 without zoneout.
template <class C>
__device__ __forceinline__ C KeptShare(const StepZoneout<C>& zoneout,
                                       int64_t at) {
  if (zoneout.kept != nullptr) return C(zoneout.kept[at] != 0 ? 1 : 0);
  return zoneout.rate;
}

// The state after a step that is not masked. before(): the one before it.
template <class C, class Before>
__device__ __forceinline__ C AfterZoneout(const StepZoneout<C>& zoneout,
                                          int64_t at, const Before& before,
                                          C value) {
  // A choice, since what is not kept may be infinite.
  if (zoneout.kept != nullptr) return zoneout.kept[at] != 0 ? before() : value;
  if (zoneout.rate == 0) return value;
  return zoneout.rate * before() + (C(1) - zoneout.rate) * value;
}

// Steps [first, first + steps), with all their rows.
struct StepBlock {
  int64_t first = 0;
  int64_t steps = 0;
  int64_t rows = 0;
  int64_t widest = 0;  // rows of the first step, which has the most

  int64_t end() const { return first + steps; }
};

// A row of a step of a block.
struct BlockPlace {
  int64_t step;
  int64_t b;
  int64_t row;  // among those of the block
};

// Calls pass(order, place) for all of a block, given n among all pairs of steps
// and rows, including those that a step lacks.
template <class Pass>
struct BlockPass {
  RowOrder order;
  int64_t first;   // step
  int64_t widest;  // rows of that step, which has the most
  Pass pass;

  __device__ void operator()(int64_t n) const {
    const int64_t step = first + n / widest;
    const int64_t b = n % widest;
    if (b >= order.ActiveRows(step)) return;
    const int64_t row = order.RowsBefore(step) - order.RowsBefore(first) + b;
    pass(order, BlockPlace{step, b, row});
  }
};

// The order of a call's rows, on the host and on the device.
class SequenceRows {
 public:
  // Must be called first, and only needs the host. mask: in device memory.
  Error SetOrder(const SequenceShape& shape, const uint8_t* mask);
  // row_bytes: scratch for a row of a block of steps.
  Error Prepare(const HostInterface& host, int64_t row_bytes);

  // For kernels.
  const RowOrder& order() const { return device_order_; }
  // For the host, which must not read the mask.
  const RowOrder& host_order() const { return host_order_; }
  int64_t batch() const { return host_order_.batch; }
  int64_t memory_batch() const { return host_order_.memory_batch; }
  // Of the longest row.
  int64_t steps() const { return host_order_.longest_steps; }
  int64_t RowsBefore(int64_t step) const {
    return host_order_.RowsBefore(step);
  }
  int64_t ActiveRows(int64_t step) const {
    return host_order_.ActiveRows(step);
  }
  int64_t TotalRows() const { return host_order_.TotalRows(); }

  // Whether the rows of a block lie in memory in the order of its steps.
  bool IsPacked() const {
    return !host_order_.HasPadding() &&
           host_order_.step_stride == host_order_.batch;
  }

  int64_t MaxRowsInBlock() const {
    return std::min(TotalRows(), std::max(max_block_rows_, batch()));
  }
  // The block that begins with a step; empty past the last one.
  StepBlock BlockFrom(int64_t first) const {
    StepBlock block = {first, 0, 0, ActiveRows(first)};
    while (block.end() < steps() && Fits(block, block.end())) {
      block.rows += ActiveRows(block.end());
      ++block.steps;
    }
    return block;
  }
  // The block that ends before a step; empty before the first one.
  StepBlock BlockBefore(int64_t end) const {
    StepBlock block = {end, 0, 0, 0};
    while (block.first > 0 && Fits(block, block.first - 1)) {
      --block.first;
      ++block.steps;
      block.widest = ActiveRows(block.first);
      block.rows += block.widest;
    }
    return block;
  }

 private:
  bool Fits(const StepBlock& block, int64_t step) const {
    return block.steps == 0 || block.rows + ActiveRows(step) <= max_block_rows_;
  }

  RowOrder device_order_;
  RowOrder host_order_;
  int64_t max_block_rows_ = 0;  // of a block of several steps
  std::unique_ptr<int64_t[]> storage_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_SEQUENCE_SEQUENCE_ROWS_CUH_
