// Defines work that several threads share, as the pool of the host runs it.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_SHARED_WORK_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_SHARED_WORK_H_

#include <atomic>
#include <thread>

namespace blockrnn::cpu {

// Lives on the heap and is counted, because a worker may start when the call is
// over; it then finds nothing to do and only drops its reference.
class SharedWork {
 public:
  SharedWork(const SharedWork&) = delete;
  SharedWork& operator=(const SharedWork&) = delete;

  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // What a worker runs, which has a reference of its own.
  static void RunWorker(void* work) {
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

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_SHARED_WORK_H_
