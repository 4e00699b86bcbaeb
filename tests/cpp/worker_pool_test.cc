// The workers of one call: every closure runs once, whichever worker starts and
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

using WorkerPool = cpu::Crew;

// A host whose threads start when the test says so.
class ManualHost {
 public:
  explicit ManualHost(int num_threads) {
    host_.context = this;
    host_.num_threads = num_threads;
    host_.schedule = [](void* context, void (*run)(void*), void* arg) {
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
  std::vector<std::pair<void (*)(void*), void*>> asked_;
};

void Count(void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }

// A worker takes what comes while it runs, so the host is not asked again.
TEST(WorkerPool, OneWorkerRunsAll) {
  ManualHost host(2);
  auto* workers = new WorkerPool(host.host());
  std::atomic<int> runs{0};
  for (int k = 0; k < 5; ++k) workers->Schedule(&Count, &runs);
  EXPECT_EQ(host.asked(), 1);
  host.Run();
  EXPECT_EQ(runs, 5);
  workers->Schedule(&Count, &runs);
  EXPECT_EQ(host.asked(), 2) << "the worker had returned";
  host.Run(1);
  workers->Dismiss();
  EXPECT_EQ(runs, 6);
}

// The host is not asked for more threads than the call may use.
TEST(WorkerPool, NoMoreThanTheCallMayUse) {
  ManualHost host(4);
  auto* workers = new WorkerPool(host.host());
  std::atomic<int> runs{0};
  for (int k = 0; k < 9; ++k) workers->Schedule(&Count, &runs);
  EXPECT_EQ(host.asked(), 3);
  workers->Dismiss();
  EXPECT_EQ(runs, 9);
  host.Run();  // late: the call is over, and the last of them frees the pool
  EXPECT_EQ(runs, 9) << "late workers ran something again";
}

// A queue that is full, with no worker that starts, loses nothing.
TEST(WorkerPool, FullQueue) {
  ManualHost host(2);
  auto* workers = new WorkerPool(host.host());
  std::atomic<int> runs{0};
  for (int k = 0; k < 1000; ++k) workers->Schedule(&Count, &runs);
  workers->Dismiss();
  host.Run();
  EXPECT_EQ(runs, 1000);
}

// Closures that schedule others, from several threads, with workers that come
// and go.
struct Tree {
  WorkerPool* workers;
  std::atomic<int>* runs;
  int depth;
};

void Grow(void* arg) {
  const auto* tree = static_cast<Tree*>(arg);
  if (tree->depth > 0) {
    for (int k = 0; k < 2; ++k) {
      tree->workers->Schedule(
          &Grow, new Tree{tree->workers, tree->runs, tree->depth - 1});
    }
  }
  tree->runs->fetch_add(1);
  delete tree;
}

TEST(WorkerPool, ConcurrentCalls) {
  constexpr int kDepth = 9, kTrees = 4, kRuns = kTrees * ((2 << kDepth) - 1);
  for (const Pool pool : {Pool::kThreads, Pool::kLate}) {
    HostOptions options;
    options.num_threads = 4;
    options.pool = pool;
    TestHost host(options);
    std::atomic<int> runs{0};
    auto* workers = new WorkerPool(host.host());
    std::vector<std::thread> callers;
    for (int k = 0; k < kTrees; ++k) {
      callers.emplace_back([&] { Grow(new Tree{workers, &runs, kDepth}); });
    }
    for (std::thread& caller : callers) caller.join();
    while (runs < kRuns) std::this_thread::yield();
    workers->Dismiss();
    host.FreeScratch();
    host.FinishClosures();
    EXPECT_EQ(host.Problems(), "");
    EXPECT_EQ(runs, kRuns);
  }
}

}  // namespace
}  // namespace blockrnn::test
