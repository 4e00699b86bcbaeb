// Tests the worker pool: every closure runs once, whichever worker starts and
// when, and the host is asked for no more threads than the call may use.

#include "cc/kernels/cpu/threads/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

using cpu::WorkerPool;

// A host whose threads start when the test starts them.
class ManualHost {
 public:
  explicit ManualHost(int num_threads) {
    host_.context = this;
    host_.num_threads = num_threads;
    host_.schedule = [](void* context, void (*run)(void*) noexcept,
                        void* arg) noexcept {
      auto* host = static_cast<ManualHost*>(context);
      const std::lock_guard<std::mutex> lock(host->mutex_);
      host->asked_.push_back({run, arg});
    };
  }

  const cpu::HostInterface& host() const { return host_; }
  int asked() const { return static_cast<int>(asked_.size()); }

  // Runs what the host was asked for from the `first` time on, on this thread.
  void Run(int first = 0) {
    for (int k = first; k < asked(); ++k) asked_[k].first(asked_[k].second);
  }

 private:
  cpu::HostInterface host_;
  std::mutex mutex_;
  std::vector<std::pair<void (*)(void*) noexcept, void*>> asked_;
};

// Counts its runs, and itself while it lives.
class Count : public cpu::SharedWork {
 public:
  Count(std::atomic<int>* runs, std::atomic<int>* alive)
      : runs_(runs), alive_(alive) {
    alive_->fetch_add(1);
  }
  ~Count() override { alive_->fetch_sub(1); }

 protected:
  void Work() override { runs_->fetch_add(1); }

 private:
  std::atomic<int>* const runs_;
  std::atomic<int>* const alive_;
};

// A pool of a host's workers, and work for it. The work is gone once all its
// runs are over.
class Workers {
 public:
  explicit Workers(const cpu::HostInterface& host)
      : pool_(new WorkerPool(host.context, host.schedule,
                             host.num_threads - 1)) {}
  ~Workers() { EXPECT_EQ(alive_, 0) << "work that was not freed"; }

  void Schedule(int runs) {
    auto* const work = new Count(&runs_, &alive_);
    for (int k = 0; k < runs; ++k) {
      work->Ref();
      pool_->Schedule(work);
    }
    work->Unref();
  }
  void Close() { pool_->Close(); }
  int runs() const { return runs_; }

 private:
  WorkerPool* const pool_;
  std::atomic<int> runs_{0};
  std::atomic<int> alive_{0};
};

// A worker also runs work that is added while it runs, so the host is not asked
// again.
TEST(WorkerPool, OneWorkerRunsAll) {
  ManualHost host(2);
  Workers workers(host.host());
  workers.Schedule(5);
  EXPECT_EQ(host.asked(), 1);
  host.Run();
  EXPECT_EQ(workers.runs(), 5);
  workers.Schedule(1);
  EXPECT_EQ(host.asked(), 2) << "the worker had returned";
  host.Run(1);
  workers.Close();
  EXPECT_EQ(workers.runs(), 6);
}

// The host is not asked for more threads than the call may use.
TEST(WorkerPool, NoMoreThanTheCallMayUse) {
  ManualHost host(4);
  Workers workers(host.host());
  workers.Schedule(9);
  EXPECT_EQ(host.asked(), 3);
  workers.Close();
  EXPECT_EQ(workers.runs(), 9);
  host.Run();  // late: the call is over, and the last of them frees the pool
  EXPECT_EQ(workers.runs(), 9) << "late workers ran something again";
}

// A queue that is full, with no worker that starts, loses nothing.
TEST(WorkerPool, FullQueue) {
  ManualHost host(2);
  Workers workers(host.host());
  workers.Schedule(1000);
  workers.Close();
  host.Run();
  EXPECT_EQ(workers.runs(), 1000);
}

// Work that schedules other work, from several threads, with workers that come
// and go.
class Tree : public cpu::SharedWork {
 public:
  Tree(WorkerPool* workers, std::atomic<int>* runs, int depth)
      : workers_(workers), runs_(runs), depth_(depth) {}

  void Work() override {
    for (int k = 0; k < 2 && depth_ > 0; ++k) {
      workers_->Schedule(new Tree(workers_, runs_, depth_ - 1));
    }
    runs_->fetch_add(1);
  }

 private:
  WorkerPool* const workers_;
  std::atomic<int>* const runs_;
  const int depth_;
};

TEST(WorkerPool, ConcurrentCalls) {
  constexpr int kDepth = 9, kTrees = 4, kRuns = kTrees * ((2 << kDepth) - 1);
  for (const Pool pool :
       {Pool::kThreads, Pool::kLate, Pool::kRefusesSome, Pool::kRefusesAll}) {
    HostOptions options;
    options.num_threads = 4;
    options.pool = pool;
    TestHost host(options);
    const cpu::HostInterface& interface = host.host();
    std::atomic<int> runs{0};
    auto* workers = new WorkerPool(interface.context, interface.schedule,
                                   interface.num_threads - 1);
    std::vector<std::thread> callers;
    for (int k = 0; k < kTrees; ++k) {
      callers.emplace_back([&] {
        cpu::SharedWork::RunWorker(new Tree(workers, &runs, kDepth));
      });
    }
    for (std::thread& caller : callers) caller.join();
    while (runs < kRuns) std::this_thread::yield();
    workers->Close();
    host.FreeScratch();
    host.FinishClosures();
    EXPECT_EQ(host.Problems(), "");
    EXPECT_EQ(runs, kRuns);
  }
}

}  // namespace
}  // namespace blockrnn::test
