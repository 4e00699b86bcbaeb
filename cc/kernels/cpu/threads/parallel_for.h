// Implements a parallel loop over tasks, which are taken one by one by whoever
// is free. The calling thread can finish every task alone, so a pool that is
// busy, small or late costs time and never a deadlock.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_FOR_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_FOR_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/worker_pool.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

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

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_FOR_H_
