// Tests SequenceRows: a row is active from its first unmasked step to its last,
// whatever its padding, and each of its steps has one place.

#include "cc/kernels/cpu/sequence/sequence_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

using cpu::SequenceRows;

// How often each row of [steps, batch, …] is visited.
struct Met {
  explicit Met(const Dims& d)
      : taking_part(d.steps * d.batch), unused(d.steps * d.batch) {}

  std::vector<int> taking_part;
  std::vector<int> unused;
};

Met Meet(const SequenceRows& rows, const Dims& d) {
  Met met(d);
  for (int64_t step = 0; step < rows.steps(); ++step) {
    for (int64_t b = 0; b < rows.ActiveRows(step); ++b) {
      ++met.taking_part[rows.MemoryRow(step, b)];
    }
  }
  for (int64_t b = 0; b < d.batch && rows.HasPadding(); ++b) {
    rows.ForEachPaddingRow(b, [&](int64_t row) { ++met.unused[row]; });
  }
  return met;
}

// The expected value: the steps of row b from its first unmasked one to its
// last.
Met Expected(const Steps& steps, const Dims& d) {
  Met met(d);
  for (int64_t b = 0; b < d.batch; ++b) {
    int64_t first = 0;
    int64_t end = d.steps;
    while (end > 0 && !steps.Counts(end - 1, b)) --end;
    while (first < end && !steps.Counts(first, b)) ++first;
    for (int64_t step = 0; step < d.steps; ++step) {
      const bool inside = step >= first && step < end;
      ++(inside ? met.taking_part : met.unused)[steps.At(step, b)];
    }
  }
  return met;
}

// The arguments that SequenceCall fills in.
struct Sequence {
  SequenceShape shape;
  const uint8_t* mask = nullptr;
};

TEST(SequenceRows, EveryStepHasItsPlace) {
  constexpr Dims kDims[] = {
      {1, 1, 1, 1}, {5, 1, 1, 9}, {13, 1, 1, 6}, {3, 1, 1, 1}};
  for (int order = 0; order < kNumOrders; ++order) {
    for (const Dims& d : kDims) {
      const Steps steps(d, kOrders[order], 1);
      const SequenceCall call(steps);
      Sequence sequence;
      call.Fill(&sequence);
      TestHost host(HostOptions{});
      const cpu::Executor executor(host.host());
      cpu::Scratch scratch(executor);
      const SequenceRows rows(sequence.shape, sequence.mask, &scratch);
      const Met got = Meet(rows, d);
      const Met want = Expected(steps, d);
      SCOPED_TRACE(::testing::Message() << "order " << order << ", " << d.batch
                                        << " rows, " << d.steps << " steps");
      EXPECT_EQ(got.taking_part, want.taking_part);
      EXPECT_EQ(got.unused, want.unused);
    }
  }
}

// The scratch of a block also has rows as wide as the state.
TEST(SequenceRows, WideStatesHaveSmallBlocks) {
  SequenceShape shape;
  shape.steps = 512;
  shape.batch = 16;
  shape.input = shape.units = 8;
  TestHost host(HostOptions{});
  const cpu::Executor executor(host.host());
  cpu::Scratch scratch(executor);
  constexpr int64_t kWidth = 4096;
  const SequenceRows narrow(shape, nullptr, &scratch);
  const SequenceRows wide(shape, nullptr, &scratch, kWidth);
  EXPECT_LT(wide.MaxRowsInBlock(), narrow.MaxRowsInBlock() / 8);
}

}  // namespace
}  // namespace blockrnn::test
