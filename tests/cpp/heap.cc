// Implements a heap that can run dry for one thread, by interposing glibc's.

#include "tests/cpp/heap.h"

#include <cerrno>
#include <cstdlib>

#include "tests/cpp/guarded_block.h"

#if defined(__GLIBC__) && !defined(BLOCKRNN_TEST_ASAN) && \
    !defined(__SANITIZE_THREAD__)
#define BLOCKRNN_TEST_OWN_HEAP 1
#endif

namespace blockrnn::test {
namespace {

thread_local bool heap_is_dry = false;

}  // namespace

HeapIsDry::HeapIsDry(bool dry) : before_(heap_is_dry) { heap_is_dry = dry; }
HeapIsDry::~HeapIsDry() { heap_is_dry = before_; }

#if defined(BLOCKRNN_TEST_OWN_HEAP)

bool HeapCanRunDry() { return true; }

#else

bool HeapCanRunDry() { return false; }

#endif

}  // namespace blockrnn::test

#if defined(BLOCKRNN_TEST_OWN_HEAP)

using blockrnn::test::heap_is_dry;

// glibc's own functions, under the names that it exports for interposition.
extern "C" {

void* __libc_malloc(std::size_t size) noexcept;                       // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size) noexcept;    // NOLINT
void* __libc_realloc(void* p, std::size_t size) noexcept;             // NOLINT
void* __libc_memalign(std::size_t align, std::size_t size) noexcept;  // NOLINT

void* malloc(std::size_t size) noexcept {
  return heap_is_dry ? nullptr : __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  return heap_is_dry ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* p, std::size_t size) noexcept {
  return heap_is_dry ? nullptr : __libc_realloc(p, size);
}
void* aligned_alloc(std::size_t align, std::size_t size) noexcept {
  return heap_is_dry ? nullptr : __libc_memalign(align, size);
}
int posix_memalign(void** p, std::size_t align, std::size_t size) noexcept {
  *p = heap_is_dry ? nullptr : __libc_memalign(align, size);
  return *p == nullptr ? ENOMEM : 0;
}

}  // extern "C"

#endif  // BLOCKRNN_TEST_OWN_HEAP
