#include "tests/cpp/test_host.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>

#include "tests/cpp/heap.h"

namespace blockrnn::test {
namespace {

// Threads that all hosts share, as TensorFlow's ops share one pool.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Loop(); });
    }
  }
  ~ThreadPool() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Schedule(std::function<void()> work) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;  // under mutex_
  bool stop_ = false;                        // under mutex_
  std::vector<std::thread> threads_;
};

ThreadPool& SharedPool() {
  static ThreadPool pool(8);
  return pool;
}

// 0 … 255 µs, about as long as a small engine call: some closures run during
// the call and some after it.
std::chrono::microseconds NextDelay() {
  static std::atomic<uint32_t> count{0};
  return std::chrono::microseconds(count.fetch_add(1) * 2654435761u >> 24);
}

}  // namespace

TestHost::TestHost(const HostOptions& options) : options_(options) {
  host_.context = this;
  host_.num_threads = options.num_threads;
  if (options.num_threads > 1) host_.schedule = &Schedule;
  host_.allocate = &Allocate;
  if (options.cancel_at >= 0) host_.cancelled = &Cancelled;
}

TestHost::~TestHost() { FinishClosures(); }

void TestHost::Schedule(void* context, void (*run)(void*) noexcept,
                        void* arg) noexcept {
  auto* self = static_cast<TestHost*>(context);
  bool refused = false;
  {
    const HeapIsDry heap(false);
    const std::lock_guard<std::mutex> lock(self->mutex_);
    const Pool pool = self->options_.pool;
    const bool odd = self->closures_++ % 2 != 0;
    refused = pool == Pool::kRefusesAll || (pool == Pool::kRefusesSome && odd);
    if (pool == Pool::kNever) {
      self->queued_.push_back({run, arg});
      return;
    }
    self->outstanding_ += refused ? 0 : 1;
  }
  if (refused) return run(arg);
  const HeapIsDry heap(false);
  const bool late = self->options_.pool != Pool::kThreads;
  SharedPool().Schedule([self, run, arg, late] {
    if (late) std::this_thread::sleep_for(NextDelay());
    run(arg);
    const std::lock_guard<std::mutex> lock(self->mutex_);
    if (--self->outstanding_ == 0) self->all_ran_.notify_all();
  });
}

void* TestHost::Allocate(void* context, std::size_t bytes) noexcept {
  const HeapIsDry heap(false);
  auto* self = static_cast<TestHost*>(context);
  unsigned char* data = nullptr;
  {
    const std::lock_guard<std::mutex> lock(self->mutex_);
    if (self->allocations_++ == self->options_.fail_allocation) return nullptr;
    self->allocated_bytes_ += bytes;
    data = self->scratch_.emplace_back(bytes, 0).data();
  }
  // All ones is a NaN of every type: reading scratch before it is written is
  // seen in the result.
  std::fill_n(data, bytes, 0xFF);
  return data;
}

bool TestHost::Cancelled(void* context) noexcept {
  auto* self = static_cast<TestHost*>(context);
  return self->polls_.fetch_add(1) >= self->options_.cancel_at;
}

void TestHost::FreeScratch() {
  for (const GuardedBlock& block : scratch_) {
    if (!block.Intact()) {
      problems_ += "scratch of " + std::to_string(block.size()) +
                   " bytes was written outside; ";
    }
  }
  scratch_.clear();
}

void TestHost::FinishClosures() {
  for (const Closure& closure : queued_) closure.run(closure.arg);
  queued_.clear();
  std::unique_lock<std::mutex> lock(mutex_);
  all_ran_.wait(lock, [this] { return outstanding_ == 0; });
}

}  // namespace blockrnn::test
