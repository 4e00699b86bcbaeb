// Defines memory with a guard zone on each side. A write outside is seen as a
// broken canary; under AddressSanitizer the zones are poisoned, so that a read
// is seen too.

#ifndef BLOCKRNN_TESTS_CPP_GUARDED_BLOCK_H_
#define BLOCKRNN_TESTS_CPP_GUARDED_BLOCK_H_

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#define BLOCKRNN_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BLOCKRNN_TEST_ASAN 1
#endif
#endif

#if defined(BLOCKRNN_TEST_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace blockrnn::test {

class GuardedBlock {
 public:
  // The data start `offset` bytes past an address that is aligned to 64 bytes
  // but not to 128, so that no code can rely on more.
  GuardedBlock(std::size_t bytes, std::size_t offset)
      : front_(kGuard + offset), bytes_(bytes) {
    const std::size_t total = front_ + bytes_ + kGuard;
    base_ = static_cast<unsigned char*>(
        std::aligned_alloc(128, (total + 127) / 128 * 128));
    if (base_ == nullptr) std::abort();
    std::fill_n(base_, total, kCanary);
    Poison(base_, front_);
    Poison(base_ + front_ + bytes_, kGuard);
  }
  ~GuardedBlock() {
    Unpoison();
    std::free(base_);
  }
  GuardedBlock(GuardedBlock&& other) noexcept
      : base_(other.base_), front_(other.front_), bytes_(other.bytes_) {
    other.base_ = nullptr;
    other.front_ = 0;
    other.bytes_ = 0;
  }
  GuardedBlock& operator=(GuardedBlock&&) = delete;

  unsigned char* data() const { return base_ + front_; }
  std::size_t size() const { return bytes_; }

  // Whether the guard zones are intact. Unpoisons them.
  bool Intact() const {
    Unpoison();
    const auto is_canary = [](unsigned char c) { return c == kCanary; };
    return std::all_of(base_, base_ + front_, is_canary) &&
           std::all_of(data() + bytes_, data() + bytes_ + kGuard, is_canary);
  }

 private:
  static constexpr std::size_t kGuard = 192;
  static constexpr unsigned char kCanary = 0xA5;

#if defined(BLOCKRNN_TEST_ASAN)
  static void Poison(unsigned char* p, std::size_t n) {
    ASAN_POISON_MEMORY_REGION(p, n);
  }
  void Unpoison() const {
    if (base_ != nullptr) {
      ASAN_UNPOISON_MEMORY_REGION(base_, front_ + bytes_ + kGuard);
    }
  }
#else
  static void Poison(unsigned char*, std::size_t) {}
  void Unpoison() const {}
#endif

  unsigned char* base_;
  std::size_t front_;
  std::size_t bytes_;
};

}  // namespace blockrnn::test

#endif  // BLOCKRNN_TESTS_CPP_GUARDED_BLOCK_H_
