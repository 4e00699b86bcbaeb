// Defines the order in which the rows of a batch run through a sequence, for
// both engines.
//
// A row is active from its first step that is not padding to its last one. Its
// padding is what lies past its length, and the masked steps at either end of
// it (leading and trailing padding); masked steps in between are active, and
// the cell carries the state over them. Steps below count from a row's first
// active step, so that leading padding costs as little as trailing padding.
//
// Rows are sorted by their number of active steps, the longest first; equal
// ones stay in the order of the batch. So the rows of a step are a prefix of
// the sorted rows, and a step costs what its active rows cost. `b` below is a
// row's place in this order. Where all rows have all steps there is no order:
// b is the row of the batch, and RowOrder has no arrays.
//
// A mask in device memory cannot be trimmed: the number of active rows sizes
// launches, GEMMs and scratch on the host, which would have to wait for the
// device at every call. The CUDA engine therefore passes no mask to
// MakeRowOrder, only lengths, which are in host memory; a row that is padded by
// a mask alone runs through all its steps there, with the same results.

#ifndef BLOCKRNN_CORE_ROW_ORDER_H_
#define BLOCKRNN_CORE_ROW_ORDER_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "cc/core/portable.h"
#include "cc/core/sequence_args.h"

namespace blockrnn {

// Steps [begin, end).
struct StepInterval {
  int64_t begin = 0;
  int64_t end = 0;
};

// The active steps of a row of the batch, counted as SequenceShape::Row counts
// them. mask: [steps, batch] in host memory, or nullptr.
inline StepInterval FindActiveSteps(const SequenceShape& shape,
                                    const uint8_t* mask, int64_t batch_row) {
  StepInterval active = {0, shape.Length(batch_row)};
  if (mask == nullptr) return active;
  const auto masked = [&](int64_t step) {
    return mask[shape.Row(step, batch_row)] == 0;
  };
  while (active.end > 0 && masked(active.end - 1)) --active.end;
  while (active.begin < active.end && masked(active.begin)) ++active.begin;
  return active;
}

// Trivially copyable: kernels take it as a parameter. Its arrays are in host
// memory or, after WithNumbers, in a device's.
struct RowOrder {
  int64_t steps = 0;              // T, of the sequence arrays
  int64_t batch = 0;              // B, pieces where rows are pieces
  int64_t memory_batch = 0;       // SequenceShape's
  int64_t longest_steps = 0;      // active steps of the longest row
  int64_t most_unused_steps = 0;  // past any row's length
  int64_t state_stride = 1;       // SequenceShape's
  bool saved_in_steps = false;
  // Rows of a sequence array: from one row of the batch to the next, from one
  // step to the next (negative with `backwards`), and that of step 0 of row 0
  // where there is no order.
  int64_t batch_stride = 0;
  int64_t step_stride = 0;
  int64_t origin = 0;
  const uint8_t* mask = nullptr;  // [steps, batch]; nullptr: nothing is masked
  // All nullptr where there is no order. By place, [B]:
  const int64_t* batch_rows = nullptr;  // the row of the batch in memory
  const int64_t* active_steps = nullptr;
  const int64_t* first_rows = nullptr;    // MemoryRow(0, b)
  const int64_t* unused_steps = nullptr;  // in memory, past the row's length
  const int64_t* rows_before = nullptr;   // [T + 2]
  // By place, where rows are pieces, else nullptr: the rows of arrays of
  // initial and of final states, or -1 for a piece that has none.
  const int64_t* first_states = nullptr;
  const int64_t* last_states = nullptr;
  // On the host alone, by place: the row of the call's shape, a piece or a row;
  // by that row: steps of leading padding, or nullptr, none.
  const int64_t* shape_rows = nullptr;
  const int64_t* leading = nullptr;

  // Whether some rows have fewer active steps than there are steps.
  BLOCKRNN_HOST_DEVICE bool HasPadding() const { return batch_rows != nullptr; }
  BLOCKRNN_HOST_DEVICE int64_t BatchRow(int64_t b) const {
    return batch_rows == nullptr ? b : batch_rows[b];
  }
  BLOCKRNN_HOST_DEVICE int64_t ActiveSteps(int64_t b) const {
    return active_steps == nullptr ? steps : active_steps[b];
  }
  // Active rows of all steps before a step, of T + 1 at most.
  BLOCKRNN_HOST_DEVICE int64_t RowsBefore(int64_t step) const {
    return rows_before == nullptr ? step * batch : rows_before[step];
  }
  // Active rows of a step; none past the last one.
  BLOCKRNN_HOST_DEVICE int64_t ActiveRows(int64_t step) const {
    if (rows_before == nullptr) return step < longest_steps ? batch : 0;
    return rows_before[step + 1] - rows_before[step];
  }
  // Active rows of all steps.
  BLOCKRNN_HOST_DEVICE int64_t TotalRows() const {
    return RowsBefore(longest_steps);
  }

  // The row of a sequence array (x, h, the mask) for a step. A negative step,
  // or one past the active ones, is a row's padding within its length.
  BLOCKRNN_HOST_DEVICE int64_t MemoryRow(int64_t step, int64_t b) const {
    const int64_t first =
        first_rows == nullptr ? origin + b * batch_stride : first_rows[b];
    return first + step * step_stride;
  }
  // The row of what is saved for backward alone.
  BLOCKRNN_HOST_DEVICE int64_t SavedRow(int64_t step, int64_t b) const {
    return saved_in_steps ? RowsBefore(step) + b : MemoryRow(step, b);
  }
  // The row of an array of initial states; negative for zeros, which are no
  // input.
  BLOCKRNN_HOST_DEVICE int64_t FirstStateRow(int64_t b) const {
    return first_states == nullptr ? BatchRow(b) * state_stride
                                   : first_states[b];
  }
  // The row of an array of final states; negative for one that is no output.
  BLOCKRNN_HOST_DEVICE int64_t LastStateRow(int64_t b) const {
    return last_states == nullptr ? BatchRow(b) * state_stride : last_states[b];
  }
  // Steps in memory that are past a row's length.
  BLOCKRNN_HOST_DEVICE int64_t UnusedSteps(int64_t b) const {
    return unused_steps == nullptr ? 0 : unused_steps[b];
  }
  // The row of a sequence array for the n-th of them, of a row of `length`
  // steps of which `first` come before MemoryRow(0, b).
  BLOCKRNN_HOST_DEVICE int64_t UnusedRow(int64_t n, int64_t b, int64_t length,
                                         int64_t first) const {
    return MemoryRow(step_stride < 0 ? -first - 1 - n : length - first + n, b);
  }
  BLOCKRNN_HOST_DEVICE bool IsMasked(int64_t step, int64_t b) const {
    return mask != nullptr && mask[MemoryRow(step, b)] == 0;
  }

  // The row of the call's shape. Host only, as all that follows.
  int64_t ShapeRow(int64_t b) const {
    return shape_rows == nullptr ? b : shape_rows[b];
  }
  // The masked steps before a row's active ones and after them, within its
  // length and counted as MemoryRow counts.
  StepInterval LeadingPadding(int64_t b) const {
    return {leading == nullptr ? 0 : -leading[ShapeRow(b)], 0};
  }
  StepInterval TrailingPadding(const SequenceShape& shape, int64_t b) const {
    const int64_t end = shape.Length(ShapeRow(b)) + LeadingPadding(b).begin;
    return {ActiveSteps(b), end};
  }
  // f(row of the sequence arrays) for all of a row's padding, past its length
  // too.
  template <class F>
  void ForEachPaddingRow(const SequenceShape& shape, int64_t b,
                         const F& f) const {
    if (!HasPadding()) return;
    const StepInterval leading_steps = LeadingPadding(b);
    for (const StepInterval& padding :
         {leading_steps, TrailingPadding(shape, b)}) {
      for (int64_t step = padding.begin; step < padding.end; ++step) {
        f(MemoryRow(step, b));
      }
    }
    for (int64_t n = 0; n < UnusedSteps(b); ++n) {
      f(UnusedRow(n, b, shape.Length(ShapeRow(b)), -leading_steps.begin));
    }
  }

  // What a copy for a device needs: the NumDeviceNumbers() numbers from
  // batch_rows on.
  int64_t NumDeviceNumbers() const {
    if (!HasPadding()) return 0;
    return (first_states == nullptr ? 4 : 6) * batch + steps + 2;
  }
  // The same order with these numbers in other memory, without the host's.
  RowOrder WithNumbers(const int64_t* numbers) const {
    RowOrder order = *this;
    order.batch_rows = numbers;
    order.active_steps = numbers + batch;
    order.first_rows = numbers + 2 * batch;
    order.unused_steps = numbers + 3 * batch;
    order.rows_before = numbers + 4 * batch;
    if (first_states != nullptr) {
      order.first_states = order.rows_before + steps + 2;
      order.last_states = order.first_states + batch;
    }
    order.shape_rows = nullptr;
    order.leading = nullptr;
    return order;
  }
};

namespace internal {

// A stable counting sort of the shape's rows by their number of active steps,
// the longest first: counts[B], by row, gives rows[B] and active_steps[B], by
// place. places[T + 1] is scratch.
inline void SortRows(const SequenceShape& shape, const int64_t* counts,
                     int64_t* rows, int64_t* active_steps, int64_t* places) {
  std::fill(places, places + shape.steps + 1, int64_t{0});
  for (int64_t row = 0; row < shape.batch; ++row) ++places[counts[row]];
  // From the number of rows with so many active steps to the first one's place,
  // after all rows that have more.
  int64_t longer = 0;
  for (int64_t step = shape.steps; step >= 0; --step) {
    const int64_t equal = places[step];
    places[step] = longer;
    longer += equal;
  }
  for (int64_t row = 0; row < shape.batch; ++row) {
    const int64_t b = places[counts[row]]++;
    rows[b] = row;
    active_steps[b] = counts[row];
  }
}

// rows_before[T + 2] of RowOrder, from active_steps[B] by place.
inline void SumActiveRows(const SequenceShape& shape,
                          const int64_t* active_steps, int64_t* rows_before) {
  int64_t active_rows = shape.batch;
  int64_t rows = 0;
  for (int64_t step = 0; step <= shape.steps + 1; ++step) {
    rows_before[step] = rows;
    while (active_rows > 0 && active_steps[active_rows - 1] <= step) {
      --active_rows;
    }
    rows += active_rows;
  }
}

}  // namespace internal

// Numbers of storage that MakeRowOrder needs; none where no row can be shorter.
inline int64_t RowOrderStorage(const SequenceShape& shape,
                               const uint8_t* mask) {
  if (shape.lengths == nullptr && mask == nullptr) return 0;
  return (shape.pieces.rows == nullptr ? 6 : 8) * shape.batch + shape.steps + 2;
}

// The order of a call's rows, in O(T · B) with a mask, else in O(T + B).
// mask: in host memory, or nullptr. storage: RowOrderStorage numbers, which the
// order uses as long as it lives.
inline RowOrder MakeRowOrder(const SequenceShape& shape, const uint8_t* mask,
                             int64_t* storage) {
  const RowPieces& pieces = shape.pieces;
  RowOrder order;
  order.steps = shape.steps;
  order.batch = shape.batch;
  order.memory_batch = shape.MemoryBatch();
  order.longest_steps = shape.batch == 0 ? 0 : shape.steps;
  order.state_stride = shape.state_stride;
  order.saved_in_steps = shape.saved_in_steps;
  const int64_t time_stride = shape.time_major ? order.memory_batch : 1;
  order.batch_stride = shape.time_major ? 1 : shape.steps;
  order.step_stride = shape.backwards ? -time_stride : time_stride;
  order.origin = shape.backwards ? (shape.steps - 1) * time_stride : 0;
  order.mask = mask;
  if (order.longest_steps == 0 || RowOrderStorage(shape, mask) == 0) {
    return order;
  }

  int64_t* next = storage;
  const auto take = [&next](int64_t count) {
    return std::exchange(next, next + count);
  };
  // In the order of WithNumbers.
  int64_t* const batch_rows = take(shape.batch);
  int64_t* const active_steps = take(shape.batch);
  int64_t* const first_rows = take(shape.batch);
  int64_t* const unused_steps = take(shape.batch);
  int64_t* const rows_before = take(shape.steps + 2);
  int64_t* const states =
      pieces.rows == nullptr ? nullptr : take(2 * shape.batch);
  int64_t* const shape_rows = take(shape.batch);
  int64_t* const leading = take(shape.batch);
  // By row of the shape, needed only until the rows are sorted.
  int64_t* const counts = first_rows;
  bool has_padding = pieces.rows != nullptr;
  for (int64_t row = 0; row < shape.batch; ++row) {
    const StepInterval active = FindActiveSteps(shape, mask, row);
    leading[row] = active.begin;
    counts[row] = active.end - active.begin;
    has_padding |= counts[row] < shape.steps;
  }
  if (!has_padding) return order;

  internal::SortRows(shape, counts, shape_rows, active_steps, rows_before);
  internal::SumActiveRows(shape, active_steps, rows_before);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t row = shape_rows[b];
    first_rows[b] = shape.Row(leading[row], row);
    batch_rows[b] = row;
    unused_steps[b] = shape.steps - shape.Length(row);
    if (pieces.rows == nullptr) {
      order.most_unused_steps =
          std::max(order.most_unused_steps, unused_steps[b]);
      continue;
    }
    // Neighbours of one row are in the order of time.
    const auto ends = [&](int64_t neighbour) {
      return neighbour < 0 || neighbour == shape.batch ||
             pieces.rows[neighbour] != pieces.rows[row];
    };
    const bool earliest = ends(row - 1);
    const bool latest = ends(row + 1);
    batch_rows[b] = pieces.rows[row];
    unused_steps[b] = latest ? unused_steps[b] - pieces.begins[row] : 0;
    order.most_unused_steps =
        std::max(order.most_unused_steps, unused_steps[b]);
    const int64_t state = batch_rows[b] * shape.state_stride;
    states[b] = (shape.backwards ? latest : earliest) ? state : -1;
    states[shape.batch + b] =
        (shape.backwards ? earliest : latest) ? state : -1;
  }
  order.first_states = states;
  order = order.WithNumbers(storage);
  order.longest_steps = active_steps[0];
  order.shape_rows = shape_rows;
  if (mask != nullptr) order.leading = leading;
  return order;
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_ROW_ORDER_H_
