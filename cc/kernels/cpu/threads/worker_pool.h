// Defines the workers of one engine call. A call has many parallel sections,
// most of them shorter than it takes to wake a thread. So a thread of the
// host's pool that has come stays: an idle worker spins for about 50 µs before
// it returns to the pool. The pool is asked for no more threads than the call
// may use; a pool that is asked anew for each section wakes another thread each
// time, which then takes the core from one that is at work.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_WORKER_POOL_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_WORKER_POOL_H_

#include <atomic>
#include <mutex>
#include <thread>

namespace blockrnn::cpu {

// Work that several threads share. Lives on the heap and is counted, because a
// worker may start when the call is over; it then finds nothing to do and only
// drops its reference.
class SharedWork {
 public:
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // What a worker runs, which has a reference of its own.
  static void RunWorker(void* work) noexcept {
    auto* self = static_cast<SharedWork*>(work);
    self->Work();
    self->Unref();
  }

 protected:
  // Begins with one reference, the caller's.
  SharedWork() = default;
  virtual ~SharedWork() = default;

  virtual void Work() = 0;

 private:
  std::atomic<int> references_{1};
};

// Between two reads of what another thread is about to write.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // Waits for some ten nanoseconds; `yield` does nothing on most processors.
  asm volatile("isb");
#endif
}

// A wait by spinning, which after a while offers the core to other threads.
class SpinWait {
 public:
  explicit SpinWait(int spins_before_yield = 10000)
      : spins_before_yield_(spins_before_yield) {}

  void Once() {
    if (++spins_ > spins_before_yield_) {
      std::this_thread::yield();
    } else {
      Pause();
    }
  }
  int spins() const { return spins_; }

 private:
  const int spins_before_yield_;
  int spins_ = 0;
};

class WorkerPool final : public SharedWork {
 public:
  // Queues run(arg) on a thread of the host, or runs it.
  using ScheduleFunction = void (*)(void* context,
                                    void (*run)(void* arg) noexcept,
                                    void* arg) noexcept;

  WorkerPool(void* context, ScheduleFunction schedule, int max_workers)
      : context_(context), schedule_(schedule), max_workers_(max_workers) {}

  // Queues one run of `work`, with a reference of it, and asks the host for one
  // more thread unless there are enough.
  void Schedule(SharedWork* work) {
    switch (Enqueue(work)) {
      case Queued::kYes:
        return;
      case Queued::kYesButWorkerMissing:
        schedule_(context_, &SharedWork::RunWorker, this);
        return;
      case Queued::kNo:
        schedule_(context_, &SharedWork::RunWorker, work);
    }
  }

  // The call is over: what no worker has come for is done here, and the workers
  // leave. The last one deletes the pool.
  void Close() {
    closed_.store(true, std::memory_order_relaxed);
    while (SharedWork* work = Take()) RunWorker(work);
    Unref();
  }

 private:
  static constexpr int kQueueSize = 256;
  // Spins of an idle worker, about 50 µs.
  static constexpr int kSpins = 2000;

  enum class Queued { kYes, kYesButWorkerMissing, kNo };

  Queued Enqueue(SharedWork* work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int queued = queued_.load(std::memory_order_relaxed);
    if (queued == kQueueSize) return Queued::kNo;
    queue_[(first_ + queued) % kQueueSize] = work;
    queued_.store(queued + 1, std::memory_order_relaxed);
    if (workers_ == max_workers_) return Queued::kYes;
    ++workers_;
    Ref();
    return Queued::kYesButWorkerMissing;
  }

  SharedWork* Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return TakeLocked();
  }

  SharedWork* TakeLocked() {
    const int queued = queued_.load(std::memory_order_relaxed);
    if (queued == 0) return nullptr;
    SharedWork* const work = queue_[first_];
    first_ = (first_ + 1) % kQueueSize;
    queued_.store(queued - 1, std::memory_order_relaxed);
    return work;
  }

  // The next work, for which it spins a while; nullptr when there is none, and
  // then there is one worker less.
  SharedWork* TakeOrLeave() {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (closed_.load(std::memory_order_relaxed) ||
          queued_.load(std::memory_order_relaxed) > 0) {
        break;
      }
      Pause();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    SharedWork* const work = TakeLocked();
    if (work == nullptr) --workers_;
    return work;
  }

  void Work() override {
    while (SharedWork* work = TakeOrLeave()) RunWorker(work);
  }

  void* const context_;
  const ScheduleFunction schedule_;
  const int max_workers_;
  std::atomic<bool> closed_{false};
  std::mutex mutex_;
  int workers_ = 0;             // asked for and not gone yet; under mutex_
  int first_ = 0;               // of the queue; under mutex_
  std::atomic<int> queued_{0};  // written with the mutex held
  SharedWork* queue_[kQueueSize];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_WORKER_POOL_H_
