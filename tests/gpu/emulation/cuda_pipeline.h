// Defines asynchronous copies to shared memory for the emulation. They are done
// as late as possible, so that a missing wait is a missing copy.

#ifndef BLOCKRNN_TESTS_GPU_EMULATION_CUDA_PIPELINE_H_
#define BLOCKRNN_TESTS_GPU_EMULATION_CUDA_PIPELINE_H_

#include <cstddef>

#include "tests/gpu/emulation/cuda_runtime.h"

inline void __pipeline_memcpy_async(void* to, const void* from,
                                    std::size_t bytes) {
  ::emulation::CopyLater(to, from, bytes);
}

inline void __pipeline_commit() { ::emulation::CommitCopies(); }

// prior: the last groups of copies, which are not waited for.
inline void __pipeline_wait_prior(std::size_t prior) {
  ::emulation::AwaitCopies(prior);
}

#endif  // BLOCKRNN_TESTS_GPU_EMULATION_CUDA_PIPELINE_H_
