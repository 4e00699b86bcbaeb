// Owns how the engine uses its host's threads: tasks are taken one by one by
// whoever is there. The calling thread can finish every task alone, so a pool
// that is busy, small or late costs time and never a deadlock.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <thread>

#include "cc/kernels/cpu/engine.h"

namespace blockrnn::cpu {

// Between two looks at what another thread is about to write.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether the host has taken the call back. Workers ask before each task of a
// product and each stage of a step; what one of them has seen, all know.
class Cancellation {
 public:
  explicit Cancellation(const HostInterface& host) : host_(host) {}

  bool Seen() {
    if (host_.cancelled != nullptr && host_.cancelled(host_.context)) {
      seen_.store(true, std::memory_order_relaxed);
    }
    return seen_.load(std::memory_order_relaxed);
  }

  // Of the work, when all workers are done with it.
  Status status() const {
    return seen_.load(std::memory_order_relaxed) ? Status::kCancelled
                                                 : Status::kOk;
  }

 private:
  const HostInterface& host_;
  std::atomic<bool> seen_{false};
};

// One parallel section. Lives on the heap and is counted, because a helper may
// start after the section is over; it then finds no task and only drops its
// reference.
class ParallelSection {
 public:
  using Task = void (*)(const void* body, int worker, int64_t task);

  ParallelSection(int64_t num_tasks, Task task, const void* body, int helpers)
      : num_tasks_(num_tasks),
        task_(task),
        body_(body),
        references_(helpers + 1) {}

  // Takes tasks until none is left.
  void Work() {
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

  // Waits for tasks that others have taken, which all are running now.
  void Join() const {
    for (int spins = 0;
         tasks_done_.load(std::memory_order_acquire) < num_tasks_; ++spins) {
      if (spins >= kSpinsBeforeYield) std::this_thread::yield();
    }
  }

  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // The closure that HostInterface::schedule gets.
  static void Help(void* section) {
    auto* self = static_cast<ParallelSection*>(section);
    self->Work();
    self->Unref();
  }

 private:
  // About 10 µs of looking before the core is offered to another thread.
  static constexpr int kSpinsBeforeYield = 4000;

  const int64_t num_tasks_;
  const Task task_;
  const void* const body_;
  std::atomic<int> references_;
  std::atomic<int> next_worker_{0};
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<int64_t> tasks_done_{0};
};

// How many workers ParallelFor uses at most; a task's `worker` is below this.
inline int NumWorkers(const HostInterface& host, int64_t num_tasks) {
  return static_cast<int>(
      std::clamp<int64_t>(num_tasks, 1, std::max(host.num_threads, 1)));
}

// Calls body(worker, task) once for every task in [0, num_tasks), on up to
// `workers` threads at a time, and returns when all are done. No two calls
// that run at the same time have the same worker.
template <class Body>
void ParallelFor(const HostInterface& host, int workers, int64_t num_tasks,
                 const Body& body) {
  workers = std::min(workers, NumWorkers(host, num_tasks));
  ParallelSection* section = nullptr;
  if (workers > 1 && host.schedule != nullptr) {
    const auto call = [](const void* b, int worker, int64_t task) {
      (*static_cast<const Body*>(b))(worker, task);
    };
    section =
        new (std::nothrow) ParallelSection(num_tasks, call, &body, workers - 1);
  }
  if (section == nullptr) {
    for (int64_t task = 0; task < num_tasks; ++task) body(0, task);
    return;
  }
  for (int helper = 1; helper < workers; ++helper) {
    host.schedule(host.context, &ParallelSection::Help, section);
  }
  section->Work();
  section->Join();
  section->Unref();
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_PARALLEL_H_
