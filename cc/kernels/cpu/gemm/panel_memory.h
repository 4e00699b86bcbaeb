// Defines where packed weights are: in scratch of the call that packs them, or
// frozen, in memory that the caller of the engine keeps from call to call.

#ifndef BLOCKRNN_KERNELS_CPU_GEMM_PANEL_MEMORY_H_
#define BLOCKRNN_KERNELS_CPU_GEMM_PANEL_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cc/kernels/cpu/range.h"
#include "cc/kernels/cpu/threads/executor.h"

namespace blockrnn::cpu {

// Hands out memory for panels, part after part. Whoever packs weights and
// whoever reads them take the same parts in the same order.
class PanelMemory {
 public:
  // Scratch of a call. Scratch::ok() reports whether there was any.
  PanelMemory(const Executor& executor, Scratch* scratch)
      : executor_(executor), scratch_(scratch) {}

  // The caller's memory, to be packed into; nullptr: only to be measured.
  PanelMemory(const Executor& executor, void* packed)
      : executor_(executor), packed_(packed) {}

  // The caller's memory, packed before: nothing is written to it.
  static PanelMemory Frozen(const Executor& executor, const void* packed) {
    PanelMemory memory(executor, const_cast<void*>(packed));
    memory.frozen_ = true;
    return memory;
  }

  // Whether the weights are there already.
  bool frozen() const { return frozen_; }
  // Whether what is packed is for other calls.
  bool outlives_call() const { return scratch_ == nullptr; }
  const Executor& executor() const { return executor_; }

  // The next `count` elements, aligned to 64 bytes; nullptr: not to be packed.
  template <class P>
  P* Take(int64_t count) {
    if (scratch_ != nullptr) return scratch_->Array<P>(count);
    const int64_t at = bytes_;
    const int64_t size = count * static_cast<int64_t>(sizeof(P));
    bytes_ += RoundUp(size, 64);
    if (packed_ == nullptr) return nullptr;
    auto* const bytes = static_cast<std::byte*>(packed_);
    // What is left of the last 64 bytes: packing leaves none as it was.
    if (!frozen_) std::fill(bytes + at + size, bytes + bytes_, std::byte{0});
    return reinterpret_cast<P*>(bytes + at);
  }

  // What was taken of the caller's memory.
  int64_t bytes() const { return bytes_; }

 private:
  const Executor& executor_;
  Scratch* const scratch_ = nullptr;
  void* const packed_ = nullptr;
  bool frozen_ = false;
  int64_t bytes_ = 0;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_GEMM_PANEL_MEMORY_H_
