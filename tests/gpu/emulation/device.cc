// Implements the emulated device: its properties, which launches it accepts,
// and the switches by which the checks vary what a GPU leaves unspecified.

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "tests/gpu/emulation/cuda_runtime.h"
#include "tests/gpu/emulation/threads.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace emulation {
namespace {

constexpr unsigned kMostThreads = 1024;

// What no kernel may depend on; the checks try several values.
bool reverse_order = false;  // of the blocks, and of the threads of a block
bool meet_early = false;     // Grid's
unsigned most_blocks = 0x7fffffff;

// The device.
int multiprocessors = 4;
unsigned largest_grid = 0;            // of a cooperative launch
std::size_t most_shared = 64 * 1024;  // dynamic, of a block that asks for it
unsigned most_together = 0x7fffffff;  // blocks that this process is allowed
cudaError_t refusal = cudaErrorCooperativeLaunchTooLarge;  // of more
int launches_together = 0;  // cooperative ones so far
constexpr std::size_t kSharedUnasked = 48 * 1024;
constexpr int kMostThreadsAtOnce = 2048;  // of a multiprocessor
int capability = 8;                       // major
int multiplied = 0;                       // by tensor cores, so far

// Calls until one fails; negative: none fails.
int calls_to_failure = -1;

cudaError_t last_error = cudaSuccess;  // since the last cudaGetLastError
cudaError_t broken = cudaSuccess;      // by a kernel, from then on

// The dynamic shared memory that a kernel requested; 0: the default maximum.
std::map<const void*, std::size_t> shared_asked;

bool SharedAllowed(const void* kernel, std::size_t bytes) {
  const auto asked = shared_asked.find(kernel);
  return bytes <=
         (asked == shared_asked.end() ? kSharedUnasked : asked->second);
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

// Of a multiprocessor; 0 if the kernel has not requested that much.
int BlocksAtOnce(const void* kernel, int threads, std::size_t dynamic_shared) {
  if (!SharedAllowed(kernel, dynamic_shared)) return 0;
  const std::size_t by_shared =
      dynamic_shared == 0 ? kMostThreadsAtOnce : most_shared / dynamic_shared;
  return static_cast<int>(std::min<std::size_t>(
      by_shared, static_cast<std::size_t>(kMostThreadsAtOnce / threads)));
}

}  // namespace

bool FailsNow() { return calls_to_failure >= 0 && calls_to_failure-- == 0; }

cudaError_t Report(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

cudaError_t ReportOfKernel(cudaError_t code) {
  if (code != cudaSuccess && broken == cudaSuccess) broken = code;
  return Report(code);
}

cudaError_t FailureNow() {
  if (broken != cudaSuccess) return Report(broken);
  return Report(FailsNow() ? cudaErrorLaunchFailure : cudaSuccess);
}

bool HasTensorCores() { return capability >= 8; }

void CountMma() { ++multiplied; }

cudaError_t SetMostShared(const void* kernel, std::size_t bytes) {
  if (const cudaError_t code = FailureNow(); code != cudaSuccess) return code;
  if (bytes > most_shared) return Report(cudaErrorInvalidValue);
  shared_asked[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t MostBlocks(int* count, const void* kernel, int threads,
                       std::size_t dynamic_shared) {
  if (const cudaError_t code = FailureNow(); code != cudaSuccess) return code;
  *count = BlocksAtOnce(kernel, threads, dynamic_shared);
  return cudaSuccess;
}

cudaError_t Launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
  if (config.stream == nullptr) return Report(cudaErrorInvalidResourceHandle);
  const unsigned threads = config.blockDim.x;
  if (config.gridDim.x == 0 || config.gridDim.x > 0x7fffffff || threads == 0 ||
      threads > kMostThreads) {
    return Report(cudaErrorInvalidConfiguration);
  }
  const bool cooperative = IsCooperative(config);
  if (!SharedAllowed(kernel, config.dynamicSmemBytes)) {
    return Report(cudaErrorInvalidValue);
  }
  if (cooperative) {
    const int at_once = BlocksAtOnce(kernel, static_cast<int>(threads),
                                     config.dynamicSmemBytes);
    if (config.gridDim.x > most_together) return Report(refusal);
    if (config.gridDim.x > static_cast<unsigned>(at_once * multiprocessors)) {
      return Report(cudaErrorCooperativeLaunchTooLarge);
    }
    largest_grid = std::max(largest_grid, config.gridDim.x);
    ++launches_together;
  }
  const unsigned count =
      cooperative ? config.gridDim.x : std::min(config.gridDim.x, most_blocks);
  return Enqueue(config.stream, [=, block = config.blockDim,
                                 shared = config.dynamicSmemBytes] {
    return RunGrid(
        {count, block, shared, cooperative, reverse_order, meet_early}, thread);
  });
}

}  // namespace emulation

cudaError_t cudaGetLastError() {
  return std::exchange(emulation::last_error, emulation::broken);
}

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
    case cudaErrorLaunchOutOfResources:
      return "too many resources requested for launch";
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
  if (const cudaError_t code = emulation::FailureNow(); code != cudaSuccess) {
    return code;
  }
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (const cudaError_t code = emulation::FailureNow(); code != cudaSuccess) {
    return code;
  }
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
  return emulation::Report(cudaErrorInvalidValue);
}

// order: 1: in reverse; 2: blocks meet at their arrivals at grid barriers; 3:
// both.
EXPORT void emulation_vary(int order, unsigned blocks) {
  emulation::reverse_order = order % 2 != 0;
  emulation::meet_early = order >= 2;
  emulation::most_blocks = blocks;
}

// The largest grid of a cooperative launch since the last call.
EXPORT unsigned emulation_largest_grid() {
  return std::exchange(emulation::largest_grid, 0);
}

// Sets another device: fewer or more multiprocessors, and shared memory of a
// block.
EXPORT void emulation_device(int multiprocessors, std::size_t most_shared) {
  emulation::multiprocessors = multiprocessors;
  emulation::most_shared = most_shared;
}

// Emulates a process that was given only a part of the device: cooperative
// launches with more blocks than these fail with `code`, or with CUDA's own
// error for that if it is 0. Returns how many have been launched so far.
EXPORT int emulation_allow_together(unsigned blocks, int code) {
  emulation::most_together = blocks;
  emulation::refusal = code == 0 ? cudaErrorCooperativeLaunchTooLarge
                                 : static_cast<cudaError_t>(code);
  return emulation::launches_together;
}

// One call of CUDA or cuBLAS fails, after `calls` that succeed; none if
// negative. Returns whether the previous one that was to fail has failed.
EXPORT int emulation_fail_call(int calls) {
  static bool waited = false;
  const bool failed = waited && emulation::calls_to_failure < 0;
  emulation::calls_to_failure = calls;
  waited = calls >= 0;
  return failed ? 1 : 0;
}

// What cudaGetLastError would return, which then belongs to the next caller of
// it, whoever that is.
EXPORT int emulation_last_error() { return emulation::last_error; }

// A device older or newer than the tensor cores that the kernels use: 7 or 8.
EXPORT void emulation_capability(int major) { emulation::capability = major; }

// Tensor core multiplications of a warp since the last call.
EXPORT int emulation_multiplied() {
  return std::exchange(emulation::multiplied, 0);
}
