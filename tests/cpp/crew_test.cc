// The helpers of one call: every closure runs once, whoever comes and when, and
// the pool is asked for no more threads than the call may use.

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/kernels/cpu/threads/worker_pool.h"
#include "tests/cpp/check.h"
#include "tests/cpp/test_host.h"

namespace blockrnn::test {
namespace {

// A pool whose threads come when the test says so.
class ManualPool {
 public:
  explicit ManualPool(int num_threads) {
    host_.context = this;
    host_.num_threads = num_threads;
    host_.schedule = [](void* context, void (*run)(void*), void* arg) {
      auto* pool = static_cast<ManualPool*>(context);
      const std::lock_guard<std::mutex> lock(pool->mutex_);
      pool->asked_.push_back({run, arg});
    };
  }

  const cpu::HostInterface& host() const { return host_; }
  int asked() const { return static_cast<int>(asked_.size()); }

  // Runs what the pool was asked for from the `first` time on, on this thread.
  void Run(int first = 0) {
    for (int k = first; k < asked(); ++k) asked_[k].first(asked_[k].second);
  }

 private:
  cpu::HostInterface host_;
  std::mutex mutex_;
  std::vector<std::pair<void (*)(void*), void*>> asked_;
};

void Count(void* count) { static_cast<std::atomic<int>*>(count)->fetch_add(1); }

std::string Number(int n) { return std::to_string(n); }

// A helper takes what comes while it is there, so the pool is not asked again.
void OneHelperTakesAll(Failures* failures) {
  ManualPool pool(2);
  auto* crew = new cpu::Crew(pool.host());
  std::atomic<int> runs{0};
  for (int k = 0; k < 5; ++k) crew->Schedule(&Count, &runs);
  failures->Expect(
      pool.asked() == 1,
      "the pool was asked " + Number(pool.asked()) + " times for one helper");
  pool.Run();
  failures->Expect(runs == 5, "the helper ran " + Number(runs) + " of 5");
  crew->Schedule(&Count, &runs);
  failures->Expect(pool.asked() == 2, "a helper that left is not missed");
  pool.Run(1);
  crew->Dismiss();
  failures->Expect(runs == 6, "after it had left, " + Number(runs) + " of 6");
}

// More helpers than the call may use are not asked for.
void NoMoreThanTheCallMayUse(Failures* failures) {
  ManualPool pool(4);
  auto* crew = new cpu::Crew(pool.host());
  std::atomic<int> runs{0};
  for (int k = 0; k < 9; ++k) crew->Schedule(&Count, &runs);
  failures->Expect(pool.asked() == 3,
                   "3 helpers, but asked for " + Number(pool.asked()));
  crew->Dismiss();
  failures->Expect(runs == 9, "at the end " + Number(runs) + " of 9 had run");
  pool.Run();  // late: the call is over, and the last of them frees the crew
  failures->Expect(runs == 9, "late helpers ran something again");
}

// A queue that is full, of a pool that never came, loses nothing.
void FullQueue(Failures* failures) {
  ManualPool pool(2);
  auto* crew = new cpu::Crew(pool.host());
  std::atomic<int> runs{0};
  for (int k = 0; k < 1000; ++k) crew->Schedule(&Count, &runs);
  crew->Dismiss();
  pool.Run();
  failures->Expect(runs == 1000, Number(runs) + " of 1000 ran");
}

// Closures that schedule others, from several threads, with helpers that come
// and go.
struct Tree {
  cpu::Crew* crew;
  std::atomic<int>* runs;
  int depth;
};

void Grow(void* arg) {
  const auto* tree = static_cast<Tree*>(arg);
  if (tree->depth > 0) {
    for (int k = 0; k < 2; ++k) {
      tree->crew->Schedule(&Grow,
                           new Tree{tree->crew, tree->runs, tree->depth - 1});
    }
  }
  tree->runs->fetch_add(1);
  delete tree;
}

void ManyThreads(Failures* failures) {
  constexpr int kDepth = 9, kTrees = 4, kRuns = kTrees * ((2 << kDepth) - 1);
  for (const Pool pool : {Pool::kThreads, Pool::kLate}) {
    HostOptions options;
    options.num_threads = 4;
    options.pool = pool;
    TestHost host(options);
    std::atomic<int> runs{0};
    auto* crew = new cpu::Crew(host.host());
    std::vector<std::thread> callers;
    for (int k = 0; k < kTrees; ++k) {
      callers.emplace_back([&] { Grow(new Tree{crew, &runs, kDepth}); });
    }
    for (std::thread& caller : callers) caller.join();
    while (runs < kRuns) std::this_thread::yield();
    crew->Dismiss();
    host.FreeScratch();
    host.FinishClosures();
    failures->Add(host.Problems());
    failures->Expect(runs == kRuns,
                     Number(runs) + " of " + Number(kRuns) + " ran");
  }
}

const bool kTests[] = {
    AddTest("crew/one_helper_takes_all", &OneHelperTakesAll),
    AddTest("crew/no_more_than_the_call_may_use", &NoMoreThanTheCallMayUse),
    AddTest("crew/full_queue", &FullQueue),
    AddTest("crew/concurrent_calls", &ManyThreads),
};

}  // namespace
}  // namespace blockrnn::test
