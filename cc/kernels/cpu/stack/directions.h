// Implements how the directions of a layer share the threads.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_
#define BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_

#include <algorithm>
#include <cstdint>

#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"

namespace blockrnn::cpu {

// Runs the directions of layers, one layer after another.
class Directions {
 public:
  explicit Directions(const Executor& call)
      : call_(call),
        all_threads_(call, call.num_threads(), 1),
        halves_{{call, (call.num_threads() + 1) / 2, 2},
                {call, std::max(call.num_threads() / 2, 1), 2}} {}

  // body(direction, executor) → Status for each direction. concurrent: two
  // directions, if there are threads for both, run at the same time, each with
  // half of them, rather than one after the other with all.
  template <class Body>
  Status Run(int64_t directions, bool concurrent, const Body& body) {
    const auto call = [](const void* b, int64_t direction,
                         const Executor& executor) {
      return (*static_cast<const Body*>(b))(direction, executor);
    };
    return RunCalls(directions, concurrent, call, &body);
  }

 private:
  using Call = Status (*)(const void* body, int64_t direction,
                          const Executor& executor);

  // Run without the type of its body, so that it is compiled once.
  Status RunCalls(int64_t directions, bool concurrent, Call call,
                  const void* body) {
    Status status[2] = {Status::kOk, Status::kOk};
    const auto run = [&](int64_t direction, Executor* executor) {
      status[direction] = call(body, direction, *executor);
      executor->RecycleScratch();
    };
    if (concurrent && directions == 2 && call_.num_threads() > 1) {
      ParallelFor(call_, 2, 2, [&](int, int64_t direction) {
        run(direction, &halves_[direction]);
      });
    } else {
      for (int64_t direction = 0; direction < directions; ++direction) {
        run(direction, &all_threads_);
        if (status[direction] != Status::kOk) return status[direction];
      }
    }
    return status[0] != Status::kOk ? status[0] : status[1];
  }

  const Executor& call_;
  Executor all_threads_;
  Executor halves_[2];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_
