// Tests properties of the order of rows, on random lengths and masks in every
// memory order.

#include "cc/core/row_order.h"

#include <cstdint>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cc/core/sequence_args.h"
#include "gtest/gtest.h"

namespace blockrnn {
namespace {

constexpr uint8_t kUntouched = 0xa5;

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
  }

  const SequenceShape& shape() const { return shape_; }
  const uint8_t* mask() const {
    return mask_.has_value() ? mask_->data() : nullptr;
  }
  bool Masked(int64_t step, int64_t row) const {
    return mask_.has_value() && (*mask_)[shape_.Row(step, row)] == 0;
  }

  std::string Describe() const {
    std::ostringstream text;
    text << "T=" << shape_.steps << " B=" << shape_.batch
         << " time_major=" << shape_.time_major
         << " backwards=" << shape_.backwards
         << " saved_in_steps=" << shape_.saved_in_steps << " lengths:";
    for (const int64_t length : lengths_) text << ' ' << length;
    text << " mask:";
    for (int64_t row = 0; mask_.has_value() && row < shape_.batch; ++row) {
      text << ' ';
      for (int64_t t = 0; t < shape_.steps; ++t) {
        text << int{(*mask_)[shape_.TimeRow(t, row)]};
      }
    }
    return text.str();
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

  std::mt19937 random_;
  SequenceShape shape_;
  std::vector<int64_t> lengths_;
  std::optional<std::vector<uint8_t>> mask_;
};

// The order of a call, in storage of exactly the size that it needs.
class OrderOf {
 public:
  explicit OrderOf(const RandomCall& call)
      : size_(RowOrderStorage(call.shape(), call.mask())),
        storage_(size_ + 1, kUntouched) {
    order = MakeRowOrder(call.shape(), call.mask(), storage_.data());
  }

  bool StayedInside() const { return storage_[size_] == kUntouched; }

  RowOrder order;

 private:
  int64_t size_;
  std::vector<int64_t> storage_;
};

class RowOrderProperties : public testing::Test {
 protected:
  // check(call, order) for many calls.
  template <class Check>
  void ForEachCall(const Check& check) {
    for (uint32_t seed = 0; seed < 3000; ++seed) {
      const RandomCall call(seed);
      const OrderOf made(call);
      SCOPED_TRACE(call.Describe());
      ASSERT_TRUE(made.StayedInside());
      check(call, made.order);
      if (HasFailure()) return;
    }
  }
};

// Counts of visits to each row of a sequence array.
std::vector<int> NoVisits(const SequenceShape& shape) {
  return std::vector<int>(shape.steps * shape.batch, 0);
}

TEST_F(RowOrderProperties, RowsAreSortedLongestFirstAndThenAsInTheBatch) {
  ForEachCall([](const RandomCall& call, const RowOrder& order) {
    std::vector<int> visits(call.shape().batch, 0);
    for (int64_t b = 0; b < order.batch; ++b) {
      ++visits.at(order.BatchRow(b));
      EXPECT_EQ(order.StateRow(b),
                order.BatchRow(b) * call.shape().state_stride);
      if (b == 0) continue;
      EXPECT_GE(order.ActiveSteps(b - 1), order.ActiveSteps(b));
      if (order.ActiveSteps(b - 1) == order.ActiveSteps(b)) {
        EXPECT_LT(order.BatchRow(b - 1), order.BatchRow(b));
      }
    }
    EXPECT_EQ(visits, std::vector<int>(call.shape().batch, 1));
  });
}

// And there is padding where some row has fewer, and only there.
TEST_F(RowOrderProperties, ActiveStepsBeginAndEndWithStepsThatCount) {
  ForEachCall([](const RandomCall& call, const RowOrder& order) {
    const SequenceShape& shape = call.shape();
    bool shorter = false;
    for (int64_t row = 0; row < shape.batch; ++row) {
      const StepInterval active = FindActiveSteps(shape, call.mask(), row);
      ASSERT_LE(0, active.begin);
      ASSERT_LE(active.begin, active.end);
      ASSERT_LE(active.end, shape.Length(row));
      for (int64_t step = 0; step < shape.Length(row); ++step) {
        const bool inside = step >= active.begin && step < active.end;
        EXPECT_TRUE(inside || call.Masked(step, row));
      }
      shorter |= active.end - active.begin < shape.steps;
      if (active.begin == active.end) continue;
      EXPECT_FALSE(call.Masked(active.begin, row));
      EXPECT_FALSE(call.Masked(active.end - 1, row));
    }
    EXPECT_EQ(order.HasPadding(), shorter);
  });
}

TEST_F(RowOrderProperties, RowsOfAStepAreThoseWithMoreActiveSteps) {
  ForEachCall([](const RandomCall&, const RowOrder& order) {
    int64_t before = 0;
    for (int64_t step = 0; step <= order.steps; ++step) {
      int64_t active = 0;
      for (int64_t b = 0; b < order.batch; ++b) {
        active += order.ActiveSteps(b) > step;
      }
      EXPECT_EQ(order.ActiveRows(step), active);
      EXPECT_EQ(order.ActiveRows(step) > 0, step < order.longest_steps);
      EXPECT_EQ(order.RowsBefore(step), before);
      if (step > 0) {
        EXPECT_LE(order.ActiveRows(step), order.ActiveRows(step - 1));
      }
      before += active;
    }
    EXPECT_EQ(order.TotalRows(), before);
  });
}

// An active step is at the row of memory that the shape gives, counted from the
// row's first active step.
TEST_F(RowOrderProperties, MemoryRowsFollowTheShape) {
  ForEachCall([](const RandomCall& call, const RowOrder& order) {
    const SequenceShape& shape = call.shape();
    for (int64_t b = 0; b < order.batch; ++b) {
      const int64_t row = order.BatchRow(b);
      const StepInterval active = FindActiveSteps(shape, call.mask(), row);
      EXPECT_EQ(order.ActiveSteps(b), active.end - active.begin);
      for (int64_t step = 0; step < order.ActiveSteps(b); ++step) {
        EXPECT_EQ(order.MemoryRow(step, b),
                  shape.Row(active.begin + step, row));
        EXPECT_EQ(order.IsMasked(step, b),
                  call.Masked(active.begin + step, row));
      }
      for (int64_t t = 0; t < shape.steps; ++t) {
        EXPECT_EQ(order.TimeRow(t, b), shape.TimeRow(t, row));
      }
    }
  });
}

TEST_F(RowOrderProperties, EveryRowOfMemoryIsActiveOrPaddingOnce) {
  ForEachCall([](const RandomCall& call, const RowOrder& order) {
    std::vector<int> active = NoVisits(call.shape());
    for (int64_t step = 0; step < order.longest_steps; ++step) {
      for (int64_t b = 0; b < order.ActiveRows(step); ++b) {
        ++active.at(order.MemoryRow(step, b));
      }
    }
    std::vector<int> visits = active;
    for (int64_t b = 0; b < order.batch; ++b) {
      order.ForEachPaddingRow(call.shape(), b, [&](int64_t memory_row) {
        ++visits.at(memory_row);
      });
    }
    EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
    // Every unmasked step is active.
    for (int64_t row = 0; row < call.shape().batch; ++row) {
      for (int64_t step = 0; step < call.shape().Length(row); ++step) {
        if (call.Masked(step, row)) continue;
        EXPECT_EQ(active.at(call.shape().Row(step, row)), 1);
      }
    }
  });
}

// Leading padding, active steps and trailing padding are consecutive and add up
// to the row's length.
TEST_F(RowOrderProperties, PaddingAndActiveStepsPartitionTheLength) {
  ForEachCall([](const RandomCall& call, const RowOrder& order) {
    const SequenceShape& shape = call.shape();
    for (int64_t b = 0; b < order.batch; ++b) {
      const int64_t row = order.BatchRow(b);
      const StepInterval leading = order.LeadingPadding(b);
      const StepInterval trailing = order.TrailingPadding(shape, b);
      EXPECT_EQ(leading.end, 0);
      EXPECT_EQ(trailing.begin, order.ActiveSteps(b));
      EXPECT_EQ(trailing.end - leading.begin, shape.Length(row));
      for (int64_t step = leading.begin; step < trailing.end; ++step) {
        EXPECT_EQ(order.MemoryRow(step, b),
                  shape.Row(step - leading.begin, row));
        const bool is_active = step >= leading.end && step < trailing.begin;
        EXPECT_TRUE(is_active || order.IsMasked(step, b));
      }
    }
  });
}

TEST_F(RowOrderProperties, SavedRowsInStepsAreCountedInTheOrderTheyAreMade) {
  ForEachCall([](const RandomCall& call, const RowOrder& order) {
    int64_t next = 0;
    for (int64_t step = 0; step < order.longest_steps; ++step) {
      for (int64_t b = 0; b < order.ActiveRows(step); ++b) {
        EXPECT_EQ(order.SavedRow(step, b), call.shape().saved_in_steps
                                               ? next
                                               : order.MemoryRow(step, b));
        ++next;
      }
    }
    EXPECT_EQ(next, order.TotalRows());
  });
}

TEST_F(RowOrderProperties, ACopyOfTheNumbersIsTheSameOrder) {
  ForEachCall([](const RandomCall&, const RowOrder& order) {
    if (!order.HasPadding()) {
      EXPECT_EQ(order.NumDeviceNumbers(), 0);
      return;
    }
    const std::vector<int64_t> numbers(
        order.batch_rows, order.batch_rows + order.NumDeviceNumbers());
    const RowOrder copy = order.WithNumbers(numbers.data());
    EXPECT_EQ(copy.TotalRows(), order.TotalRows());
    for (int64_t step = 0; step <= order.steps; ++step) {
      ASSERT_EQ(copy.ActiveRows(step), order.ActiveRows(step));
      for (int64_t b = 0; b < order.ActiveRows(step); ++b) {
        EXPECT_EQ(copy.MemoryRow(step, b), order.MemoryRow(step, b));
        EXPECT_EQ(copy.SavedRow(step, b), order.SavedRow(step, b));
        EXPECT_EQ(copy.IsMasked(step, b), order.IsMasked(step, b));
      }
    }
    for (int64_t b = 0; b < order.batch; ++b) {
      EXPECT_EQ(copy.BatchRow(b), order.BatchRow(b));
      EXPECT_EQ(copy.ActiveSteps(b), order.ActiveSteps(b));
    }
  });
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
