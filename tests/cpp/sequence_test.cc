// Tests what only sequences do: splitting their steps over rows and over units,
// and stopping between steps.

#include "tests/cpp/sequence.h"

#include <cstdint>
#include <limits>
#include <string>

#include "tests/cpp/op_tests.h"

namespace blockrnn::test {
namespace {

// Stacks have other variants.
bool HasOrders(const Op& op, Type) {
  return op.sequence && op.variants == kNumOrders;
}
bool IsSequenceGradient(const Op& op, Type) {
  return op.sequence && std::string(op.name).find("Grad") != std::string::npos;
}

class Sequences : public OpTest {};
INSTANTIATE_TEST_SUITE_P(EveryOp, Sequences,
                         ::testing::ValuesIn(OpsAndTypes(&IsSequence)),
                         OpAndTypeName);

class SharedSteps : public OpTest {};
// Stacks have variants of their own.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SharedSteps);
INSTANTIATE_TEST_SUITE_P(EveryOp, SharedSteps,
                         ::testing::ValuesIn(OpsAndTypes(&HasOrders)),
                         OpAndTypeName);

class SequenceGradients : public OpTest {};
INSTANTIATE_TEST_SUITE_P(EveryOp, SequenceGradients,
                         ::testing::ValuesIn(OpsAndTypes(&IsSequenceGradient)),
                         OpAndTypeName);

// Shapes that are split over rows and over units, of which there are more than
// a panel has, with all options of a sequence: a worker must not overwrite, for
// the next step, what another worker still reads.
TEST_P(SharedSteps, AgreeWithTheReference) {
  // The reference is slow for the longest shape. In the short form the variants
  // alternate, so that each is with shapes of both splits.
  constexpr int64_t kMostSteps = 10;
  int counter = 0;
  for (const Dims& dims : SharedSequences()) {
    if (dims.steps > kMostSteps) continue;
    for (int variant = 0; variant < kNumOrders; ++variant) {
      const Order& order = kOrders[variant];
      if (!order.drops || order.mask == Mask::kNothing) continue;
      if (!FullLength() && ++counter % 3 != 0) continue;
      Case c = MakeCase(dims, variant);
      c.host.num_threads = 3;
      EXPECT_EQ(RunAndCompare(c), "");
      if (EnoughFailures()) return;
    }
  }
}

// A single step streams its weights, with few rows or more, or packs them just
// before they are used; with all orders, transposed weights and dropout.
TEST_P(Sequences, SingleSteps) {
  int counter = 0;
  for (const Dims& dims : {Dims{3, 20, 140, 1}, Dims{13, 20, 140, 1},
                           Dims{22, 20, 140, 1}, Dims{22, 0, 140, 1}}) {
    for (int variant = 0; variant < kNumOrders; ++variant) {
      if (!FullLength() && ++counter % 2 != 0) continue;
      Case c = MakeCase(dims, variant);
      c.host.num_threads = variant % 2 == 0 ? 1 : 3;
      EXPECT_EQ(RunAndCompare(c), "");
      if (EnoughFailures()) return;
    }
  }
}

// A call checks for cancellation before every step at least, and stops once it
// is cancelled.
TEST_P(Sequences, CancelledBetweenSteps) {
  // Not split, split over rows, split over units.
  for (const Dims& dims :
       {Dims{3, 5, 7, 30}, Dims{40, 2, 33, 30}, Dims{2, 2, 150, 4}}) {
    for (const int threads : {1, 3}) {
      Case c = MakeCase(dims);
      c.host.num_threads = threads;
      c.host.cancel_at = std::numeric_limits<int>::max();
      const Outcome whole = ExpectStatus(cpu::Status::kOk, c);
      EXPECT_GE(whole.polls, dims.steps) << Describe(c);
      for (const int cancel_at : {0, 1, whole.polls / 2, whole.polls - 1}) {
        c.host.cancel_at = cancel_at;
        ExpectStatus(cpu::Status::kCancelled, c);
      }
    }
  }
}

// The GEMMs of the weights' gradients check too, between their tasks.
TEST_P(SequenceGradients, CancelledBetweenGemms) {
  Case c = MakeCase({600, 64, 64, 1});
  c.host.cancel_at = std::numeric_limits<int>::max();
  const Outcome whole = RunCase(c);
  // More often than for the stages of a step.
  EXPECT_GE(whole.polls, 5) << Describe(c);
}

}  // namespace
}  // namespace blockrnn::test
