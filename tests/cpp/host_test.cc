// Tests that a result does not depend on threads, on when and whether they
// start, or on the alignment of tensors; and that a call ends cleanly when
// memory runs out or the step is cancelled.

#include <vector>

#include "tests/cpp/heap.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"

namespace blockrnn::test {
namespace {

// A small shape, whose work the engine does not split, and shapes where it
// does: few rows and many, in GEMMs and (33,000 elements) in pointwise passes.
const std::vector<Dims> kShapes = {
    {3, 5, 7}, {4, 200, 260}, {17, 90, 190}, {70, 33, 110}, {300, 3, 110},
};
constexpr int kThreads[] = {2, 3, 8};

const std::vector<Dims>& SplitShapes(const Op& op) {
  return op.sequence ? SharedSequences() : kShapes;
}

class Hosts : public OpTest {};
INSTANTIATE_TEST_SUITE_P(EveryOp, Hosts,
                         ::testing::ValuesIn(OpsAndTypes(&AnyOp)),
                         OpAndTypeName);

TEST_P(Hosts, SameBits) {
  int counter = 0;
  int closures = 0;
  for (int variant = 0; variant < 2; ++variant) {
    for (const Dims& dims : SplitShapes(op())) {
      Case c = MakeCase(dims, variant);
      const Outcome alone = ExpectStatus(cpu::Status::kOk, c);
      c.offset = 1;
      ExpectSameBits(c, alone);
      ++counter;
      for (const int threads : kThreads) {
        ++counter;
        for (int n = 0; n < kNumPools; ++n) {
          // In the short form the pools alternate.
          if (!FullLength() && n != counter % kNumPools) continue;
          c.offset = n % 2;
          c.host.num_threads = threads;
          c.host.pool = kPools[n];
          closures += ExpectSameBits(c, alone).closures;
        }
      }
    }
  }
  EXPECT_GT(closures, 0) << "no shape was large enough for a thread";
}

TEST_P(Hosts, OutOfMemory) {
  for (int variant = 0; variant < op().variants; ++variant) {
    for (const Dims& dims : TwoShapes(op())) {
      // In the short form the larger one has every option in some variants
      // only.
      if (!FullLength() && dims.batch > 3 && variant % 6 > 1) continue;
      ExpectOutOfMemory(MakeCase(dims, variant));
    }
  }
}

TEST_P(Hosts, Cancelled) {
  for (const Dims& dims : TwoShapes(op())) {
    for (int cancel_at = 0; cancel_at < 3; ++cancel_at) {
      Case c = MakeCase(dims, 1);
      c.host.num_threads = 3;
      c.host.cancel_at = cancel_at;
      const Outcome outcome = RunCase(c);
      EXPECT_EQ(outcome.problem, "") << Describe(c);
      if (outcome.status == cpu::Status::kOk) {
        EXPECT_EQ(Compare(c, outcome), "") << Describe(c);
      } else {
        EXPECT_EQ(outcome.status, cpu::Status::kCancelled) << Describe(c);
        EXPECT_GT(outcome.polls, cancel_at) << Describe(c);
      }
    }
  }
}

// The same bits when every allocation other than the host's scratch fails.
TEST_P(Hosts, DryHeap) {
  if (!HeapCanRunDry()) GTEST_SKIP() << "the sanitizer has its own heap";
  int variant = 0;
  for (const Dims& dims : SplitShapes(op())) {
    Case c = MakeCase(dims, variant++ % 2);
    c.host.num_threads = 3;
    const Outcome want = RunCase(c);
    c.heap_is_dry = true;
    ExpectSameBits(c, want);
  }
}

}  // namespace
}  // namespace blockrnn::test
