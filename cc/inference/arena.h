// Defines the scratch memory of one call of a session, which the next call uses
// again: once it has grown to what a call needs, nothing is allocated.

#ifndef BLOCKRNN_INFERENCE_ARENA_H_
#define BLOCKRNN_INFERENCE_ARENA_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace blockrnn {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() {
    FreeBlocks();
    std::free(base_);
  }

  // Aligned to 64 bytes; nullptr: no memory, which an array of no bytes never
  // is. From any thread of the call.
  void* Allocate(std::size_t bytes) {
    if (bytes > kMost) return nullptr;
    const std::size_t rounded =
        (std::max(bytes, std::size_t{1}) + kAlignment - 1) / kAlignment *
        kAlignment;
    const std::size_t at = used_.fetch_add(rounded, std::memory_order_relaxed);
    if (at + rounded <= size_) return base_ + at;
    return AllocateBlock(rounded);
  }

  // The call is over.
  void Reset() {
    const std::size_t used = used_.load(std::memory_order_relaxed);
    used_.store(0, std::memory_order_relaxed);
    if (used <= size_) return;
    FreeBlocks();
    if (used > kKept) return;
    std::free(base_);
    base_ = static_cast<char*>(std::aligned_alloc(kAlignment, used));
    size_ = base_ == nullptr ? 0 : used;
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kMost = std::size_t{1} << 46;
  // What is kept for the next call: to allocate more takes a small part of the
  // time of the call that needs it.
  static constexpr std::size_t kKept = std::size_t{64} << 20;

  // Past what the last calls needed.
  void* AllocateBlock(std::size_t bytes) {
    void* const block = std::aligned_alloc(kAlignment, bytes);
    if (block == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    try {
      blocks_.push_back(block);
    } catch (const std::bad_alloc&) {
      std::free(block);
      return nullptr;
    }
    return block;
  }
  void FreeBlocks() {
    for (void* block : blocks_) std::free(block);
    blocks_.clear();
  }

  char* base_ = nullptr;
  std::size_t size_ = 0;
  std::atomic<std::size_t> used_{0};
  std::mutex mutex_;
  std::vector<void*> blocks_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_INFERENCE_ARENA_H_
