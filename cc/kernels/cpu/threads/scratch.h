// Defines scratch memory of one engine call, all of it from the host.

#ifndef BLOCKRNN_KERNELS_CPU_THREADS_SCRATCH_H_
#define BLOCKRNN_KERNELS_CPU_THREADS_SCRATCH_H_

#include <cstdint>
#include <limits>

#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

class Scratch {
 public:
  explicit Scratch(const Executor& executor) : executor_(executor) {}

  // count elements, aligned to 64 bytes; nullptr for 0 elements or when there
  // is no memory, which ok() then reports.
  template <class C>
  C* Array(int64_t count) {
    if (count == 0 || !ok_) return nullptr;
    constexpr int64_t kMost =
        std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(C));
    void* p = nullptr;
    if (count > 0 && count <= kMost) {
      p = executor_.Allocate(static_cast<std::size_t>(count) * sizeof(C));
    }
    ok_ = p != nullptr;
    return static_cast<C*>(p);
  }

  bool ok() const { return ok_; }

 private:
  const Executor& executor_;
  bool ok_ = true;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_THREADS_SCRATCH_H_
