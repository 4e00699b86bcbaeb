// Owns how the directions of a layer share the threads.

#ifndef BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_
#define BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_

#include <algorithm>
#include <cstdint>

#include "cc/core/rnn_geometry.h"
#include "cc/core/rnn_stack_plan.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cpu/gemm/panel_element.h"
#include "cc/kernels/cpu/stack/layer_host.h"
#include "cc/kernels/cpu/threads/parallel.h"

namespace blockrnn::cpu {

// Whether the two directions of a layer are done side by side, each with half
// of the threads, rather than one after the other with all of them.
//
// Few rows make a step wait for its recurrent weights. Those of both directions
// together may be more than the last-level cache holds, and then come from
// memory in every step, where one direction's stay. Measured; see
// docs/adr/0009-threads.md.
template <class T>
bool SideBySide(const RnnGeometry& geometry, int64_t batch, int num_threads) {
  constexpr int64_t kFewRows = 16;
  constexpr double kBytesTogether = 16 << 20;
  if (geometry.directions != 2 || num_threads < 2) return false;
  const double weights =
      static_cast<double>(geometry.gates()) * geometry.units * geometry.proj;
  return batch > kFewRows || 2 * weights * kPackedBytes<T> <= kBytesTogether;
}

// The directions of a layer. side_by_side: only where there are two of each.
class Directions {
 public:
  Directions(const HostInterface& host, int64_t directions, bool side_by_side)
      : host_(host),
        directions_(directions),
        parallel_(side_by_side),
        hosts_{{host, parallel_ ? (host.num_threads + 1) / 2 : host.num_threads,
                parallel_ ? 2 : 1},
               {host, std::max(host.num_threads / 2, 1), 2}} {}

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
  const HostInterface& host_;
  const int64_t directions_;
  const bool parallel_;
  LayerHost hosts_[2];
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_STACK_DIRECTIONS_H_
