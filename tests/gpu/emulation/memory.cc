// Implements the memory of the emulated device: arrays between unreadable
// pages.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include "tests/gpu/emulation/cuda_runtime.h"

namespace {

constexpr unsigned char kUnwritten = 0xff;  // NaN in every type

// An array ends at an unreadable page, so an access past its end kills the
// process. In front of it lie guard bytes that must keep their value.
struct Allocation {
  unsigned char* pages;
  std::size_t bytes_mapped;
};
std::map<void*, Allocation> allocations;

// Pages of freed arrays, unreadable, by their size: mapping new ones takes
// longer than most kernels of the checks.
std::map<std::size_t, std::vector<unsigned char*>> freed;
constexpr std::size_t kMostFreed = std::size_t{1} << 20;  // larger: unmapped

std::size_t PageBytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Allocates unreadable pages; nullptr on failure.
unsigned char* TakePages(std::size_t bytes) {
  std::vector<unsigned char*>& known = freed[bytes];
  if (!known.empty()) {
    unsigned char* const pages = known.back();
    known.pop_back();
    return pages;
  }
  void* const pages =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages == MAP_FAILED ? nullptr : static_cast<unsigned char*>(pages);
}

void GivePages(unsigned char* pages, std::size_t bytes) {
  if (bytes <= kMostFreed && mprotect(pages, bytes, PROT_NONE) == 0) {
    freed[bytes].push_back(pages);
  } else {
    munmap(pages, bytes);
  }
}

}  // namespace

cudaError_t cudaMalloc(void** device, std::size_t bytes) {
  const std::size_t page = PageBytes();
  const std::size_t inner = (bytes / page + 1) * page;
  const std::size_t mapped = inner + 2 * page;
  unsigned char* const pages = TakePages(mapped);
  if (pages == nullptr) return emulation::Report(cudaErrorMemoryAllocation);
  unsigned char* begin = pages + page;
  if (mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(pages, mapped);
    return emulation::Report(cudaErrorMemoryAllocation);
  }
  std::memset(begin, kUnwritten, inner);
  *device = begin + inner - bytes;
  allocations[*device] = {pages, mapped};
  return cudaSuccess;
}

cudaError_t cudaFree(void* device) {
  if (device == nullptr) return cudaSuccess;
  const auto found = allocations.find(device);
  if (found == allocations.end()) return cudaErrorInvalidValue;
  const Allocation allocation = found->second;
  allocations.erase(found);
  const unsigned char* begin = allocation.pages + PageBytes();
  const bool whole =
      std::all_of(begin, static_cast<const unsigned char*>(device),
                  [](unsigned char byte) { return byte == kUnwritten; });
  GivePages(allocation.pages, allocation.bytes_mapped);
  if (!whole) std::fprintf(stderr, "emulation: write before an array\n");
  return whole ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes,
                       cudaMemcpyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* device, int value, std::size_t bytes) {
  std::memset(device, value, bytes);
  return cudaSuccess;
}
