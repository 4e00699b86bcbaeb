// Shows that the emulation detects what it is meant to: each mode of this
// program makes one mistake that a kernel can make, and prints how the
// emulation reported it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/kernels/cuda/step/mma.cuh"
#include "tests/gpu/emulation/cooperative_groups.h"
#include "tests/gpu/emulation/cuda_runtime.h"

extern "C" void emulation_vary(int order, unsigned blocks);
extern "C" void emulation_device(int multiprocessors, std::size_t most_shared);

namespace {

constexpr int kThreads = 64;
constexpr int kBlocks = 3;

// Each thread reads its neighbour's value.
template <bool kWait>
__global__ void Shift(int* out) {
  __shared__ int values[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  values[t] = 10 * t + static_cast<int>(blockIdx.x);
  if (kWait) __syncthreads();
  out[t] = values[(t + 1) % kThreads];
  __syncthreads();
  values[t] = -1;
}

__global__ void Write(int* out, int at) {
  if (threadIdx.x == 0) out[at] = 1;
}

__global__ void WriteShared(int at) {
  if (threadIdx.x == 0) static_cast<int*>(emulation::DynamicShared())[at] = 1;
}

// Each block reads its neighbour's value of the previous step, twice.
template <bool kWait>
__global__ void ShiftOverGrid(int* out, int* values) {
  auto* const own = static_cast<int*>(emulation::DynamicShared());
  const int t = static_cast<int>(threadIdx.x);
  const int b = static_cast<int>(blockIdx.x);
  own[t] = 10 * b;
  for (int step = 0; step < 2; ++step) {
    int* const now = values + step * kBlocks;
    if (t == 0) now[b] = 100 * step + own[t];
    if (kWait) cooperative_groups::this_grid().sync();
    if (t == 0) own[t] += now[(b + 1) % kBlocks];
    __syncthreads();
  }
  if (t == 0) out[b] = own[t];
}

// The same by a barrier in two parts, at which a block stores before it arrives
// and loads after it has waited; or not so.
enum class Split { kRight, kLateStore, kEarlyLoad };
template <Split kSplit>
__global__ void ShiftOverParts(int* out, int* values) {
  auto* const own = static_cast<int*>(emulation::DynamicShared());
  const auto grid = cooperative_groups::this_grid();
  const int t = static_cast<int>(threadIdx.x);
  const int b = static_cast<int>(blockIdx.x);
  own[t] = 10 * b;
  for (int step = 0; step < 2; ++step) {
    int* const now = values + step * kBlocks;
    const auto store = [&] {
      if (t == 0) now[b] = 100 * step + own[t];
    };
    int loaded = 0;
    const auto load = [&] { loaded = now[(b + 1) % kBlocks]; };
    if (kSplit != Split::kLateStore) store();
    auto token = grid.barrier_arrive();
    if (kSplit == Split::kLateStore) store();
    if (kSplit == Split::kEarlyLoad) load();
    grid.barrier_wait(std::move(token));
    if (kSplit != Split::kEarlyLoad) load();
    if (t == 0) own[t] += loaded;
    __syncthreads();
  }
  if (t == 0) out[b] = own[t];
}

// Two small integers, as elements of a register.
template <class S>
uint32_t PairOf(unsigned seed) {
  S elements[2];
  blockrnn::cuda::Round(static_cast<float>(seed % 17) - 8, &elements[0]);
  blockrnn::cuda::Round(static_cast<float>(seed / 17 % 17) - 8, &elements[1]);
  uint32_t pair;
  std::memcpy(&pair, elements, sizeof(pair));
  return pair;
}

// A warp multiplies twice, the second time onto the first result.
template <class S, bool kPlain>
__global__ void Multiply(float* out) {
  const auto t = static_cast<unsigned>(threadIdx.x);
  float c[4] = {1.0f * t, 0.5f, -2.0f, 0.25f * t};
  for (unsigned n = 0; n < 2; ++n) {
    const auto pair = [&](unsigned which) {
      return PairOf<S>((6 * (2 * t + n) + which + 1) * 2654435761u >> 8);
    };
    const uint32_t a[4] = {pair(0), pair(1), pair(2), pair(3)};
    const uint32_t b[2] = {pair(4), pair(5)};
    if (kPlain) {
      blockrnn::cuda::PlainMma<S>(a, b, c);
    } else {
      blockrnn::cuda::Mma<S>(a, b, c);
    }
  }
  for (unsigned n = 0; n < 4; ++n) out[4 * t + n] = c[n];
}

// Half of the threads wait for the block, the others for something else or for
// nothing.
template <void (*kOther)()>
__global__ void Part() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    kOther();
  }
}
void Nothing() {}
void AnotherBarrier() { __syncthreads(); }
void SyncGrid() { cooperative_groups::this_grid().sync(); }

// One lane of a warp multiplies later than the others, or not at all.
template <void (*kOfOne)(), void (*kOfOthers)()>
__global__ void PartOverWarp() {
  threadIdx.x == 40 ? kOfOne() : kOfOthers();
}
void MultiplyOnce() {
  float c[4] = {};
  blockrnn::cuda::Mma<__half>({0, 0, 0, 0}, {0, 0}, c);
}
void WaitAndMultiply() {
  __syncthreads();
  MultiplyOnce();
}
void MultiplyAndWait() {
  MultiplyOnce();
  __syncthreads();
}
void Shuffle() { __shfl_sync(0xffffffff, 1.0f, 0); }

// One block misses the barrier of the grid.
__global__ void PartOverGrid() {
  if (blockIdx.x != 1) SyncGrid();
}

template <class T = int>
T* Array(int elements = kThreads) {
  void* device = nullptr;
  cudaMalloc(&device, elements * sizeof(T));
  return static_cast<T*>(device);
}

cudaLaunchConfig_t Config(unsigned blocks = 1) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  cudaStreamCreateWithFlags(&config.stream, cudaStreamNonBlocking);
  return config;
}

cudaLaunchConfig_t Cooperative(std::size_t shared = 0) {
  static cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = Config(kBlocks);
  config.dynamicSmemBytes = shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return config;
}

// What a launch reports.
template <class... Params, class... Args>
const char* Run(const cudaLaunchConfig_t& config, void (*kernel)(Params...),
                Args... args) {
  return cudaGetErrorString(cudaLaunchKernelEx(&config, kernel, args...));
}

// What freeing the array reports to which a kernel wrote.
const char* WriteAt(int at) {
  int* const out = Array();
  Run(Config(), Write, out, at);
  return cudaGetErrorString(cudaFree(out));
}

const char* Agree(bool agree) { return agree ? "agree" : "differ"; }

// The emulated instruction and the engine's replacement, written independently,
// agree.
template <class S>
bool MultiplicationsAgree() {
  auto* const out = Array<float>(8 * kThreads);
  Run(Config(), Multiply<S, false>, out);
  Run(Config(), Multiply<S, true>, out + 4 * kThreads);
  return std::equal(out, out + 4 * kThreads, out + 4 * kThreads) &&
         std::fabs(out[0]) + std::fabs(out[4 * kThreads - 1]) > 100;
}

const char* OrdersAgree(void (*kernel)(int*)) {
  int* const results[] = {Array(), Array()};
  for (int reverse = 0; reverse < 2; ++reverse) {
    emulation_vary(reverse, 1);
    Run(Config(), kernel, results[reverse]);
  }
  return Agree(std::equal(results[0], results[0] + kThreads, results[1]));
}

// In all orders of blocks, and wherever they meet.
const char* GridOrdersAgree(void (*kernel)(int*, int*)) {
  std::vector<std::vector<int>> results;
  for (int order = 0; order < 4; ++order) {
    emulation_vary(order, 1);
    int* const out = Array();
    Run(Cooperative(kThreads * sizeof(int)), kernel, out, Array());
    results.emplace_back(out, out + kBlocks);
  }
  return Agree(results[0][0] == 10 + 130 &&
               results == std::vector<std::vector<int>>(4, results[0]));
}

constexpr int kMuchShared = 50 * 1024;
const char* AskForShared() {
  cudaFuncSetAttribute(WriteShared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       kMuchShared);
  return "";
}

using Mode = const char* (*)();
const std::map<std::string, Mode> kModes = {
    {"barrier", [] { return OrdersAgree(Shift<true>); }},
    {"missing barrier", [] { return OrdersAgree(Shift<false>); }},
    {"inside", [] { return WriteAt(kThreads - 1); }},
    {"past the end", [] { return WriteAt(kThreads); }},
    {"before the start", [] { return WriteAt(-1); }},
    {"missed barrier", [] { return Run(Config(), Part<Nothing>); }},
    {"two barriers", [] { return Run(Config(), Part<AnotherBarrier>); }},
    {"after a failure",
     [] {
       const cudaLaunchConfig_t config = Config();
       Run(config, Part<Nothing>);
       return Run(config, Write, Array(), 0);
     }},
    {"error left",
     [] {
       Run(Config(0), Part<Nothing>);
       return cudaGetErrorString(cudaGetLastError());
     }},
    {"error taken",
     [] {
       Run(Config(0), Part<Nothing>);
       static_cast<void>(cudaGetLastError());
       return cudaGetErrorString(cudaGetLastError());
     }},
    {"empty grid", [] { return Run(Config(0), Part<Nothing>); }},
    {"default stream",
     [] {
       cudaLaunchConfig_t config = Config();
       config.stream = nullptr;
       return Run(config, Part<Nothing>);
     }},
    {"grid barrier", [] { return GridOrdersAgree(ShiftOverGrid<true>); }},
    {"missing grid barrier",
     [] { return GridOrdersAgree(ShiftOverGrid<false>); }},
    {"split barrier",
     [] { return GridOrdersAgree(ShiftOverParts<Split::kRight>); }},
    {"store after arrival",
     [] { return GridOrdersAgree(ShiftOverParts<Split::kLateStore>); }},
    {"load before wait",
     [] { return GridOrdersAgree(ShiftOverParts<Split::kEarlyLoad>); }},
    {"parted grid", [] { return Run(Cooperative(), PartOverGrid); }},
    {"grid and block", [] { return Run(Cooperative(), Part<SyncGrid>); }},
    {"not cooperative", [] { return Run(Config(kBlocks), PartOverGrid); }},
    {"too many blocks",
     [] {
       emulation_device(1, 64 * 1024);
       return Run(Cooperative(30 * 1024), WriteShared, 0);
     }},
    {"shared unasked",
     [] { return Run(Cooperative(kMuchShared), WriteShared, 0); }},
    {"shared asked",
     [] {
       AskForShared();
       return Run(Cooperative(kMuchShared), WriteShared, 0);
     }},
    {"past the shared",
     [] {
       AskForShared();
       return Run(Cooperative(kMuchShared), WriteShared, kMuchShared / 4);
     }},
    {"mma",
     [] {
       return Agree(MultiplicationsAgree<__half>() &&
                    MultiplicationsAgree<__nv_bfloat16>());
     }},
    {"parted warp",
     [] { return Run(Config(), PartOverWarp<Nothing, MultiplyOnce>); }},
    {"warp and block",
     [] {
       return Run(Config(), PartOverWarp<WaitAndMultiply, MultiplyAndWait>);
     }},
    {"mma and shuffle",
     [] { return Run(Config(), PartOverWarp<Shuffle, MultiplyOnce>); }},
};

}  // namespace

int main(int, char** argv) {
  std::puts(kModes.at(argv[1])());
  return 0;
}
