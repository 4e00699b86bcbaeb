// Shows that the emulation finds what it is there to find: each mode of this
// program makes one mistake of the kind that a kernel can have, and says what
// the emulation made of it.

#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/gpu/emulation/cuda_runtime.h"

extern "C" void emulation_vary(int reverse, unsigned blocks);

namespace {

constexpr int kThreads = 64;

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

cudaLaunchConfig_t Config(unsigned blocks) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(kThreads);
  cudaStreamCreateWithFlags(&config.stream, cudaStreamNonBlocking);
  return config;
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
  return "unknown mode";
}

}  // namespace

int main(int argc, char** argv) {
  std::puts(argc == 2 ? Run(argv[1]) : "self_test MODE");
  return 0;
}
