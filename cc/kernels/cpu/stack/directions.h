// Implements how the directions of a layer share the threads.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_
#define BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/param_layout.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/threads/executor.h"
#include "cc/kernels/cpu/threads/parallel_for.h"
#include "cc/kernels/cpu/tuning.h"

namespace blockrnn::cpu {

// Whether the two directions of a layer run concurrently, each with half of the
// threads, rather than one after the other with all of them.
template <class T>
bool RunsConcurrently(const RnnGeometry& geometry, int64_t batch,
                      int num_threads) {
  if (geometry.directions != 2 || num_threads < 2) return false;
  const double weights =
      static_cast<double>(geometry.gates()) * geometry.units * geometry.proj;
  return DirectionsFitConcurrently(batch,
                                   weights * kPackedBytes<PanelElement<T>>);
}

// The directions of a layer. concurrent: only with two of them, and threads for
// both.
class Directions {
 public:
  Directions(const Executor& call, int64_t directions, bool concurrent)
      : call_(call),
        directions_(directions),
        concurrent_(concurrent),
        executors_{
            {call,
             concurrent ? (call.num_threads() + 1) / 2 : call.num_threads(),
             concurrent ? 2 : 1},
            {call, std::max(call.num_threads() / 2, 1), 2}} {}

  // body(layer direction, executor) → Status for each direction of `layer`.
  template <class Body>
  Status Run(int64_t layer, const Body& body) {
    Status status[2] = {Status::kOk, Status::kOk};
    const auto run = [&](int64_t direction) {
      Executor& executor = executors_[concurrent_ ? direction : 0];
      status[direction] = body(
          LayerDirection{layer, direction, layer * directions_ + direction},
          executor);
      executor.RecycleScratch();
    };
    if (concurrent_) {
      ParallelFor(call_, 2, 2, [&](int, int64_t direction) { run(direction); });
    } else {
      for (int64_t direction = 0; direction < directions_; ++direction) {
        run(direction);
        if (status[direction] != Status::kOk) return status[direction];
      }
    }
    return status[0] != Status::kOk ? status[0] : status[1];
  }

 private:
  const Executor& call_;
  const int64_t directions_;
  const bool concurrent_;
  Executor executors_[2];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_
