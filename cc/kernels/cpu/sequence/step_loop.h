// Owns how the steps of a sequence are spread over threads.
//
// A step has one or more stages (a product and its epilogue); each stage needs
// all of the stage before it, but only for its own rows of the batch. So there
// are two ways to split:
//
// - over rows: each worker does all steps for some rows, and nobody waits;
// - over units: each worker does some panels of every stage for all rows, so
//   its slice of the weights stays in its cache, and all meet after each stage.
//
// In the second way too, a worker waits only for work that another has taken
// and is doing: what nobody has taken, it takes itself. So a helper that the
// pool never starts costs nothing but its share of the work.

#ifndef BLOCKRNN_KERNELS_CPU_SEQUENCE_STEP_LOOP_H_
#define BLOCKRNN_KERNELS_CPU_SEQUENCE_STEP_LOOP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/packed_weights.h"
#include "cc/kernels/cpu/threads/parallel.h"

namespace blockrnn::cpu {

// What a loop does, for the choice of how to split it.
struct StepLoop {
  int64_t steps = 0;
  int stages = 1;
  int64_t rows = 0;          // of the batch
  int64_t panels = 0;        // of the stage that multiplies most
  double multiplies = 0;     // of one step, all rows
  double input_weights = 0;  // that x would bring into a step
};

enum class StepSplit { kNone, kRows, kUnits };

// The choice, in one place. Measured; see docs/adr/0009-threads.md.
inline StepSplit ChooseSplit(const StepLoop& loop, int num_threads) {
  if (num_threads <= 1) return StepSplit::kNone;
  const double whole = loop.multiplies * static_cast<double>(loop.steps);
  // Below, waking a helper costs more than it spares.
  const bool worth_a_helper = whole > 1e6;
  // Rows for every worker to fill tiles with: no waiting, weights shared.
  if (loop.rows >= 12 * num_threads && worth_a_helper) return StepSplit::kRows;
  // A meeting takes about half a microsecond: 25,000 multiply-adds at full
  // speed, fewer where the weights come from far away. With rows enough for a
  // tile or so each, it pays only where the weights are large.
  const double least = loop.rows >= 4 * num_threads ? 2e6 : 60e3;
  if (loop.panels >= num_threads && loop.multiplies / loop.stages > least) {
    return StepSplit::kUnits;
  }
  if (loop.rows >= 4 * num_threads && worth_a_helper) return StepSplit::kRows;
  return StepSplit::kNone;
}

// Workers that go through the stages together. Lives on the heap and is
// counted: a helper may start when all is over.
class StageTeam {
 public:
  // Does piece `piece` of stage `stage`; false if nobody wants it any more.
  using Work = bool (*)(const void* body, int64_t stage, int piece);

  static constexpr int kMostPieces = 64;

  StageTeam(int64_t stages, int pieces, Work work, const void* body)
      : stages_(stages),
        pieces_(pieces),
        work_(work),
        body_(body),
        references_(pieces) {}

  // Goes through the stages that are left; own pieces first.
  void Run(int home) {
    joined_[home].store(true, std::memory_order_relaxed);
    for (int64_t stage = done_.load(std::memory_order_acquire) / pieces_;
         stage < stages_; ++stage) {
      const int64_t before = stage * pieces_;
      for (int spins = 0; done_.load(std::memory_order_acquire) < before;) {
        PauseOrYield(&spins);
      }
      TryPiece(stage, home);
      TakeWhatIsLeft(stage, home);
    }
  }

  // Waits for pieces of the last stage that others are doing.
  void Join() const {
    for (int spins = 0;
         done_.load(std::memory_order_acquire) < stages_ * pieces_;) {
      PauseOrYield(&spins);
    }
  }

  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  static void Help(void* team) {
    auto* self = static_cast<StageTeam*>(team);
    self->Run(self->next_home_.fetch_add(1, std::memory_order_relaxed));
    self->Unref();
  }

 private:
  // Looks at which a worker that has joined is given up as held up, and its
  // piece taken from it.
  static constexpr int kPatience = 2000;

  static void PauseOrYield(int* spins) {
    if (++*spins > 10000) {
      std::this_thread::yield();
    } else {
      Pause();
    }
  }

  // Does the piece if nobody has taken it for this stage yet.
  void TryPiece(int64_t stage, int piece) {
    int64_t expected = stage;
    if (next_stage_[piece].value.load(std::memory_order_relaxed) == stage &&
        next_stage_[piece].value.compare_exchange_strong(
            expected, stage + 1, std::memory_order_acq_rel)) {
      if (!work_(body_, stage, piece)) {
        over_.store(true, std::memory_order_relaxed);
      }
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  void TakeWhatIsLeft(int64_t stage, int home) {
    for (int k = 1; k < pieces_; ++k) {
      const int piece = (home + k) % pieces_;
      // Its own worker is probably about to take it, and has it in its cache.
      for (int spins = 0;
           spins < kPatience && !over_.load(std::memory_order_relaxed) &&
           joined_[piece].load(std::memory_order_relaxed) &&
           next_stage_[piece].value.load(std::memory_order_relaxed) == stage;) {
        PauseOrYield(&spins);
      }
      TryPiece(stage, piece);
    }
  }

  struct alignas(64) StageCounter {
    std::atomic<int64_t> value{0};
  };

  const int64_t stages_;
  const int pieces_;
  const Work work_;
  const void* const body_;
  std::atomic<int> references_;
  std::atomic<int> next_home_{1};
  std::atomic<bool> over_{false};  // what is left is nothing but counting
  std::atomic<bool> joined_[kMostPieces] = {};
  StageCounter next_stage_[kMostPieces];
  alignas(64) std::atomic<int64_t> done_{0};
};

// Part `piece` of `pieces` of something that is counted: panels, rows.
struct Share {
  int piece = 0;
  int pieces = 1;

  Range Of(int64_t count) const {
    return {count * piece / pieces, count * (piece + 1) / pieces};
  }
};

// Rows of a step that are done before somebody asks whether the call has been
// cancelled: all of them, unless they take longer than some 20 ms.
inline int64_t RowsBetweenLooks(const StepLoop& loop) {
  constexpr double kMultiplies = 1e9;
  constexpr int64_t kFewest = 48;  // enough that reading the weights is cheap
  if (loop.multiplies <= kMultiplies) return std::max(loop.rows, kFewest);
  return std::max(
      static_cast<int64_t>(loop.rows * (kMultiplies / loop.multiplies)),
      kFewest);
}

// Calls body(step, stage, share, rows) so that every stage of every step is
// done once for all panels and rows, after the stages before it. The rows are
// rows_of(share of them).
template <class RowsOf, class Body>
Status RunSteps(const HostInterface& host, const StepLoop& loop,
                StepSplit split, const RowsOf& rows_of, const Body& body) {
  Cancellation cancellation(host);
  if (split == StepSplit::kUnits) {
    const int pieces = static_cast<int>(std::min<int64_t>(
        {host.num_threads, loop.panels, StageTeam::kMostPieces}));
    const Range rows = rows_of(Share());
    const auto work = [&](int64_t stage, int piece) {
      if (cancellation.Seen()) return false;
      body(stage / loop.stages, static_cast<int>(stage % loop.stages),
           Share{piece, pieces}, rows);
      return true;
    };
    const auto call = [](const void* f, int64_t stage, int piece) {
      return (*static_cast<const decltype(work)*>(f))(stage, piece);
    };
    auto* team = new (std::nothrow)
        StageTeam(loop.steps * loop.stages, pieces, call, &work);
    if (team != nullptr) {
      for (int helper = 1; helper < pieces; ++helper) {
        host.schedule(host.context, &StageTeam::Help, team);
      }
      team->Run(0);
      team->Join();
      team->Unref();
      return cancellation.status();
    }
    split = StepSplit::kNone;
  }
  const int64_t pieces =
      split == StepSplit::kRows
          ? std::clamp<int64_t>(host.num_threads, 1,
                                std::max<int64_t>(loop.rows, 1))
          : 1;
  const int64_t rows_at_once = RowsBetweenLooks(loop);
  ParallelFor(host, static_cast<int>(pieces), pieces, [&](int, int64_t piece) {
    const Range rows =
        rows_of(Share{static_cast<int>(piece), static_cast<int>(pieces)});
    for (int64_t n = 0; n < loop.steps * loop.stages; ++n) {
      for (Range part = rows; part.begin < rows.end; part.begin = part.end) {
        if (cancellation.Seen()) return;
        part.end = std::min(part.begin + rows_at_once, rows.end);
        body(n / loop.stages, static_cast<int>(n % loop.stages), Share(), part);
      }
    }
  });
  return cancellation.status();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_SEQUENCE_STEP_LOOP_H_
