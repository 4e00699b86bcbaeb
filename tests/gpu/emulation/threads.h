// Declares how the threads of one launch run; what they call while they run is
// declared in cuda_runtime.h.

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_THREADS_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_THREADS_H_

#include <cstddef>
#include <functional>

#include "tests/gpu/emulation/cuda_runtime.h"

namespace emulation {

struct Grid {
  unsigned blocks = 0;
  dim3 block;
  std::size_t shared = 0;    // dynamic, of a block
  bool cooperative = false;  // all blocks are at work at once
  bool reverse = false;      // the last block, warp and thread first
  bool meet_early = false;  // at the arrival at a grid barrier, not at the wait
};

// Calls thread() for every thread of every block.
cudaError_t RunGrid(const Grid& grid, const std::function<void()>& thread);

}  // namespace emulation

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_THREADS_H_
