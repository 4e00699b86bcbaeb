// Owns the emulated device: threads as fibers, memory between unreadable pages,
// and the switches by which the checks vary what a GPU leaves open.

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/gpu/emulation/cuda_bf16.h"
#include "tests/gpu/emulation/cuda_fp16.h"
#include "tests/gpu/emulation/cuda_runtime.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr unsigned kMostThreads = 1024;
constexpr unsigned char kUnwritten = 0xff;  // NaN in every type

// What no kernel may depend on; the checks try several.
bool reverse_order = false;  // of the blocks, and of the threads of a block
unsigned most_blocks = 0x7fffffff;

struct Fiber {
  enum State { kNew, kWaiting, kDone };
  State state = kNew;
  const char* file = nullptr;  // of the barrier
  int line = 0;
  jmp_buf resume;
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
};

std::vector<std::unique_ptr<Fiber>> fibers;
Fiber* current = nullptr;
const std::function<void()>* body = nullptr;
jmp_buf scheduler;

// The main function of a fiber. It runs one thread after the other, since to
// make a fiber costs more than many a kernel.
void RunBodies() {
  for (;;) {
    (*body)();
    current->state = Fiber::kDone;
    if (_setjmp(current->resume) == 0) _longjmp(scheduler, 1);
  }
}

// Runs the thread until its next barrier or its end. setjmp and longjmp switch
// without the system call that swapcontext makes.
void Resume(Fiber* fiber) {
  current = fiber;
  if (_setjmp(scheduler) != 0) return;
  if (fiber->state != Fiber::kNew) _longjmp(fiber->resume, 1);
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &RunBodies, 0);
  setcontext(&fiber->context);
}

const char* Place(const Fiber& fiber) {
  return fiber.state == Fiber::kDone ? "end" : fiber.file;
}

// All threads end together or wait at one and the same barrier.
bool Agree(unsigned threads) {
  const Fiber& first = *fibers[0];
  for (unsigned t = 1; t < threads; ++t) {
    const Fiber& fiber = *fibers[t];
    if (fiber.state == first.state &&
        (fiber.state == Fiber::kDone ||
         (fiber.file == first.file && fiber.line == first.line))) {
      continue;
    }
    std::fprintf(stderr,
                 "emulation: threads 0 and %u part at a barrier "
                 "(%s:%d, %s:%d)\n",
                 t, Place(first), first.line, Place(fiber), fiber.line);
    return false;
  }
  return true;
}

bool RunBlock(unsigned threads) {
  do {
    for (unsigned n = 0; n < threads; ++n) {
      const unsigned t = reverse_order ? threads - 1 - n : n;
      threadIdx = dim3(t);
      Resume(fibers[t].get());
    }
    if (!Agree(threads)) return false;
  } while (fibers[0]->state != Fiber::kDone);
  return true;
}

// An array ends where an unreadable page begins, so the first element past it
// kills the process. Before it lie bytes that must keep their value.
struct Allocation {
  unsigned char* pages;
  std::size_t bytes_mapped;
};
std::map<void*, Allocation> allocations;

std::size_t PageBytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

void Barrier(const char* file, int line) {
  current->state = Fiber::kWaiting;
  current->file = file;
  current->line = line;
  if (_setjmp(current->resume) == 0) _longjmp(scheduler, 1);
}

cudaError_t Launch(const cudaLaunchConfig_t& config,
                   const std::function<void()>& thread) {
  if (config.stream == nullptr) return cudaErrorInvalidResourceHandle;
  const unsigned threads = config.blockDim.x;
  if (config.gridDim.x == 0 || config.gridDim.x > 0x7fffffff || threads == 0 ||
      threads > kMostThreads) {
    return cudaErrorInvalidConfiguration;
  }
  while (fibers.size() < threads) {
    fibers.push_back(std::make_unique<Fiber>());
  }
  body = &thread;
  blockDim = config.blockDim;
  gridDim = dim3(std::min(config.gridDim.x, most_blocks));
  for (unsigned n = 0; n < gridDim.x; ++n) {
    blockIdx = dim3(reverse_order ? gridDim.x - 1 - n : n);
    if (!RunBlock(threads)) {
      fibers.clear();  // some of them are in the middle of the kernel
      return cudaErrorLaunchFailure;
    }
  }
  return cudaSuccess;
}

}  // namespace emulation

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
  }
  return "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaMalloc(void** device, std::size_t bytes) {
  const std::size_t page = emulation::PageBytes();
  const std::size_t inner = (bytes / page + 1) * page;
  const std::size_t mapped = inner + 2 * page;
  void* pages =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return cudaErrorMemoryAllocation;
  unsigned char* begin = static_cast<unsigned char*>(pages) + page;
  if (mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(pages, mapped);
    return cudaErrorMemoryAllocation;
  }
  std::memset(begin, emulation::kUnwritten, inner);
  *device = begin + inner - bytes;
  emulation::allocations[*device] = {static_cast<unsigned char*>(pages),
                                     mapped};
  return cudaSuccess;
}

cudaError_t cudaFree(void* device) {
  const auto found = emulation::allocations.find(device);
  if (found == emulation::allocations.end()) return cudaErrorInvalidValue;
  const emulation::Allocation allocation = found->second;
  emulation::allocations.erase(found);
  const unsigned char* begin = allocation.pages + emulation::PageBytes();
  const bool whole = std::all_of(
      begin, static_cast<const unsigned char*>(device),
      [](unsigned char byte) { return byte == emulation::kUnwritten; });
  munmap(allocation.pages, allocation.bytes_mapped);
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

cudaError_t cudaMemsetAsync(void* device, int value, std::size_t bytes,
                            cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  return cudaMemset(device, value, bytes);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static char the_stream;
  *stream = reinterpret_cast<cudaStream_t>(&the_stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

EXPORT void emulation_vary(int reverse, unsigned blocks) {
  emulation::reverse_order = reverse != 0;
  emulation::most_blocks = blocks;
}

// For a check of the conversions themselves.
EXPORT void emulation_round(const float* in, int64_t count, uint16_t* half,
                            uint16_t* bfloat16) {
  for (int64_t n = 0; n < count; ++n) {
    half[n] = __float2half_rn(in[n]).bits;
    bfloat16[n] = __float2bfloat16_rn(in[n]).bits;
  }
}

EXPORT void emulation_widen(const uint16_t* in, int64_t count, float* half,
                            float* bfloat16) {
  for (int64_t n = 0; n < count; ++n) {
    half[n] = __half2float({in[n]});
    bfloat16[n] = __bfloat162float({in[n]});
  }
}
