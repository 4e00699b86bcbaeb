// Tests the loop over steps alone: each stage of each step runs once, for all
// panels and rows, after the previous stages, whichever workers start and when;
// and the loop ends soon after a cancellation.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/kernels/cpu/sequence/sequence_rows.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "tests/cpp/op_tests.h"
#include "tests/cpp/sequence.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

using cpu::Range;
using cpu::Share;
using cpu::StepLoop;
using cpu::StepSplit;

// Records what a loop did. A cell is a panel of a row. A stage writes its
// number to its cells, and before that reads the number of the previous stage
// in all cells of its rows. No atomics: where the loop does not order two
// accesses, this is a race, which ThreadSanitizer sees.
class Record {
 public:
  explicit Record(const StepLoop& loop)
      : loop_(loop),
        cells_{std::vector<int64_t>(loop.rows * loop.panels, -1),
               std::vector<int64_t>(loop.rows * loop.panels, -1)},
        times_(loop.steps * loop.stages * loop.rows * loop.panels) {}

  void Do(int64_t step, int stage, Share share, Range rows) {
    calls_.fetch_add(1);
    if (step < 0 || step >= loop_.steps || stage < 0 || stage >= loop_.stages ||
        rows.begin < 0 || rows.end > loop_.rows) {
      outside_.store(true);
      return;
    }
    const int64_t number = step * loop_.stages + stage;
    // The other half was written by the previous stage and is not written again
    // before all of this one is done.
    const std::vector<int64_t>& before = cells_[(number + 1) % 2];
    std::vector<int64_t>& mine = cells_[number % 2];
    const Range panels = share.RangeOf(loop_.panels);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t panel = 0; panel < loop_.panels; ++panel) {
        if (before[row * loop_.panels + panel] != number - 1) {
          early_.store(true);
        }
      }
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        mine[row * loop_.panels + panel] = number;
        ++times_[(number * loop_.rows + row) * loop_.panels + panel];
      }
    }
  }

  int64_t calls() const { return calls_.load(); }

  // Empty when all was done once and in order.
  std::string Problems() const {
    std::string problems = OrderProblems();
    if (std::any_of(times_.begin(), times_.end(),
                    [](int times) { return times == 0; })) {
      problems += "something was not done; ";
    }
    return problems;
  }
  // The same, where a loop may stop before its end.
  std::string OrderProblems() const {
    std::string problems;
    if (outside_.load()) problems += "a step that does not exist was done; ";
    if (early_.load()) problems += "a stage began before the one before it; ";
    if (std::any_of(times_.begin(), times_.end(),
                    [](int times) { return times > 1; })) {
      problems += "something was done twice; ";
    }
    return problems;
  }

 private:
  const StepLoop loop_;
  std::vector<int64_t> cells_[2];  // by stage, alternating
  std::vector<int> times_;         // by stage, row and panel
  std::atomic<int64_t> calls_{0};
  std::atomic<bool> outside_{false};
  std::atomic<bool> early_{false};
};

constexpr StepSplit kSplits[] = {StepSplit::kNone, StepSplit::kRows,
                                 StepSplit::kUnits};

std::string Describe(const StepLoop& loop, StepSplit split,
                     const HostOptions& options) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  return "steps=" + number(loop.steps) + " stages=" + number(loop.stages) +
         " rows=" + number(loop.rows) + " panels=" + number(loop.panels) +
         " split=" + number(static_cast<int>(split)) +
         " threads=" + number(options.num_threads) +
         " pool=" + number(static_cast<int>(options.pool)) +
         " cancel_at=" + number(options.cancel_at);
}

struct Ran {
  cpu::Status status;
  int64_t calls;
  int polls;
};

// Runs a loop; `held_up` makes some pieces take long. The loop's data are freed
// before the late closures run.
Ran RunLoop(const StepLoop& loop, StepSplit split, const HostOptions& options,
            bool held_up) {
  TestHost host(options);
  auto record = std::make_unique<Record>(loop);
  Ran ran;
  {
    const cpu::Executor executor(host.host());
    ran.status = cpu::RunSteps(
        executor, loop, split,
        [&](Share share) { return share.RangeOf(loop.rows); },
        [&](int64_t step, int stage, Share share, Range rows) {
          if (held_up && (3 * step + stage + share.piece) % 7 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          }
          record->Do(step, stage, share, rows);
        });
  }
  ran.calls = record->calls();
  EXPECT_EQ(ran.status == cpu::Status::kOk ? record->Problems()
                                           : record->OrderProblems(),
            "");
  record.reset();
  host.FreeScratch();
  host.FinishClosures();
  EXPECT_EQ(host.Problems(), "");
  ran.polls = host.polls();
  return ran;
}

StepLoop Loop(int64_t steps, int stages, int64_t rows, int64_t panels) {
  StepLoop loop;
  loop.steps = steps;
  loop.stages = stages;
  loop.rows = rows;
  loop.panels = panels;
  return loop;
}

// Nothing to do; one of each; fewer panels or rows than threads; more.
std::vector<StepLoop> Loops() {
  return {Loop(0, 1, 3, 4),  Loop(1, 1, 1, 1),  Loop(5, 1, 0, 3),
          Loop(9, 2, 2, 3),  Loop(40, 1, 5, 9), Loop(17, 3, 11, 130),
          Loop(3, 2, 140, 2)};
}

void ExpectWhole(const StepLoop& loop, StepSplit split,
                 const HostOptions& options, bool held_up) {
  SCOPED_TRACE(Describe(loop, split, options));
  const Ran ran = RunLoop(loop, split, options, held_up);
  EXPECT_EQ(ran.status, cpu::Status::kOk);
}

// With more threads than StagedSection::kMaxPieces, too, and than the pool has.
TEST(StepLoop, OnceAndInOrder) {
  for (const StepLoop& loop : Loops()) {
    for (const StepSplit split : kSplits) {
      for (const int threads : {1, 2, 3, 8, 64, 65, 100}) {
        for (const Pool pool : kPools) {
          HostOptions options;
          options.num_threads = threads;
          options.pool = pool;
          ExpectWhole(loop, split, options, false);
        }
      }
    }
  }
}

// Workers that are held up in the middle of a piece, after others have stopped
// waiting and taken their remaining pieces.
TEST(StepLoop, HeldUpWorkers) {
  for (const StepSplit split : kSplits) {
    for (const int threads : {2, 3, 8}) {
      for (const Pool pool : kPools) {
        HostOptions options;
        options.num_threads = threads;
        options.pool = pool;
        ExpectWhole(Loop(30, 2, 8, 8), split, options, true);
      }
    }
  }
}

// Short loops one after another, as blocks of a sequence are: the workers of
// one still spin when the next begins.
TEST(StepLoop, LoopAfterLoop) {
  const int rounds = FullLength() ? 3000 : 300;
  for (int round = 0; round < rounds; ++round) {
    HostOptions options;
    options.num_threads = 2 + round % 7;
    ExpectWhole(Loop(1 + round % 5, 1 + round % 2, 9, 9),
                round % 3 == 0 ? StepSplit::kRows : StepSplit::kUnits, options,
                false);
  }
}

// No worker starts a step after the cancellation, which is checked before each
// step.
TEST(StepLoop, StopsWhenCancelled) {
  const StepLoop loop = Loop(50, 2, 9, 9);
  for (const StepSplit split : kSplits) {
    for (const int threads : {1, 2, 3, 8}) {
      for (const Pool pool : kPools) {
        for (const int cancel_at : {0, 1, 7, 49}) {
          HostOptions options;
          options.num_threads = threads;
          options.pool = pool;
          options.cancel_at = cancel_at;
          SCOPED_TRACE(Describe(loop, split, options));
          const Ran ran = RunLoop(loop, split, options, false);
          EXPECT_EQ(ran.status, cpu::Status::kCancelled);
          // Each check that reports no cancellation permits one step.
          EXPECT_LE(ran.calls, int64_t{cancel_at} * loop.stages);
        }
      }
    }
  }
}

// A long step is abandoned before its end.
TEST(StepLoop, ChecksWithinALargeStep) {
  StepLoop loop = Loop(1, 2, 4800, 2);
  loop.macs = 100e9;
  for (const StepSplit split : kSplits) {
    for (const int threads : {1, 3}) {
      HostOptions options;
      options.num_threads = threads;
      options.cancel_at = 50;
      SCOPED_TRACE(Describe(loop, split, options));
      const Ran ran = RunLoop(loop, split, options, false);
      EXPECT_EQ(ran.status, cpu::Status::kCancelled);
      EXPECT_LE(ran.calls, options.cancel_at);
    }
  }
}

// A loop whose last step is over is not cancelled.
TEST(StepLoop, NotCancelledAfterTheEnd) {
  const StepLoop loop = Loop(6, 2, 9, 9);
  for (const StepSplit split : kSplits) {
    for (const int threads : {1, 3}) {
      HostOptions options;
      options.num_threads = threads;
      options.cancel_at = 1 << 20;
      SCOPED_TRACE(Describe(loop, split, options));
      const Ran whole = RunLoop(loop, split, options, false);
      options.cancel_at = whole.polls;
      const Ran ran = RunLoop(loop, split, options, false);
      EXPECT_EQ(ran.status, cpu::Status::kOk);
    }
  }
}

// Waking a worker takes longer than a step of some units, but not longer than
// many steps or a step of many units.
TEST(StepLoop, AFewStepsOfOneRowWakeNoWorker) {
  const auto split = [](int64_t steps, double macs, bool awake = false) {
    StepLoop loop = Loop(steps, 1, 1, 8);
    loop.macs = macs;
    return cpu::ChooseSplit(loop, 2, awake);
  };
  EXPECT_EQ(split(1, 4 * 128 * 128), StepSplit::kNone);
  EXPECT_EQ(split(100, 4 * 128 * 128), StepSplit::kUnits);
  EXPECT_EQ(split(1, 4 * 256 * 256), StepSplit::kNone);
  EXPECT_EQ(split(1, 4 * 512 * 512), StepSplit::kUnits);
  EXPECT_EQ(split(1, 4 * 128 * 128, true), StepSplit::kNone);
  EXPECT_EQ(split(1, 4 * 256 * 256, true), StepSplit::kUnits);
}

// As many workers share a single step as it is worth, and more of those that
// need not be woken. Each has a panel at least.
TEST(StepLoop, ASingleStepIsSharedByItsWork) {
  StepLoop loop = Loop(1, 1, 1, 32);
  loop.macs = 4 * 512 * 512;
  loop.input_weights = loop.macs;
  EXPECT_EQ(loop.SingleStepMacs(), 5 * loop.macs);
  EXPECT_EQ(cpu::PiecesWorth(loop, false), 6);
  EXPECT_EQ(cpu::PiecesWorth(loop, true), 14);
  loop.steps = 2;
  EXPECT_GT(cpu::PiecesWorth(loop, false), 1 << 20);
  loop.steps = 1;
  EXPECT_EQ(cpu::ChooseSplit(loop, 64, false), StepSplit::kUnits);
  loop.panels = 1;
  EXPECT_EQ(cpu::ChooseSplit(loop, 64, false), StepSplit::kNone);
  // Few panels for many rows.
  loop = Loop(1, 1, 1024, 4);
  loop.macs = 1024 * 4 * 64 * 64;
  EXPECT_EQ(cpu::ChooseSplit(loop, 2, false), StepSplit::kUnits);
  EXPECT_EQ(cpu::ChooseSplit(loop, 16, false), StepSplit::kRows);
}

// The shapes with which sequences are tested on many threads cover each split,
// within a block of steps and over several blocks. Counted for the simple RNN,
// whose stages are the smallest, with the widest panels.
TEST(StepLoop, SharedSequencesTakeEverySplit) {
  constexpr int64_t kWidestPanel = 64;
  for (const StepSplit split : kSplits) {
    for (const bool many_blocks : {false, true}) {
      if (split == StepSplit::kNone && many_blocks) continue;
      bool taken = false;
      for (const Dims& dims : SharedSequences()) {
        StepLoop loop = Loop(dims.steps, 1, dims.batch,
                             (dims.units + kWidestPanel - 1) / kWidestPanel);
        loop.macs = static_cast<double>(dims.batch * dims.units * dims.units);
        SequenceShape shape;
        shape.steps = dims.steps;
        shape.batch = dims.batch;
        shape.input = dims.input;
        shape.units = dims.units;
        TestHost host(HostOptions{});
        const cpu::Executor executor(host.host());
        cpu::Scratch scratch(executor);
        const cpu::SequenceRows rows(shape, nullptr, &scratch);
        taken |= (rows.BlockFrom(0).steps < dims.steps) == many_blocks &&
                 cpu::ChooseSplit(loop, 2, false) == split;
      }
      EXPECT_TRUE(taken) << "split " + std::to_string(static_cast<int>(split)) +
                                " is not taken by any shape";
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
  const cpu::SequenceRows narrow(shape, nullptr, &scratch);
  const cpu::SequenceRows wide(shape, nullptr, &scratch, kWidth);
  EXPECT_LT(wide.MaxRowsInBlock(), narrow.MaxRowsInBlock() / 8);
}

}  // namespace
}  // namespace blockrnn::test
