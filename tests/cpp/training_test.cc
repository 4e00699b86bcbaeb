// Tests forward calls with the backward calls that read what they have saved.
// However that is, and whether it is computed again from states before spans of
// steps, all results have the same bits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/core/row_order.h"
#include "cc/core/row_pieces.h"
#include "tests/cpp/op.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

bool CanTrain(const Op& op, Type type) {
  return op.train != nullptr && type == Type::kFloat;
}

class Training : public OpTest {
 protected:
  void ExpectSameResults(const NamedArrays& got, const NamedArrays& want) {
    for (const auto& [name, array] : want) {
      // NaN is what was not written.
      if (IsSaved(name)) continue;
      ASSERT_EQ(array, array) << name;
      EXPECT_EQ(got.at(name), array) << name;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(EveryOp, Training,
                         ::testing::ValuesIn(OpsAndTypes(&CanTrain)),
                         OpAndTypeName);

// Several blocks of steps: with this width of x, of 480 rows.
constexpr int64_t kInput = 140;
constexpr int64_t kUnits = 5;

TEST_P(Training, SpansHaveTheSameBits) {
  const TrainingCall kCalls[] = {
      {{16, kInput, kUnits, 100}, kPlainOrder},
      {{1, kInput, kUnits, 965}, kPlainOrder},
      {{2, kInput, kUnits, 485}, kPlainOrder},
      {{20, kInput, kUnits, 60}, 1},   // all options
      {{20, kInput, kUnits, 60}, 2},   // masks, batch-major, backwards
      {{20, kInput, kUnits, 60}, 10},  // masked at the begin, a projection
      {{20, kInput, kUnits, 60}, 13},  // lengths, backwards, dropout
      {{20, kInput, kUnits, 60}, 14},  // lengths
      {{40, kInput, kUnits, 60}, 15},  // resets, masks, all options
      {{20, kInput, kUnits, 60}, 16},  // resets, backwards
      {{1, kInput, kUnits, 965}, 16},
      // Few rows in all, which stream their weights; several panels.
      {{6, 40, 37, 4}, kPlainOrder},
      {{8, 37, 65, 3}, kPlainOrder},
      {{12, 37, 65, 2}, kPlainOrder},
      {{16, 140, 37, 1}, kPlainOrder},
      {{6, 40, 37, 4}, 14},
      // No steps, or no rows: no spans.
      {{3, kInput, kUnits, 0}, 1},
      {{3, kInput, kUnits, 0}, 16},
      {{0, kInput, kUnits, 5}, 1},
      {{0, kInput, kUnits, 5}, 16},
  };
  for (TrainingCall call : kCalls) {
    SCOPED_TRACE(call.variant);
    const int64_t steps = call.dims.steps;
    const NamedArrays want = op().train(call);
    for (const int64_t span : {int64_t{1}, int64_t{7}, steps / 2, 3 * steps}) {
      SCOPED_TRACE(span);
      call.span_steps = span;
      ExpectSameResults(op().train(call), want);
    }
  }
}

// What is saved is stored in the order of steps. In particular cs_grad, the
// gradient of the output cs, stays in the order of memory.
TEST_P(Training, SavedInStepsHasTheSameBits) {
  for (int variant = 0; variant < kNumOrders; ++variant) {
    SCOPED_TRACE(variant);
    TrainingCall call = {{5, 3, 7, 6}, variant};
    const NamedArrays want = op().train(call);
    call.saved_in_steps = true;
    const NamedArrays got = op().train(call);
    ExpectSameResults(got, want);

    const SequenceCall sequence(Steps(call.dims, kOrders[variant], 1));
    struct {
      SequenceShape shape;
      const uint8_t* mask = nullptr;
      const uint8_t* resets = nullptr;
    } args;
    sequence.Fill(&args);
    std::vector<int64_t> pieces;
    SplitAtResets(&args, [&](int64_t count) {
      pieces.resize(count);
      return pieces.data();
    });
    args.shape.saved_in_steps = true;
    std::vector<int64_t> storage(RowOrderStorage(args.shape, args.mask));
    const RowOrder order = MakeRowOrder(args.shape, args.mask, storage.data());
    for (const auto& [name, array] : want) {
      if (!IsSaved(name)) continue;
      const auto width = static_cast<int64_t>(array.size()) /
                         (call.dims.steps * call.dims.batch);
      for (int64_t step = 0; step < order.longest_steps; ++step) {
        for (int64_t b = 0; b < order.ActiveRows(step); ++b) {
          const auto from = array.begin() + order.MemoryRow(step, b) * width;
          ASSERT_TRUE(std::equal(
              from, from + width,
              got.at(name).begin() + order.SavedRow(step, b) * width))
              << name << " of step " << step << ", row " << order.BatchRow(b);
        }
      }
    }
  }
}

}  // namespace
}  // namespace blockrnn::test
