// Implements parallel loops: over independent tasks, and over the steps of a
// sequence. The calling thread can finish all work alone, so a pool that is
// busy, small or late costs time and never a deadlock.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_FOR_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_FOR_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <new>

#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/worker_pool.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// A loop over tasks, which are taken one by one by whoever is free.
class ParallelSection final : public SharedWork {
 public:
  using Task = void (*)(const void* body, int worker, int64_t task);

  ParallelSection(int64_t num_tasks, Task task, const void* body)
      : num_tasks_(num_tasks), task_(task), body_(body) {}

  // Takes tasks until none is left.
  void Work() override {
    int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= num_tasks_) return;
    const int worker = next_worker_.fetch_add(1, std::memory_order_relaxed);
    int64_t done = 0;
    for (; task < num_tasks_;
         task = next_task_.fetch_add(1, std::memory_order_relaxed)) {
      task_(body_, worker, task);
      ++done;
    }
    // Release: whoever sees the count sees what the tasks wrote.
    tasks_done_.fetch_add(done, std::memory_order_release);
  }

  // Waits for tasks that workers have taken, which all are running now.
  void Join() const {
    SpinWait wait(/*spins_before_yield=*/4000);
    while (tasks_done_.load(std::memory_order_acquire) < num_tasks_) {
      wait.Once();
    }
  }

 private:
  const int64_t num_tasks_;
  const Task task_;
  const void* const body_;
  std::atomic<int> next_worker_{0};
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<int64_t> tasks_done_{0};
};

// How many workers ParallelFor uses at most; a task's `worker` is below this.
inline int NumWorkers(const Executor& executor, int64_t num_tasks) {
  return static_cast<int>(
      std::clamp<int64_t>(num_tasks, 1, executor.num_threads()));
}

// ParallelFor without the type of its body, so that it is compiled once.
inline void RunTasks(const Executor& executor, int workers, int64_t num_tasks,
                     ParallelSection::Task task, const void* body) {
  workers = std::min(workers, NumWorkers(executor, num_tasks));
  ParallelSection* section = nullptr;
  if (workers > 1 && executor.HasWorkers()) {
    section = new (std::nothrow) ParallelSection(num_tasks, task, body);
  }
  if (section == nullptr) {
    for (int64_t i = 0; i < num_tasks; ++i) task(body, 0, i);
    return;
  }
  executor.Schedule(section, workers - 1);
  section->Work();
  section->Join();
  section->Unref();
}

// Calls body(worker, task) once for every task in [0, num_tasks), on up to
// `workers` threads at a time, and returns when all are done. No two calls
// that run at the same time have the same worker.
template <class Body>
void ParallelFor(const Executor& executor, int workers, int64_t num_tasks,
                 const Body& body) {
  const auto call = [](const void* b, int worker, int64_t task) {
    (*static_cast<const Body*>(b))(worker, task);
  };
  RunTasks(executor, workers, num_tasks, call, &body);
}

// Calls body(begin, end) for pieces of [0, rows), in parallel where there is
// enough to do. `width` is the elements of work in one row.
template <class Body>
void ParallelForRows(const Executor& executor, int64_t rows, int64_t width,
                     const Body& body) {
  if (rows == 0 || width == 0) return;
  const int64_t rows_per_task =
      std::max<int64_t>(Tuning::kElementsPerTask / width, 1);
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  ParallelFor(executor, NumWorkers(executor, tasks), tasks,
              [&](int, int64_t task) {
                const int64_t begin = task * rows_per_task;
                body(begin, std::min(begin + rows_per_task, rows));
              });
}

// Calls body(row) for each of them.
template <class Body>
void ParallelForEachRow(const Executor& executor, int64_t rows, int64_t width,
                        const Body& body) {
  ParallelForRows(executor, rows, width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

// The loop over steps, split over threads.
//
// A step has one or more stages (a GEMM and its epilogue); each stage needs all
// of the previous stage, but only for its own rows of the batch. So there are
// two ways to split:
//
// - by rows: each worker does all steps for some rows, without any barrier;
// - by units: each worker does some panels of every stage for all rows, so its
//   slice of the weights stays in its cache, with a barrier after each stage.
//
// Even when split by units, a worker waits only for work that another has taken
// and is doing: what nobody has taken, it takes itself. So a worker that the
// pool never starts costs nothing but its share of the work.

// What a loop does, for the choice of how to split it.
struct StepLoop {
  int64_t steps = 0;
  int stages = 1;
  int64_t rows = 0;          // of the batch
  int64_t panels = 0;        // of the stage with most multiply-adds
  double macs = 0;           // multiply-adds of one step, all rows
  double input_weights = 0;  // weights of the input, were it fused
  int64_t most_pieces = std::numeric_limits<int64_t>::max();  // for workers

  // A single step with its input, each weight of which is read from a far
  // cache.
  double SingleStepMacs() const {
    const double input = static_cast<double>(rows) * input_weights;
    const double weights =
        macs / static_cast<double>(std::max<int64_t>(1, rows)) + input_weights;
    return macs + input + Tuning::kMacsPerFirstRead * weights;
  }
};

enum class StepSplit { kNone, kRows, kUnits };

// Of a loop of one step. With shares of the units each weight is read by one
// worker, with shares of the rows by all of them.
inline StepSplit ChooseSplitOfSingleStep(const StepLoop& loop, int num_threads,
                                         bool workers_awake) {
  if (num_threads <= 1 ||
      loop.SingleStepMacs() <= (workers_awake
                                    ? Tuning::kMacsPerAwakeLoopWorker
                                    : Tuning::kMacsToShareSingleStep)) {
    return StepSplit::kNone;
  }
  const bool many_rows = loop.rows >= Tuning::kRowsPerWorker * num_threads;
  // Shares differ by a panel.
  const int64_t even_panels = (many_rows ? 2 : 1) * num_threads;
  if (loop.panels < even_panels &&
      loop.rows >= Tuning::kRowsPerWorkerTile * num_threads) {
    return StepSplit::kRows;
  }
  return loop.panels > 1 ? StepSplit::kUnits : StepSplit::kNone;
}

// Pieces that a loop is worth: with a single step, which may be short, one for
// each worker that has enough to do.
inline int64_t PiecesWorth(const StepLoop& loop, bool workers_awake) {
  if (loop.steps != 1) return std::numeric_limits<int64_t>::max();
  const double macs_per_piece = workers_awake ? Tuning::kMacsPerAwakeLoopWorker
                                              : Tuning::kMacsPerLoopWorker;
  return 1 + static_cast<int64_t>(loop.SingleStepMacs() / macs_per_piece);
}

// Measured; see docs/adr/0009-threads.md.
inline StepSplit ChooseSplit(const StepLoop& loop, int num_threads,
                             bool workers_awake) {
  if (loop.steps == 1) {
    return ChooseSplitOfSingleStep(loop, num_threads, workers_awake);
  }
  const double macs = loop.macs * static_cast<double>(loop.steps);
  // Each weight is read from a far cache once.
  const double reads =
      loop.macs / static_cast<double>(std::max<int64_t>(1, loop.rows));
  const double macs_per_worker = workers_awake ? Tuning::kMacsPerAwakeLoopWorker
                                               : Tuning::kMacsPerLoopWorker;
  if (num_threads <= 1 ||
      macs + Tuning::kMacsPerFirstRead * reads <= macs_per_worker) {
    return StepSplit::kNone;
  }
  if (loop.rows >= Tuning::kRowsPerWorker * num_threads) {
    return StepSplit::kRows;
  }
  const bool tiles = loop.rows >= Tuning::kRowsPerWorkerTile * num_threads;
  const double macs_per_barrier =
      tiles ? Tuning::kMacsPerBarrierWithTiles : Tuning::kMacsPerBarrier;
  if (loop.panels >= num_threads &&
      loop.macs / loop.stages > macs_per_barrier) {
    return StepSplit::kUnits;
  }
  return tiles ? StepSplit::kRows : StepSplit::kNone;
}

// Stages that workers go through together, each split into pieces, with a
// barrier after each stage.
class StagedSection final : public SharedWork {
 public:
  // Returns false if the work is not wanted any more.
  using Piece = bool (*)(const void* body, int64_t stage, int piece);

  static constexpr int kMaxPieces = 64;

  StagedSection(int64_t stages, int pieces, Piece do_piece, const void* body)
      : stages_(stages), pieces_(pieces), do_piece_(do_piece), body_(body) {}

  // Goes through the stages that are left, the worker's own piece first.
  void Work() override {
    WorkAs(next_home_.fetch_add(1, std::memory_order_relaxed));
  }
  // The calling thread is always worker 0, so that its piece of one block's
  // stages is its piece of the next block's.
  void WorkAs(int home) {
    joined_[home].store(true, std::memory_order_relaxed);
    for (int64_t stage = done_.load(std::memory_order_acquire) / pieces_;
         stage < stages_; ++stage) {
      WaitFor(stage * pieces_);
      TryPiece(stage, home);
      TakeFreePieces(stage, home);
    }
  }

  // Waits for pieces of the last stage that workers are doing.
  void Join() const { WaitFor(stages_ * pieces_); }

 private:
  // Spins after which a worker that has joined is taken for preempted, and its
  // piece is taken from it.
  static constexpr int kPatience = 2000;

  void WaitFor(int64_t pieces_done) const {
    SpinWait wait;
    while (done_.load(std::memory_order_acquire) < pieces_done) wait.Once();
  }

  // Does the piece if nobody has taken it for this stage yet.
  void TryPiece(int64_t stage, int piece) {
    int64_t expected = stage;
    if (next_stage_[piece].value.load(std::memory_order_relaxed) == stage &&
        next_stage_[piece].value.compare_exchange_strong(
            expected, stage + 1, std::memory_order_acq_rel)) {
      if (!do_piece_(body_, stage, piece)) {
        over_.store(true, std::memory_order_relaxed);
      }
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  void TakeFreePieces(int64_t stage, int home) {
    for (int k = 1; k < pieces_; ++k) {
      const int piece = (home + k) % pieces_;
      // Its own worker is probably about to take it, and has it in its cache.
      SpinWait wait;
      while (
          wait.spins() < kPatience && !over_.load(std::memory_order_relaxed) &&
          joined_[piece].load(std::memory_order_relaxed) &&
          next_stage_[piece].value.load(std::memory_order_relaxed) == stage) {
        wait.Once();
      }
      TryPiece(stage, piece);
    }
  }

  struct alignas(64) StageCounter {
    std::atomic<int64_t> value{0};
  };

  const int64_t stages_;
  const int pieces_;
  const Piece do_piece_;
  const void* const body_;
  std::atomic<int> next_home_{1};
  std::atomic<bool> over_{false};  // what is left is only counted
  std::atomic<bool> joined_[kMaxPieces] = {};
  StageCounter next_stage_[kMaxPieces];
  alignas(64) std::atomic<int64_t> done_{0};
};

// Workers that may have rows of a step in common, each with a share of the
// units.
inline int MostStepWorkers(const Executor& executor) {
  return std::min(executor.num_threads(), StagedSection::kMaxPieces);
}

// Rows of a step that are done between two checks for cancellation: all of
// them, unless they take longer than some 20 ms.
inline int64_t RowsBetweenChecks(const StepLoop& loop) {
  constexpr double kMacs = 1e9;
  constexpr int64_t kFewest = 48;  // enough that reading the weights is cheap
  if (loop.macs <= kMacs) return std::max(loop.rows, kFewest);
  return std::max(static_cast<int64_t>(loop.rows * (kMacs / loop.macs)),
                  kFewest);
}

// Calls body(step, stage, share, rows) so that every stage of every step is
// done once for all panels and rows, after the previous stages. The rows are
// rows_of(share of them).
template <class RowsOf, class Body>
Status RunSteps(const Executor& executor, const StepLoop& loop, StepSplit split,
                const RowsOf& rows_of, const Body& body) {
  Cancellation cancellation(executor);
  if (split == StepSplit::kUnits && executor.HasWorkers()) {
    const auto pieces = static_cast<int>(
        std::min<int64_t>({executor.num_threads(), loop.panels,
                           loop.most_pieces, StagedSection::kMaxPieces}));
    const Range rows = rows_of(Share());
    const int64_t rows_at_once = RowsBetweenChecks(loop) * pieces;
    const auto piece_of_stage = [&](int64_t stage, int piece) {
      Range part = rows;
      do {
        if (cancellation.Seen()) return false;
        part.end = std::min(part.begin + rows_at_once, rows.end);
        body(stage / loop.stages, static_cast<int>(stage % loop.stages),
             Share{piece, pieces}, part);
        part.begin = part.end;
      } while (part.begin < rows.end);
      return true;
    };
    const auto call = [](const void* body_of_stage, int64_t stage, int piece) {
      using Work = decltype(piece_of_stage);
      return (*static_cast<const Work*>(body_of_stage))(stage, piece);
    };
    auto* const section = new (std::nothrow)
        StagedSection(loop.steps * loop.stages, pieces, call, &piece_of_stage);
    if (section != nullptr) {
      executor.Schedule(section, pieces - 1);
      section->WorkAs(0);
      section->Join();
      section->Unref();
      return cancellation.status();
    }
  }
  const int64_t pieces =
      split == StepSplit::kRows
          ? std::clamp<int64_t>(executor.num_threads(), 1,
                                std::max<int64_t>(loop.rows, 1))
          : 1;
  const int64_t rows_at_once = RowsBetweenChecks(loop);
  ParallelFor(
      executor, static_cast<int>(pieces), pieces, [&](int, int64_t piece) {
        const Range rows =
            rows_of(Share{static_cast<int>(piece), static_cast<int>(pieces)});
        for (int64_t n = 0; n < loop.steps * loop.stages; ++n) {
          for (Range part = rows; part.begin < rows.end;
               part.begin = part.end) {
            if (cancellation.Seen()) return;
            part.end = std::min(part.begin + rows_at_once, rows.end);
            body(n / loop.stages, static_cast<int>(n % loop.stages), Share(),
                 part);
          }
        }
      });
  return cancellation.status();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_FOR_H_
