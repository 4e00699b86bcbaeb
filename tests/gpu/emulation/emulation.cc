// Owns the emulated device: threads as fibers, and the switches by which the
// checks vary what a GPU leaves open.

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
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

// What no kernel may depend on; the checks try several.
bool reverse_order = false;  // of the blocks, and of the threads of a block
unsigned most_blocks = 0x7fffffff;

// The device.
int multiprocessors = 4;
unsigned largest_grid = 0;            // of a cooperative launch
std::size_t most_shared = 64 * 1024;  // dynamic, of a block that asks for it
unsigned most_together = 0x7fffffff;  // blocks that this process is allowed
int launches_together = 0;            // cooperative ones so far
constexpr std::size_t kSharedUnasked = 48 * 1024;
constexpr int kMostThreadsAtOnce = 2048;  // of a multiprocessor
int capability = 8;                       // major
int multiplied = 0;                       // by tensor cores, so far
constexpr unsigned kWarpThreads = 32;

struct Fiber {
  enum State { kNew, kWaiting, kWaitingForWarp, kWaitingForGrid, kDone };
  State state = kNew;
  const char* file = nullptr;  // of the barrier
  int line = 0;
  // What it has given to its warp, now and the time before: a lane may come to
  // the next exchange before another has read this one's.
  alignas(8) unsigned char given[2][kMostExchanged];
  unsigned exchanges = 0;
  jmp_buf resume;
  ucontext_t context;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
};

// The threads of a block and its dynamic shared memory.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  void* shared = nullptr;
};

std::vector<Block> blocks;  // those at work, then idle ones
Block* current_block = nullptr;
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

bool SamePlace(const Fiber& a, const Fiber& b) {
  const bool anywhere =
      a.state != Fiber::kWaiting && a.state != Fiber::kWaitingForWarp;
  return a.state == b.state &&
         (anywhere || (a.file == b.file && a.line == b.line));
}

// If any lane waits for its warp, a whole warp waits at one and the same place.
bool WarpAgrees(const Block& block, unsigned first, unsigned lanes) {
  unsigned waiting = lanes;  // one of those that do
  for (unsigned n = 0; n < lanes; ++n) {
    if (block.fibers[first + n]->state == Fiber::kWaitingForWarp) waiting = n;
  }
  if (waiting == lanes) return true;
  const Fiber& one = *block.fibers[first + waiting];
  for (unsigned n = 0; n < kWarpThreads; ++n) {
    if (n < lanes && SamePlace(*block.fibers[first + n], one)) continue;
    std::fprintf(stderr,
                 "emulation: lane %u of a warp misses the %s of lane %u\n", n,
                 one.file, waiting);
    return false;
  }
  return true;
}

// All threads end together or wait at one and the same barrier.
bool Agree(const Block& block, unsigned threads) {
  const Fiber& first = *block.fibers[0];
  for (unsigned t = 1; t < threads; ++t) {
    const Fiber& fiber = *block.fibers[t];
    if (SamePlace(fiber, first)) continue;
    std::fprintf(stderr,
                 "emulation: threads 0 and %u part at a barrier "
                 "(%s:%d, %s:%d)\n",
                 t, Place(first), first.line, Place(fiber), fiber.line);
    return false;
  }
  return true;
}

unsigned InOrder(unsigned n, unsigned count) {
  return reverse_order ? count - 1 - n : n;
}

// Runs a warp until its next barrier of the block or grid, or its end.
bool RunWarp(Block& block, unsigned first, unsigned lanes) {
  do {
    for (unsigned n = 0; n < lanes; ++n) {
      const unsigned t = first + InOrder(n, lanes);
      threadIdx = dim3(t);
      Resume(block.fibers[t].get());
    }
    if (!WarpAgrees(block, first, lanes)) return false;
  } while (block.fibers[first]->state == Fiber::kWaitingForWarp);
  return true;
}

// Runs a block until its next barrier of the grid or its end.
bool RunBlock(Block& block, unsigned threads) {
  current_block = &block;
  const unsigned warps = (threads + kWarpThreads - 1) / kWarpThreads;
  do {
    for (unsigned n = 0; n < warps; ++n) {
      const unsigned first = InOrder(n, warps) * kWarpThreads;
      if (!RunWarp(block, first, std::min(kWarpThreads, threads - first))) {
        return false;
      }
    }
    if (!Agree(block, threads)) return false;
  } while (block.fibers[0]->state == Fiber::kWaiting);
  return true;
}

// Each block to its end before the next one begins.
bool RunOneByOne(unsigned count, unsigned threads) {
  for (unsigned n = 0; n < count; ++n) {
    blockIdx = dim3(InOrder(n, count));
    if (!RunBlock(blocks[0], threads)) return false;
    if (blocks[0].fibers[0]->state != Fiber::kDone) {
      std::fprintf(stderr,
                   "emulation: a barrier of the grid in a launch that "
                   "is not cooperative\n");
      return false;
    }
  }
  return true;
}

// All blocks to a barrier of the grid, then all to the next.
bool RunTogether(unsigned count, unsigned threads) {
  do {
    for (unsigned n = 0; n < count; ++n) {
      const unsigned b = InOrder(n, count);
      blockIdx = dim3(b);
      if (!RunBlock(blocks[b], threads)) return false;
    }
    for (unsigned b = 1; b < count; ++b) {
      if (blocks[b].fibers[0]->state == blocks[0].fibers[0]->state) continue;
      std::fprintf(stderr,
                   "emulation: blocks 0 and %u part at a barrier of the grid\n",
                   b);
      return false;
    }
  } while (blocks[0].fibers[0]->state != Fiber::kDone);
  return true;
}

// What a kernel asked for; without, it gets as much as any.
std::map<const void*, std::size_t> shared_asked;

bool SharedAllowed(const void* kernel, std::size_t bytes) {
  const auto asked = shared_asked.find(kernel);
  return bytes <=
         (asked == shared_asked.end() ? kSharedUnasked : asked->second);
}

// Room for `count` blocks at once.
bool Prepare(unsigned count, unsigned threads, std::size_t shared) {
  if (blocks.size() < count) blocks.resize(count);
  for (unsigned b = 0; b < count; ++b) {
    while (blocks[b].fibers.size() < threads) {
      blocks[b].fibers.push_back(std::make_unique<Fiber>());
    }
    blocks[b].shared = nullptr;
    if (shared > 0 && cudaMalloc(&blocks[b].shared, shared) != cudaSuccess) {
      return false;
    }
  }
  return true;
}

bool FreeShared(unsigned count) {
  bool whole = true;
  for (unsigned b = 0; b < count; ++b) {
    if (blocks[b].shared == nullptr) continue;
    whole = cudaFree(blocks[b].shared) == cudaSuccess && whole;
    blocks[b].shared = nullptr;
  }
  return whole;
}

bool IsCooperative(const cudaLaunchConfig_t& config) {
  for (unsigned a = 0; a < config.numAttrs; ++a) {
    if (config.attrs[a].id == cudaLaunchAttributeCooperative &&
        config.attrs[a].val.cooperative != 0) {
      return true;
    }
  }
  return false;
}

// All blocks of a launch.
cudaError_t RunGrid(unsigned count, dim3 block_dim, std::size_t shared,
                    bool cooperative, const std::function<void()>& thread) {
  const unsigned threads = block_dim.x;
  const unsigned at_once = cooperative ? count : 1;
  if (!Prepare(at_once, threads, shared)) return cudaErrorMemoryAllocation;
  body = &thread;
  blockDim = block_dim;
  gridDim = dim3(count);
  const bool agreed =
      cooperative ? RunTogether(count, threads) : RunOneByOne(count, threads);
  const bool whole = FreeShared(at_once);
  if (agreed && whole) return cudaSuccess;
  blocks.clear();  // some of their threads are in the middle of the kernel
  return cudaErrorLaunchFailure;
}

}  // namespace

void Barrier(const char* file, int line) {
  current->state = Fiber::kWaiting;
  current->file = file;
  current->line = line;
  if (_setjmp(current->resume) == 0) _longjmp(scheduler, 1);
}

void GridBarrier() {
  current->state = Fiber::kWaitingForGrid;
  current->file = "barrier of the grid";
  current->line = 0;
  if (_setjmp(current->resume) == 0) _longjmp(scheduler, 1);
}

void GiveToWarp(const void* mine, std::size_t bytes, const char* place) {
  std::memcpy(current->given[current->exchanges++ % 2], mine, bytes);
  current->state = Fiber::kWaitingForWarp;
  current->file = place;
  current->line = static_cast<int>(bytes);
  if (_setjmp(current->resume) == 0) _longjmp(scheduler, 1);
}

const void* OfLane(int lane) {
  const unsigned first = threadIdx.x / kWarpThreads * kWarpThreads;
  const unsigned one = first + static_cast<unsigned>(lane) % kWarpThreads;
  // As often as this lane: both have been at all exchanges of the warp.
  return current_block->fibers[one]->given[(current->exchanges - 1) % 2];
}

bool HasTensorCores() { return capability >= 8; }

void CountMma() { ++multiplied; }

void* DynamicShared() { return current_block->shared; }

cudaError_t SetMostShared(const void* kernel, std::size_t bytes) {
  if (bytes > most_shared) return cudaErrorInvalidValue;
  shared_asked[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t MostBlocks(int* count, const void* kernel, int threads,
                       std::size_t dynamic_shared) {
  *count = 0;
  if (!SharedAllowed(kernel, dynamic_shared)) return cudaSuccess;
  const std::size_t by_shared =
      dynamic_shared == 0 ? kMostThreadsAtOnce : most_shared / dynamic_shared;
  *count = static_cast<int>(std::min<std::size_t>(
      by_shared, static_cast<std::size_t>(kMostThreadsAtOnce / threads)));
  return cudaSuccess;
}

cudaError_t Launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
  if (config.stream == nullptr) return cudaErrorInvalidResourceHandle;
  const unsigned threads = config.blockDim.x;
  if (config.gridDim.x == 0 || config.gridDim.x > 0x7fffffff || threads == 0 ||
      threads > kMostThreads) {
    return cudaErrorInvalidConfiguration;
  }
  const bool cooperative = IsCooperative(config);
  if (!SharedAllowed(kernel, config.dynamicSmemBytes)) {
    return cudaErrorInvalidValue;
  }
  if (cooperative) {
    int at_once = 0;
    MostBlocks(&at_once, kernel, static_cast<int>(threads),
               config.dynamicSmemBytes);
    if (config.gridDim.x > most_together ||
        config.gridDim.x > static_cast<unsigned>(at_once * multiprocessors)) {
      return cudaErrorCooperativeLaunchTooLarge;
    }
    largest_grid = std::max(largest_grid, config.gridDim.x);
    ++launches_together;
  }
  const unsigned count =
      cooperative ? config.gridDim.x : std::min(config.gridDim.x, most_blocks);
  return Enqueue(config.stream, [=, block = config.blockDim,
                                 shared = config.dynamicSmemBytes] {
    return RunGrid(count, block, shared, cooperative, thread);
  });
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
    case cudaErrorCooperativeLaunchTooLarge:
      return "too many blocks in cooperative launch";
  }
  return "unknown error";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = emulation::multiprocessors;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = emulation::capability;
      return cudaSuccess;
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(emulation::most_shared);
      return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

EXPORT void emulation_vary(int reverse, unsigned blocks) {
  emulation::reverse_order = reverse != 0;
  emulation::most_blocks = blocks;
}

// The largest grid of a cooperative launch since the last call.
EXPORT unsigned emulation_largest_grid() {
  return std::exchange(emulation::largest_grid, 0);
}

// Another device: fewer or more multiprocessors, and shared memory for a block.
EXPORT void emulation_device(int multiprocessors, std::size_t most_shared) {
  emulation::multiprocessors = multiprocessors;
  emulation::most_shared = most_shared;
}

// As where a process has been given only a part of the device: cooperative
// launches of more blocks than these fail. Returns how many have not so far.
EXPORT int emulation_allow_together(unsigned blocks) {
  emulation::most_together = blocks;
  return emulation::launches_together;
}

// A device before or after the tensor cores that the kernels use: 7 or 8.
EXPORT void emulation_capability(int major) { emulation::capability = major; }

// Multiplications by tensor cores since the last call, of a warp each.
EXPORT int emulation_multiplied() {
  return std::exchange(emulation::multiplied, 0);
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
