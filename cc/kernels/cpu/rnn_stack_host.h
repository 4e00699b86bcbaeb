// Owns what a stack lends to the sequences it runs: a share of its host's
// threads, and scratch that the layers have one after another.

#ifndef BLOCKRNN_KERNELS_CPU_RNN_STACK_HOST_H_
#define BLOCKRNN_KERNELS_CPU_RNN_STACK_HOST_H_

#include <cstddef>

#include "cc/kernels/cpu/engine.h"

namespace blockrnn::cpu {

// The host of one sequence at a time. A host frees scratch when the engine call
// is over, which here is all layers: without reuse a stack of ten would hold
// ten times what it works with. What a layer had, the next one gets.
class LayerHost {
 public:
  LayerHost(const Host& lender, int num_threads) : lender_(lender) {
    host_.context = this;
    host_.num_threads = num_threads;
    if (lender.schedule != nullptr) host_.schedule = &Schedule;
    host_.allocate = &Allocate;
    if (lender.cancelled != nullptr) host_.cancelled = &Cancelled;
  }
  LayerHost(const LayerHost&) = delete;
  LayerHost& operator=(const LayerHost&) = delete;

  const Host& host() const { return host_; }

  // The sequence is over, and its scratch the next one's. A helper that still
  // comes reads none of it.
  void Recycle() {
    for (int n = 0; n < num_blocks_; ++n) blocks_[n].used = false;
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
    bool used;
  };
  // More than a sequence asks for; a request past it is not reused.
  static constexpr int kMostBlocks = 64;

  static void Schedule(void* context, void (*run)(void* arg), void* arg) {
    const Host& lender = static_cast<LayerHost*>(context)->lender_;
    lender.schedule(lender.context, run, arg);
  }

  static bool Cancelled(void* context) {
    const Host& lender = static_cast<LayerHost*>(context)->lender_;
    return lender.cancelled(lender.context);
  }

  static void* Allocate(void* context, std::size_t bytes) {
    return static_cast<LayerHost*>(context)->Take(bytes);
  }

  // The smallest block that is free and large enough, or else a new one.
  void* Take(std::size_t bytes) {
    Block* best = nullptr;
    for (int n = 0; n < num_blocks_; ++n) {
      Block& block = blocks_[n];
      if (block.used || block.bytes < bytes) continue;
      if (best == nullptr || block.bytes < best->bytes) best = &block;
    }
    if (best != nullptr) {
      best->used = true;
      return best->data;
    }
    void* const data = lender_.allocate(lender_.context, bytes);
    if (data != nullptr && num_blocks_ < kMostBlocks) {
      blocks_[num_blocks_++] = {data, bytes, true};
    }
    return data;
  }

  const Host& lender_;
  Host host_;
  Block blocks_[kMostBlocks];
  int num_blocks_ = 0;
};

}  // namespace blockrnn::cpu

#endif  // BLOCKRNN_KERNELS_CPU_RNN_STACK_HOST_H_
