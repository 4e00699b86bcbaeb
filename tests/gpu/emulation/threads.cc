// Implements the emulated threads: fibers, each of which runs to its next
// barrier.

#include "tests/gpu/emulation/threads.h"

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/emulation/cuda_runtime.h"

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;
constexpr unsigned kWarpThreads = 32;

// Where a jump goes to. GCC's own, which switch stacks without a system call,
// and in a fraction of setjmp's time.
using JumpBuffer = void* [5];

// Not in the function that has the destination.
[[noreturn, gnu::noinline]] void JumpTo(JumpBuffer& destination) {
  __builtin_longjmp(destination, 1);
}

// An asynchronous copy.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Fiber {
  enum State { kNew, kWaiting, kWaitingForWarp, kWaitingForGrid, kDone };
  State state = kNew;
  const char* file = nullptr;  // of the barrier
  int line = 0;
  // What it has passed to its warp, now and the time before: a lane may reach
  // the next exchange before another has read this one's.
  alignas(8) unsigned char given[2][kMostExchanged];
  unsigned exchanges = 0;
  std::vector<Copy> copies;
  std::vector<std::size_t> groups;  // of the copies: where each ends
  bool arrived = false;  // at a grid barrier for which it has not waited
  JumpBuffer resume;
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
JumpBuffer scheduler;
bool reverse = false;
bool meet_early = false;

// Returns when the scheduler resumes the fiber that is running.
[[gnu::noinline]] void Leave(Fiber::State state, const char* file = nullptr,
                             int line = 0) {
  current->state = state;
  current->file = file;
  current->line = line;
  if (__builtin_setjmp(current->resume) == 0) JumpTo(scheduler);
}

// The main function of a fiber. It runs one thread after the other, since
// creating a fiber takes longer than many kernels.
void RunBodies() {
  for (;;) {
    (*body)();
    current->copies.clear();
    current->groups.clear();
    current->arrived = false;
    Leave(Fiber::kDone, "end");
  }
}

// Runs the thread until its next barrier or its end.
[[gnu::noinline]] void Resume(Fiber* fiber) {
  current = fiber;
  if (__builtin_setjmp(scheduler) != 0) return;
  if (fiber->state != Fiber::kNew) JumpTo(fiber->resume);
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &RunBodies, 0);
  setcontext(&fiber->context);
}

bool SamePlace(const Fiber& a, const Fiber& b) {
  const bool anywhere =
      a.state != Fiber::kWaiting && a.state != Fiber::kWaitingForWarp;
  return a.state == b.state &&
         (anywhere || (a.file == b.file && a.line == b.line));
}

// If any lane waits for its warp, the whole warp waits at the same place.
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

// All threads end together or wait at the same barrier.
bool Agree(const Block& block, unsigned threads) {
  const Fiber& first = *block.fibers[0];
  for (unsigned t = 1; t < threads; ++t) {
    const Fiber& fiber = *block.fibers[t];
    if (SamePlace(fiber, first)) continue;
    std::fprintf(stderr,
                 "emulation: threads 0 and %u part at a barrier "
                 "(%s:%d, %s:%d)\n",
                 t, first.file, first.line, fiber.file, fiber.line);
    return false;
  }
  return true;
}

unsigned InOrder(unsigned n, unsigned count) {
  return reverse ? count - 1 - n : n;
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

// All blocks to a grid barrier, then all to the next.
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

// Makes room for `count` blocks at once.
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

}  // namespace

cudaError_t RunGrid(const Grid& grid, const std::function<void()>& thread) {
  const unsigned threads = grid.block.x;
  const unsigned at_once = grid.cooperative ? grid.blocks : 1;
  if (!Prepare(at_once, threads, grid.shared)) return cudaErrorMemoryAllocation;
  body = &thread;
  reverse = grid.reverse;
  meet_early = grid.meet_early;
  blockDim = grid.block;
  gridDim = dim3(grid.blocks);
  const bool agreed = grid.cooperative ? RunTogether(grid.blocks, threads)
                                       : RunOneByOne(grid.blocks, threads);
  const bool whole = FreeShared(at_once);
  if (agreed && whole) return cudaSuccess;
  blocks.clear();  // some of their threads are in the middle of the kernel
  return cudaErrorLaunchFailure;
}

void Barrier(const char* file, int line) { Leave(Fiber::kWaiting, file, line); }

void GridBarrier() { Leave(Fiber::kWaitingForGrid, "barrier of the grid"); }

void GridArrive() {
  if (std::exchange(current->arrived, true)) {
    std::fprintf(stderr, "emulation: a second arrival without a wait\n");
    std::abort();
  }
  if (meet_early) {
    GridBarrier();
  } else {
    Barrier("arrival at the barrier of the grid", 0);
  }
}

void GridWait() {
  if (!std::exchange(current->arrived, false)) {
    std::fprintf(stderr, "emulation: a wait without an arrival\n");
    std::abort();
  }
  if (meet_early) {
    Barrier("wait at the barrier of the grid", 0);
  } else {
    GridBarrier();
  }
}

void GiveToWarp(const void* mine, std::size_t bytes, const char* place) {
  std::memcpy(current->given[current->exchanges++ % 2], mine, bytes);
  Leave(Fiber::kWaitingForWarp, place, static_cast<int>(bytes));
}

const void* OfLane(int lane) {
  const unsigned first = threadIdx.x / kWarpThreads * kWarpThreads;
  const unsigned one = first + static_cast<unsigned>(lane) % kWarpThreads;
  // As often as this lane: both have been at all exchanges of the warp.
  return current_block->fibers[one]->given[(current->exchanges - 1) % 2];
}

void CopyLater(void* to, const void* from, std::size_t bytes) {
  const auto place = reinterpret_cast<std::uintptr_t>(to) |
                     reinterpret_cast<std::uintptr_t>(from);
  if ((bytes != 4 && bytes != 8 && bytes != 16) || place % bytes != 0) {
    std::fprintf(stderr, "emulation: a copy to shared memory out of line\n");
    std::abort();
  }
  current->copies.push_back({to, from, bytes});
}

void CommitCopies() { current->groups.push_back(current->copies.size()); }

void AwaitCopies(std::size_t prior) {
  std::vector<std::size_t>& groups = current->groups;
  if (groups.size() <= prior) return;
  const std::size_t done = groups.size() - prior;
  const std::size_t count = groups[done - 1];
  std::vector<Copy>& copies = current->copies;
  const auto end = copies.begin() + static_cast<std::ptrdiff_t>(count);
  std::for_each(copies.begin(), end, [](const Copy& copy) {
    std::memcpy(copy.to, copy.from, copy.bytes);
  });
  copies.erase(copies.begin(), end);
  groups.erase(groups.begin(),
               groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& group : groups) group -= count;
}

void* DynamicShared() { return current_block->shared; }

}  // namespace emulation
