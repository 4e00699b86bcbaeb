// Owns how the directions of a layer share the threads.

#ifndef BLOCKRNN_KERNELS_CPU_RNN_STACK_DIRECTIONS_H_
#define BLOCKRNN_KERNELS_CPU_RNN_STACK_DIRECTIONS_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/parallel.h"
#include "cc/kernels/cpu/rnn_stack_host.h"

namespace blockrnn::cpu {

// The directions of a layer, side by side where there is a thread for each.
class Directions {
 public:
  Directions(const Host& host, int64_t directions)
      : host_(host),
        directions_(directions),
        parallel_(directions == 2 && host.num_threads >= 2),
        hosts_{
            {host, parallel_ ? (host.num_threads + 1) / 2 : host.num_threads},
            {host, std::max(host.num_threads / 2, 1)}} {}

  // body(pseudo, host) → Status for each direction of `layer`.
  template <class Body>
  Status Run(int64_t layer, const Body& body) {
    Status status[2] = {Status::kOk, Status::kOk};
    const auto run = [&](int64_t direction) {
      LayerHost& host = hosts_[parallel_ ? direction : 0];
      status[direction] =
          body(Pseudo{layer, direction, layer * directions_ + direction},
               host.host());
      host.Recycle();
    };
    if (parallel_) {
      ParallelFor(host_, 2, 2, [&](int, int64_t direction) { run(direction); });
    } else {
      for (int64_t direction = 0; direction < directions_; ++direction) {
        run(direction);
        if (status[direction] != Status::kOk) return status[direction];
      }
    }
    return status[0] != Status::kOk ? status[0] : status[1];
  }

 private:
  const Host& host_;
  const int64_t directions_;
  const bool parallel_;
  LayerHost hosts_[2];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RNN_STACK_DIRECTIONS_H_
