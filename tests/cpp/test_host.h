// Declares the hosts that the engine is tested with: threads that start at
// once, late or never, and scratch that can run out.

#ifndef BLOCKRNN_TESTS_CPP_TEST_HOST_H_
#define BLOCKRNN_TESTS_CPP_TEST_HOST_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cc/kernels/cpu/engine.h"
#include "tests/cpp/guarded_block.h"

namespace blockrnn::test {

enum class Pool {
  kThreads,      // real threads, at once
  kLate,         // real threads, each closure some time later
  kNever,        // closures stay queued until the engine call is over
  kRefusesSome,  // kLate, but every other closure cannot be queued
  kRefusesAll,   // no closure can be queued
};
inline constexpr Pool kPools[] = {Pool::kThreads, Pool::kLate, Pool::kNever,
                                  Pool::kRefusesSome, Pool::kRefusesAll};
inline constexpr int kNumPools = sizeof(kPools) / sizeof(kPools[0]);

struct HostOptions {
  int num_threads = 1;  // with 1 there is no schedule function
  Pool pool = Pool::kThreads;
  int fail_allocation = -1;  // this call of allocate, from 0, fails
  int cancel_at = -1;        // `cancelled` is true from this call on, from 0
};

// One engine call's host.
class TestHost {
 public:
  explicit TestHost(const HostOptions& options);
  ~TestHost();
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;

  const cpu::HostInterface& host() const { return host_; }

  // After the engine call, in this order. Scratch is freed first, which a host
  // may do, and only then the remaining closures run.
  void FreeScratch();
  void FinishClosures();

  // The rules of the host interface that the engine violated; empty if none.
  // After both of the above.
  const std::string& Problems() const { return problems_; }
  // Of calls that are over.
  int allocations() const { return allocations_; }
  std::size_t allocated_bytes() const { return allocated_bytes_; }
  int polls() const { return polls_.load(); }
  int closures() const { return closures_; }

 private:
  struct Closure {
    void (*run)(void*) noexcept;
    void* arg;
  };

  static void Schedule(void* context, void (*run)(void*) noexcept,
                       void* arg) noexcept;
  static void* Allocate(void* context, std::size_t bytes) noexcept;
  static bool Cancelled(void* context) noexcept;

  const HostOptions options_;
  cpu::HostInterface host_;
  std::atomic<int> polls_{0};
  std::condition_variable all_ran_;
  // The engine's threads call at the same time: all of these under mutex_,
  // until the call is over.
  std::mutex mutex_;
  int allocations_ = 0;
  std::size_t allocated_bytes_ = 0;
  int closures_ = 0;
  std::vector<GuardedBlock> scratch_;
  std::vector<Closure> queued_;  // Pool::kNever
  int outstanding_ = 0;
  std::string problems_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_TEST_HOST_H_
