// Tests the order of rows, on random lengths and masks in every memory order.

#include "cc/core/row_order.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "cc/core/row_pieces.h"
#include "cc/core/sequence_args.h"
#include "gtest/gtest.h"

namespace blockrnn {
namespace {

constexpr int64_t kUntouched = 0xa5;

// A random call: its shape, lengths and mask, each of which may be missing.
class RandomCall {
 public:
  explicit RandomCall(uint32_t seed) : random_(seed) {
    shape_.steps = Between(0, 9);
    shape_.batch = Between(0, 12);
    shape_.time_major = OneOf(2);
    shape_.backwards = OneOf(2);
    shape_.saved_in_steps = OneOf(2);
    shape_.state_stride = Between(1, 3);
    if (OneOf(3)) FillLengths();
    if (OneOf(2)) FillMask();
    if (OneOf(3)) SplitAtRandom();
  }

  const SequenceShape& shape() const { return shape_; }
  const uint8_t* mask() const {
    return mask_.has_value() ? mask_->data() : nullptr;
  }
  bool Masked(int64_t step, int64_t row) const {
    return mask_.has_value() && (*mask_)[shape_.Row(step, row)] == 0;
  }

 private:
  int64_t Between(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool OneOf(int64_t n) { return Between(1, n) == 1; }

  void FillLengths() {
    const int64_t least = OneOf(4) ? shape_.steps : 0;
    // Never empty: data() of an empty vector may be nullptr.
    lengths_.resize(shape_.batch + 1);
    for (int64_t& length : lengths_) length = Between(least, shape_.steps);
    shape_.lengths = lengths_.data();
  }

  // Rows of noise, rows padded at either end, intact rows, and masked ones.
  void FillMask() {
    mask_.emplace(shape_.steps * shape_.batch + 1, 1);
    for (int64_t row = 0; row < shape_.batch; ++row) {
      const int64_t kind = Between(0, 3);
      const int64_t begin = Between(0, shape_.steps);
      const int64_t end = Between(begin, shape_.steps);
      for (int64_t t = 0; t < shape_.steps; ++t) {
        const bool counts = kind == 0   ? OneOf(2)
                            : kind == 1 ? t >= begin && t < end
                            : kind == 2 ? true
                                        : t >= begin && t < end && OneOf(2);
        (*mask_)[shape_.TimeRow(t, row)] = counts ? 1 : 0;
      }
    }
  }

  // Rows are then pieces.
  void SplitAtRandom() {
    std::vector<uint8_t> resets(shape_.steps * shape_.batch + 1);
    const int64_t seldom = Between(1, 8);
    for (uint8_t& reset : resets) reset = OneOf(seldom) ? 7 : 0;
    const int64_t pieces = CountPieces(shape_, resets.data());
    pieces_.resize(PieceStorage(pieces) + 1, kUntouched);
    shape_ = SplitRows(shape_, resets.data(), pieces, pieces_.data());
  }

  std::mt19937 random_;
  SequenceShape shape_;
  std::vector<int64_t> lengths_;
  std::vector<int64_t> pieces_;
  std::optional<std::vector<uint8_t>> mask_;
};

// The steps of a row from the first unmasked one to the last.
StepInterval ActiveSteps(const RandomCall& call, int64_t row) {
  StepInterval active = {0, call.shape().Length(row)};
  while (active.begin < active.end && call.Masked(active.end - 1, row)) {
    --active.end;
  }
  while (active.begin < active.end && call.Masked(active.begin, row)) {
    ++active.begin;
  }
  return active;
}

// Rows are sorted: longest first, and then as in the batch.
std::vector<int64_t> SortedRows(const RandomCall& call) {
  std::vector<int64_t> rows(call.shape().batch);
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    const StepInterval of_a = ActiveSteps(call, a), of_b = ActiveSteps(call, b);
    return of_a.end - of_a.begin > of_b.end - of_b.begin;
  });
  return rows;
}

// Active steps are where the shape has them in memory, counted from the row's
// first one.
void ExpectStepsOfRows(const RandomCall& call, const RowOrder& order) {
  const SequenceShape& shape = call.shape();
  const std::vector<int64_t> rows = SortedRows(call);
  bool shorter = false;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t row = rows[b];
    const StepInterval active = ActiveSteps(call, row);
    const int64_t steps = active.end - active.begin;
    const bool is_piece = shape.pieces.rows != nullptr;
    ASSERT_EQ(order.BatchRow(b), is_piece ? shape.pieces.rows[row] : row);
    if (!is_piece) {
      EXPECT_EQ(order.FirstStateRow(b), row * shape.state_stride);
      EXPECT_EQ(order.LastStateRow(b), row * shape.state_stride);
    }
    ASSERT_EQ(order.ActiveSteps(b), steps);
    for (int64_t step = 0; step < steps; ++step) {
      EXPECT_EQ(order.MemoryRow(step, b), shape.Row(active.begin + step, row));
      EXPECT_EQ(order.IsMasked(step, b), call.Masked(active.begin + step, row));
    }
    shorter |= steps < shape.steps || (is_piece && shape.steps > 0);
  }
  EXPECT_EQ(order.HasPadding(), shorter);
}

// Of the pieces of a row, the first one done begins with its initial state and
// the last one ends with its last; no others do.
void ExpectStatesOfPieces(const RandomCall& call, const RowOrder& order) {
  const SequenceShape& shape = call.shape();
  const RowPieces& pieces = shape.pieces;
  if (pieces.rows == nullptr) return;
  const std::vector<int64_t> rows = SortedRows(call);
  std::vector<int> first(pieces.batch, 0), last(pieces.batch, 0);
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t row = pieces.rows[rows[b]];
    bool earliest = true, latest = true;
    for (int64_t n = 0; n < shape.batch; ++n) {
      if (pieces.rows[n] != row) continue;
      earliest &= n >= rows[b];
      latest &= n <= rows[b];
    }
    const int64_t state = row * shape.state_stride;
    EXPECT_EQ(order.FirstStateRow(b),
              (shape.backwards ? latest : earliest) ? state : -1);
    EXPECT_EQ(order.LastStateRow(b),
              (shape.backwards ? earliest : latest) ? state : -1);
    first[row] += order.FirstStateRow(b) >= 0;
    last[row] += order.LastStateRow(b) >= 0;
  }
  EXPECT_EQ(first, std::vector<int>(pieces.batch, 1));
  EXPECT_EQ(last, std::vector<int>(pieces.batch, 1));
}

// The rows of a step are those with more active steps; what is saved in steps
// is counted in the order in which it is made.
void ExpectRowsOfSteps(const RandomCall& call, const RowOrder& order) {
  int64_t before = 0;
  for (int64_t step = 0; step <= order.steps; ++step) {
    int64_t active = 0;
    for (int64_t b = 0; b < order.batch; ++b) {
      active += order.ActiveSteps(b) > step;
    }
    ASSERT_EQ(order.ActiveRows(step), active);
    EXPECT_EQ(active > 0, step < order.longest_steps);
    EXPECT_EQ(order.RowsBefore(step), before);
    for (int64_t b = 0; b < active; ++b) {
      EXPECT_EQ(order.SavedRow(step, b), call.shape().saved_in_steps
                                             ? before + b
                                             : order.MemoryRow(step, b));
    }
    before += active;
  }
  EXPECT_EQ(order.TotalRows(), before);
}

// Leading padding, active steps and trailing padding are consecutive and add up
// to the row's length. Every row of a sequence array is active or padding,
// once.
void ExpectPadding(const RandomCall& call, const RowOrder& order) {
  const SequenceShape& shape = call.shape();
  std::vector<int> visits(shape.steps * shape.MemoryBatch(), 0);
  const std::vector<int64_t> rows = SortedRows(call);
  for (int64_t b = 0; b < order.batch; ++b) {
    const int64_t row = rows[b], steps = order.ActiveSteps(b);
    const StepInterval leading = order.LeadingPadding(b);
    const StepInterval trailing = order.TrailingPadding(shape, b);
    EXPECT_EQ(leading.end, 0);
    EXPECT_EQ(trailing.begin, steps);
    ASSERT_EQ(trailing.end - leading.begin, shape.Length(row));
    for (int64_t step = leading.begin; step < trailing.end; ++step) {
      EXPECT_EQ(order.MemoryRow(step, b), shape.Row(step - leading.begin, row));
      EXPECT_TRUE((step >= 0 && step < steps) || order.IsMasked(step, b));
    }
    for (int64_t step = 0; step < steps; ++step) {
      ++visits.at(order.MemoryRow(step, b));
    }
    order.ForEachPaddingRow(shape, b, [&](int64_t at) { ++visits.at(at); });
  }
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

TEST(RowOrder, OfRandomCalls) {
  for (uint32_t seed = 0; seed < 3000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const RandomCall call(seed);
    const int64_t size = RowOrderStorage(call.shape(), call.mask());
    std::vector<int64_t> storage(size + 1, kUntouched);
    const RowOrder order =
        MakeRowOrder(call.shape(), call.mask(), storage.data());
    ASSERT_EQ(storage[size], kUntouched) << "more storage than it asked for";
    ExpectStepsOfRows(call, order);
    ExpectStatesOfPieces(call, order);
    ExpectRowsOfSteps(call, order);
    ExpectPadding(call, order);
    if (!order.HasPadding()) {
      EXPECT_EQ(order.NumDeviceNumbers(), 0);
      continue;
    }
    const std::vector<int64_t> copy(
        order.batch_rows, order.batch_rows + order.NumDeviceNumbers());
    // As on a device.
    const RowOrder copied = order.WithNumbers(copy.data());
    ExpectStepsOfRows(call, copied);
    ExpectStatesOfPieces(call, copied);
    ExpectRowsOfSteps(call, copied);
  }
}

TEST(RowOrder, NeedsNoStorageWithoutLengthsAndMask) {
  SequenceShape shape;
  shape.steps = 5;
  shape.batch = 3;
  EXPECT_EQ(RowOrderStorage(shape, nullptr), 0);
  const RowOrder order = MakeRowOrder(shape, nullptr, nullptr);
  EXPECT_FALSE(order.HasPadding());
  EXPECT_EQ(order.TotalRows(), 15);
}

// Cases by hand of one row each: pieces as [begin, end).
TEST(RowPieces, LieBetweenResets) {
  const uint8_t kResets[] = {1, 0, 1, 1, 0, 1};
  struct {
    bool backwards;
    int64_t length;
    std::vector<StepInterval> want;
  } const kCases[] = {
      // An empty piece has the initial state.
      {false, 5, {{0, 0}, {0, 2}, {2, 3}, {3, 5}}},
      {true, 5, {{0, 2}, {2, 3}, {3, 5}}},
      {false, 2, {{0, 0}, {0, 2}}},
      {true, 2, {{0, 2}}},
      {false, 0, {{0, 0}}},
      {true, 0, {{0, 0}}},
  };
  for (const auto& c : kCases) {
    SequenceShape shape;
    shape.steps = 6;
    shape.batch = 1;
    shape.lengths = &c.length;
    shape.backwards = c.backwards;
    std::vector<StepInterval> got;
    ForEachPiece(shape, kResets, [&](int64_t, int64_t begin, int64_t end) {
      got.push_back({begin, end});
    });
    ASSERT_EQ(got.size(), c.want.size());
    for (std::size_t n = 0; n < got.size(); ++n) {
      EXPECT_EQ(got[n].begin, c.want[n].begin);
      EXPECT_EQ(got[n].end, c.want[n].end);
    }
  }
}

// One case by hand: T = 4, time-major, of the rows' masks 0111, 0110, 1111.
TEST(RowOrder, SortsThreeRowsOfWhichTwoArePadded) {
  SequenceShape shape;
  shape.steps = 4;
  shape.batch = 3;
  const std::vector<uint8_t> mask = {0, 0, 1,  //
                                     1, 1, 1,  //
                                     1, 1, 1,  //
                                     1, 0, 1};
  std::vector<int64_t> storage(RowOrderStorage(shape, mask.data()));
  const RowOrder order = MakeRowOrder(shape, mask.data(), storage.data());
  EXPECT_EQ(order.BatchRow(0), 2);
  EXPECT_EQ(order.BatchRow(1), 0);
  EXPECT_EQ(order.BatchRow(2), 1);
  EXPECT_EQ(order.longest_steps, 4);
  EXPECT_EQ(order.ActiveRows(1), 3);
  EXPECT_EQ(order.ActiveRows(2), 2);
  EXPECT_EQ(order.ActiveRows(3), 1);
  EXPECT_EQ(order.MemoryRow(0, 2), 1 * 3 + 1);
  EXPECT_EQ(order.LeadingPadding(2).begin, -1);
  EXPECT_EQ(order.TrailingPadding(shape, 2).begin, 2);
  EXPECT_EQ(order.TrailingPadding(shape, 2).end, 3);
}

}  // namespace
}  // namespace blockrnn
