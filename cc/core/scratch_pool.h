// Implements the reuse of scratch by the layers of a stack, one after another.
// A host frees scratch only when the engine call is over, which is after all
// layers: without reuse a stack of ten would hold ten times what it works with.

#ifndef BLOCKRNN_CORE_SCRATCH_POOL_H_
#define BLOCKRNN_CORE_SCRATCH_POOL_H_

#include <cstddef>

namespace blockrnn {

class ScratchPool {
 public:
  // A block that is free and large enough, of those the smallest; nullptr
  // where there is none.
  void* Take(std::size_t bytes) {
    Block* best = nullptr;
    for (int n = 0; n < num_blocks_; ++n) {
      Block& block = blocks_[n];
      if (block.used || block.bytes < bytes) continue;
      if (best == nullptr || block.bytes < best->bytes) best = &block;
    }
    if (best == nullptr) return nullptr;
    best->used = true;
    return best->data;
  }

  // A new block, in use.
  void Add(void* data, std::size_t bytes) {
    if (num_blocks_ < kMostBlocks) blocks_[num_blocks_++] = {data, bytes, true};
  }

  // All blocks are free again.
  void Recycle() {
    for (int n = 0; n < num_blocks_; ++n) blocks_[n].used = false;
  }

 private:
  struct Block {
    void* data;
    std::size_t bytes;
    bool used;
  };
  // More than the two directions of a layer ask for; one past it is not used
  // again.
  static constexpr int kMostBlocks = 64;

  Block blocks_[kMostBlocks];
  int num_blocks_ = 0;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_CORE_SCRATCH_POOL_H_
