// Owns the helpers of one engine call. A call has many parallel sections, most
// of them shorter than it takes to wake a thread. A thread of the host's pool
// that has come to help stays: it looks for a while whether there is more to do
// before it goes back. So the pool is asked for no more threads than the call
// may use; a pool that is asked for each section anew wakes another one each
// time, which then takes the core from one that is at work.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_WORKER_POOL_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_WORKER_POOL_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <new>

#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/threads/parallel.h"

namespace blockrnn::cpu {

// Lives on the heap and is counted: a helper may start when the call is over.
class Crew {
 public:
  using Run = void (*)(void* arg);

  explicit Crew(const HostInterface& pool)
      : context_(pool.context),
        schedule_(pool.schedule),
        most_helpers_(pool.num_threads - 1) {}

  // Queues run(arg) for the helpers, and asks the pool for one more unless
  // there are enough of them.
  void Schedule(Run run, void* arg) {
    switch (Queue({run, arg})) {
      case Queued::kYes:
        return;
      case Queued::kAndHelperMissing:
        schedule_(context_, &Crew::Help, this);
        return;
      case Queued::kNo:
        schedule_(context_, run, arg);
    }
  }

  // The call is over: what nobody has come for is done here, and helpers go.
  // The last one deletes the crew.
  void Dismiss() {
    over_.store(true, std::memory_order_relaxed);
    Closure closure;
    while (Take(&closure)) closure.run(closure.arg);
    Unref();
  }

 private:
  static constexpr int kMostQueued = 256;

  // Looks before a helper goes back, some 50 µs.
  static constexpr int kLooks = 2000;

  struct Closure {
    Run run;
    void* arg;
  };

  enum class Queued { kYes, kAndHelperMissing, kNo };

  Queued Queue(Closure closure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int queued = queued_.load(std::memory_order_relaxed);
    if (queued == kMostQueued) return Queued::kNo;
    queue_[(first_ + queued) % kMostQueued] = closure;
    queued_.store(queued + 1, std::memory_order_relaxed);
    if (helpers_ == most_helpers_) return Queued::kYes;
    ++helpers_;
    references_.fetch_add(1, std::memory_order_relaxed);
    return Queued::kAndHelperMissing;
  }

  bool Take(Closure* closure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return TakeLocked(closure);
  }

  bool TakeLocked(Closure* closure) {
    const int queued = queued_.load(std::memory_order_relaxed);
    if (queued == 0) return false;
    *closure = queue_[first_];
    first_ = (first_ + 1) % kMostQueued;
    queued_.store(queued - 1, std::memory_order_relaxed);
    return true;
  }

  // Whether there is more to do, after a while; if not, there is a helper less.
  bool TakeOrLeave(Closure* closure) {
    for (int looks = 0; looks < kLooks; ++looks) {
      if (over_.load(std::memory_order_relaxed) ||
          queued_.load(std::memory_order_relaxed) > 0) {
        break;
      }
      Pause();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (TakeLocked(closure)) return true;
    --helpers_;
    return false;
  }

  // The closure that the pool gets.
  static void Help(void* crew) {
    auto* self = static_cast<Crew*>(crew);
    Closure closure;
    while (self->TakeOrLeave(&closure)) closure.run(closure.arg);
    self->Unref();
  }

  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  void* const context_;
  void (*const schedule_)(void* context, Run run, void* arg);
  const int most_helpers_;
  std::atomic<int> references_{1};
  std::atomic<bool> over_{false};
  std::mutex mutex_;
  int helpers_ = 0;  // that the pool was asked for and that have not left
  int first_ = 0;    // of the queue
  std::atomic<int> queued_{0};  // written with the mutex held
  Closure queue_[kMostQueued];
};

// The host of a call whose helpers stay.
class CrewHost {
 public:
  explicit CrewHost(const HostInterface& lender)
      : lender_(lender), host_(lender) {
    if (lender.num_threads <= 1 || lender.schedule == nullptr) return;
    crew_ = new (std::nothrow) Crew(lender);
    if (crew_ == nullptr) return;
    host_.context = this;
    host_.schedule = &Schedule;
    host_.allocate = &Allocate;
    if (lender.cancelled != nullptr) host_.cancelled = &Cancelled;
  }
  ~CrewHost() {
    if (crew_ != nullptr) crew_->Dismiss();
  }
  CrewHost(const CrewHost&) = delete;
  CrewHost& operator=(const CrewHost&) = delete;

  const HostInterface& host() const { return host_; }

 private:
  static const HostInterface& Lender(void* context) {
    return static_cast<CrewHost*>(context)->lender_;
  }
  static void Schedule(void* context, void (*run)(void* arg), void* arg) {
    static_cast<CrewHost*>(context)->crew_->Schedule(run, arg);
  }
  static void* Allocate(void* context, std::size_t bytes) {
    return Lender(context).allocate(Lender(context).context, bytes);
  }
  static bool Cancelled(void* context) {
    return Lender(context).cancelled(Lender(context).context);
  }

  const HostInterface& lender_;
  HostInterface host_;
  Crew* crew_ = nullptr;
};

// An engine function, with helpers that stay until it is over.
template <auto kCall, class Args>
Status WithCrew(const Args& args, const HostInterface& lender) {
  const CrewHost crew(lender);
  return kCall(args, crew.host());
}

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_WORKER_POOL_H_
