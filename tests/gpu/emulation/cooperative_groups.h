// Defines the grid barrier for the emulation.

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_COOPERATIVE_GROUPS_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_COOPERATIVE_GROUPS_H_

#include "tests/gpu/emulation/cuda_runtime.h"

namespace cooperative_groups {

struct grid_group {
  using arrival_token = unsigned;

  void sync() const { ::emulation::GridBarrier(); }
  arrival_token barrier_arrive() const {
    ::emulation::GridArrive();
    return 0;
  }
  void barrier_wait(arrival_token&&) const { ::emulation::GridWait(); }
};

inline grid_group this_grid() { return {}; }

}  // namespace cooperative_groups

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_COOPERATIVE_GROUPS_H_
