// Declares the thread pool of a session. Eigen's pool starts its threads in its
// constructor, and hangs when one of them cannot start: its destructor waits
// for threads that wait for all others. So these are started before it.

#ifndef BLOCKRNN_INFERENCE_SESSION_POOL_H_
#define BLOCKRNN_INFERENCE_SESSION_POOL_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "Eigen/ThreadPool"
#include "cc/inference/session_status.h"

namespace blockrnn {

// A thread that waits for what it is to run, once.
class SessionThread {
 public:
  // Throws std::system_error if the thread does not start.
  SessionThread() : thread_([this] { WaitAndRun(); }) {}
  SessionThread(const SessionThread&) = delete;
  SessionThread& operator=(const SessionThread&) = delete;
  // Waits for the end of what it runs, if there is anything.
  ~SessionThread() {
    Begin(nullptr);
    thread_.join();
  }

  // The first call alone counts.
  void Begin(std::function<void()> work) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (begun_) return;
      work_ = std::move(work);
      begun_ = true;
    }
    begin_.notify_one();
  }

 private:
  void WaitAndRun() {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      begin_.wait(lock, [this] { return begun_; });
    }
    if (work_ != nullptr) work_();
  }

  std::mutex mutex_;
  std::condition_variable begin_;
  bool begun_ = false;  // under mutex_
  std::function<void()> work_;
  std::thread thread_;  // last: it uses the others
};

// Eigen's pool takes its threads from here, in its constructor alone.
class StartedThreads : public Eigen::StlThreadEnvironment {
 public:
  using EnvThread = SessionThread;

  explicit StartedThreads(std::vector<std::unique_ptr<SessionThread>>* threads)
      : threads_(threads) {}

  // It does not throw, and must not: Eigen's constructor would hang.
  EnvThread* CreateThread(std::function<void()> work) noexcept {
    std::unique_ptr<SessionThread> thread = std::move(threads_->back());
    threads_->pop_back();
    thread->Begin(std::move(work));
    return thread.release();
  }

 private:
  std::vector<std::unique_ptr<SessionThread>>* threads_;
};

using SessionPool = Eigen::ThreadPoolTempl<StartedThreads>;

// Sets `pool` to that of a session for calls on that many threads, the calling
// one included; nullptr for one.
SessionStatus StartPool(int threads, std::unique_ptr<SessionPool>* pool);

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_SESSION_POOL_H_
