// Defines what the engine runs on: the threads, the scratch memory and the
// cancellation of one call, or of a sequence within it.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_EXECUTOR_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_EXECUTOR_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

#include "cc/core/scratch_pool.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/threads/worker_pool.h"

namespace blockrnn::cpu {

class Executor {
 public:
  // Of a call, with workers of its own.
  explicit Executor(const HostInterface& host)
      : host_(host), num_threads_(std::max(host.num_threads, 1)) {
    if (num_threads_ > 1 && host.schedule != nullptr) {
      own_workers_ = new (std::nothrow)
          WorkerPool(host.context, host.schedule, num_threads_ - 1);
      workers_ = own_workers_;
    }
  }
  // Of the sequences that a call runs one after another: some of its threads,
  // and scratch that the next sequence uses again. concurrent_sequences: those
  // that share the caches, this one included.
  Executor(const Executor& call, int num_threads, int concurrent_sequences)
      : host_(call.host_),
        num_threads_(num_threads),
        concurrent_sequences_(concurrent_sequences),
        workers_(call.workers_),
        reuses_scratch_(true) {}
  ~Executor() {
    if (own_workers_ != nullptr) own_workers_->Close();
  }
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Threads worth using, the calling one included.
  int num_threads() const { return num_threads_; }
  int concurrent_sequences() const { return concurrent_sequences_; }
  bool workers_awake() const { return host_.workers_awake; }
  bool HasWorkers() const { return workers_ != nullptr && num_threads_ > 1; }

  // Runs `work` on up to that many workers beside the calling thread, which
  // goes on at once. It may run late, even after the call, but as often.
  void Schedule(SharedWork* work, int workers) const {
    for (int n = 0; n < workers; ++n) {
      work->Ref();
      workers_->Schedule(work);
    }
  }

  // Aligned to 64 bytes; nullptr where there is no memory.
  void* Allocate(std::size_t bytes) const {
    if (!reuses_scratch_) return host_.allocate(host_.context, bytes);
    if (void* const data = scratch_.Take(bytes)) return data;
    void* const data = host_.allocate(host_.context, bytes);
    if (data != nullptr) scratch_.Add(data, bytes);
    return data;
  }
  // A sequence is over, and its scratch is the next one's. A worker that still
  // comes reads none of it.
  void RecycleScratch() { scratch_.Recycle(); }

  bool Cancelled() const {
    return host_.cancelled != nullptr && host_.cancelled(host_.context);
  }

 private:
  const HostInterface& host_;
  const int num_threads_;
  const int concurrent_sequences_ = 1;
  WorkerPool* own_workers_ = nullptr;
  WorkerPool* workers_ = nullptr;
  const bool reuses_scratch_ = false;
  mutable ScratchPool scratch_;  // of one thread: a sequence's own
};

// Whether the host has cancelled the call. Workers ask before each task of a
// GEMM and each stage of a step; what one of them has seen, all know.
class Cancellation {
 public:
  explicit Cancellation(const Executor& executor) : executor_(executor) {}

  bool Seen() {
    if (executor_.Cancelled()) seen_.store(true, std::memory_order_relaxed);
    return seen_.load(std::memory_order_relaxed);
  }

  // Of the work, when all workers are done with it.
  Status status() const {
    return seen_.load(std::memory_order_relaxed) ? Status::kCancelled
                                                 : Status::kOk;
  }

 private:
  const Executor& executor_;
  std::atomic<bool> seen_{false};
};

// Scratch memory of one engine call, all of it from the host.
class Scratch {
 public:
  explicit Scratch(const Executor& executor) : executor_(executor) {}

  // count elements, aligned to 64 bytes; nullptr for 0 elements or when there
  // is no memory, which ok() then reports.
  template <class C>
  C* Array(int64_t count) {
    if (count == 0 || !ok_) return nullptr;
    constexpr int64_t kMost =
        std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(C));
    void* p = nullptr;
    if (count > 0 && count <= kMost) {
      p = executor_.Allocate(static_cast<std::size_t>(count) * sizeof(C));
    }
    ok_ = p != nullptr;
    return static_cast<C*>(p);
  }

  bool ok() const { return ok_; }

 private:
  const Executor& executor_;
  bool ok_ = true;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_EXECUTOR_H_
