// Shows that the emulation detects what it is meant to: each mode of this
// program makes one mistake that a kernel can make, and prints how the
// emulation reported it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
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

// Half of the threads miss the barrier.
__global__ void Part(int* out) {
  if (threadIdx.x % 2 == 0) __syncthreads();
  out[threadIdx.x] = 1;
}

// Threads wait at two barriers of different places.
__global__ void Cross(int* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
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

// One block misses the barrier of the grid.
__global__ void PartOverGrid(int* out) {
  if (blockIdx.x != 1) cooperative_groups::this_grid().sync();
  out[threadIdx.x] = 1;
}

// Half of a block's threads wait for the grid, the others for the block.
__global__ void CrossOverGrid(int* out) {
  if (threadIdx.x % 2 == 0) {
    cooperative_groups::this_grid().sync();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void WriteShared(int at) {
  if (threadIdx.x == 0) static_cast<int*>(emulation::DynamicShared())[at] = 1;
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

cudaLaunchConfig_t Config(unsigned blocks) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  cudaStreamCreateWithFlags(&config.stream, cudaStreamNonBlocking);
  return config;
}

// The emulated instruction and the engine's replacement, written independently,
// agree.
template <class S>
bool MultiplicationsAgree() {
  void* memory = nullptr;
  cudaMalloc(&memory, 8 * kThreads * sizeof(float));
  auto* const out = static_cast<float*>(memory);
  const cudaLaunchConfig_t config = Config(1);
  if (cudaLaunchKernelEx(&config, Multiply<S, false>, out) != cudaSuccess ||
      cudaLaunchKernelEx(&config, Multiply<S, true>, out + 4 * kThreads) !=
          cudaSuccess) {
    return false;
  }
  const bool agree = std::equal(out, out + 4 * kThreads, out + 4 * kThreads);
  const bool any = std::fabs(out[0]) + std::fabs(out[4 * kThreads - 1]) > 100;
  cudaFree(memory);
  return agree && any;
}

// One lane of a warp misses the multiplication.
__global__ void PartOverWarp(float* out) {
  float c[4] = {};
  if (threadIdx.x != 40) {
    blockrnn::cuda::Mma<__half>({0, 0, 0, 0}, {0, 0}, c);
  }
  out[threadIdx.x] = c[0];
}

// One lane waits for the block, the others for it.
__global__ void CrossOverWarp(float* out) {
  float c[4] = {};
  if (threadIdx.x == 40) __syncthreads();
  blockrnn::cuda::Mma<__half>({0, 0, 0, 0}, {0, 0}, c);
  if (threadIdx.x != 40) __syncthreads();
  out[threadIdx.x] = c[0];
}

// Half of a warp multiplies, the other half shuffles.
__global__ void TwoOverWarp(float* out) {
  float c[4] = {};
  if (threadIdx.x % 2 == 0) {
    blockrnn::cuda::Mma<__half>({0, 0, 0, 0}, {0, 0}, c);
  } else {
    c[0] = __shfl_sync(0xffffffff, c[1], 0);
  }
  out[threadIdx.x] = c[0];
}

int* Array() {
  void* device = nullptr;
  if (cudaMalloc(&device, kThreads * sizeof(int)) != cudaSuccess)
    return nullptr;
  return static_cast<int*>(device);
}

template <bool kWait>
bool OrdersAgree() {
  std::vector<std::vector<int>> results;
  for (int reverse = 0; reverse < 2; ++reverse) {
    emulation_vary(reverse, 1);
    int* out = Array();
    const cudaLaunchConfig_t config = Config(1);
    cudaLaunchKernelEx(&config, Shift<kWait>, out);
    results.emplace_back(out, out + kThreads);
    cudaFree(out);
  }
  return results[0] == results[1];
}

cudaLaunchConfig_t Cooperative(unsigned blocks) {
  static cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = Config(blocks);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return config;
}

// In all orders of blocks, and wherever they meet.
const char* GridOrdersAgree(void (*kernel)(int*, int*)) {
  std::vector<std::vector<int>> results;
  for (int order = 0; order < 4; ++order) {
    emulation_vary(order, 1);
    int* out = Array();
    int* values = Array();
    cudaLaunchConfig_t config = Cooperative(kBlocks);
    config.dynamicSmemBytes = kThreads * sizeof(int);
    if (cudaLaunchKernelEx(&config, kernel, out, values) != cudaSuccess) {
      return "failed";
    }
    results.emplace_back(out, out + kBlocks);
    cudaFree(out);
    cudaFree(values);
  }
  for (const std::vector<int>& result : results) {
    if (result != results[0] || result[0] != 10 + 130) return "differ";
  }
  return "agree";
}

const char* RunOverGrid(const std::string& mode) {
  int* out = Array();
  cudaLaunchConfig_t config = Cooperative(kBlocks);
  if (mode == "parted grid") {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, PartOverGrid, out));
  }
  if (mode == "grid and block") {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, CrossOverGrid, out));
  }
  if (mode == "not cooperative") {
    config.numAttrs = 0;
    return cudaGetErrorString(cudaLaunchKernelEx(&config, PartOverGrid, out));
  }
  if (mode == "too many blocks") {
    emulation_device(1, 64 * 1024);
    config.dynamicSmemBytes = 30 * 1024;
    return cudaGetErrorString(cudaLaunchKernelEx(&config, WriteShared, 0));
  }
  config.dynamicSmemBytes = 50 * 1024;
  if (mode == "shared unasked") {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, WriteShared, 0));
  }
  cudaFuncSetAttribute(WriteShared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                       50 * 1024);
  if (mode == "shared asked") {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, WriteShared, 0));
  }
  if (mode == "past the shared") {
    cudaLaunchKernelEx(&config, WriteShared, 50 * 256);
    return "not seen";
  }
  return "unknown mode";
}

const char* RunOverWarp(const std::string& mode) {
  if (mode == "mma") {
    return MultiplicationsAgree<__half>() &&
                   MultiplicationsAgree<__nv_bfloat16>()
               ? "agree"
               : "differ";
  }
  void* memory = nullptr;
  cudaMalloc(&memory, kThreads * sizeof(float));
  auto* const out = static_cast<float*>(memory);
  const cudaLaunchConfig_t config = Config(1);
  const auto run = [&](void (*kernel)(float*)) {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, kernel, out));
  };
  if (mode == "parted warp") return run(PartOverWarp);
  if (mode == "warp and block") return run(CrossOverWarp);
  if (mode == "mma and shuffle") return run(TwoOverWarp);
  return nullptr;
}

const char* Run(const char* mode) {
  const auto is = [&](const char* name) {
    return std::strcmp(mode, name) == 0;
  };
  if (is("barrier")) return OrdersAgree<true>() ? "agree" : "differ";
  if (is("missing barrier")) return OrdersAgree<false>() ? "agree" : "differ";
  int* out = Array();
  cudaLaunchConfig_t config = Config(1);
  if (is("past the end")) {
    cudaLaunchKernelEx(&config, Write, out, kThreads);
    return "not seen";
  }
  if (is("before the start")) {
    cudaLaunchKernelEx(&config, Write, out, -1);
    return cudaGetErrorString(cudaFree(out));
  }
  if (is("inside")) {
    cudaLaunchKernelEx(&config, Write, out, kThreads - 1);
    return cudaGetErrorString(cudaFree(out));
  }
  if (is("missed barrier")) {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, Part, out));
  }
  if (is("after a failure")) {
    cudaLaunchKernelEx(&config, Part, out);
    return cudaGetErrorString(cudaLaunchKernelEx(&config, Write, out, 0));
  }
  if (is("error left")) {
    config.gridDim = dim3(0);
    cudaLaunchKernelEx(&config, Part, out);
    return cudaGetErrorString(cudaGetLastError());
  }
  if (is("error taken")) {
    config.gridDim = dim3(0);
    cudaLaunchKernelEx(&config, Part, out);
    static_cast<void>(cudaGetLastError());
    return cudaGetErrorString(cudaGetLastError());
  }
  if (is("two barriers")) {
    return cudaGetErrorString(cudaLaunchKernelEx(&config, Cross, out));
  }
  if (is("empty grid")) {
    config.gridDim = dim3(0);
    return cudaGetErrorString(cudaLaunchKernelEx(&config, Part, out));
  }
  if (is("default stream")) {
    config.stream = nullptr;
    return cudaGetErrorString(cudaLaunchKernelEx(&config, Part, out));
  }
  if (is("grid barrier")) return GridOrdersAgree(ShiftOverGrid<true>);
  if (is("missing grid barrier")) return GridOrdersAgree(ShiftOverGrid<false>);
  if (is("split barrier")) {
    return GridOrdersAgree(ShiftOverParts<Split::kRight>);
  }
  if (is("store after arrival")) {
    return GridOrdersAgree(ShiftOverParts<Split::kLateStore>);
  }
  if (is("load before wait")) {
    return GridOrdersAgree(ShiftOverParts<Split::kEarlyLoad>);
  }
  if (const char* said = RunOverWarp(mode)) return said;
  return RunOverGrid(mode);
}

}  // namespace

int main(int argc, char** argv) {
  std::puts(argc == 2 ? Run(argv[1]) : "self_test MODE");
  return 0;
}
