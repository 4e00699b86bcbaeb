// Owns what the choice of a persistent kernel asks of the device.

#include "cc/kernels/cuda/step_loop.cuh"

#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/persistent_plan.h"

namespace blockrnn::cuda {
namespace {

Error AskDevice(PersistentDevice* device) {
  int current = 0;
  int cooperative = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;
  Error error = nullptr;
  if ((error = ToError(cudaGetDevice(&current))) ||
      (error = ToError(cudaDeviceGetAttribute(
           &cooperative, cudaDevAttrCooperativeLaunch, current))) ||
      (error = ToError(cudaDeviceGetAttribute(
           &multiprocessors, cudaDevAttrMultiProcessorCount, current))) ||
      (error = ToError(cudaDeviceGetAttribute(
           &shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, current)))) {
    return error;
  }
  device->cooperative = cooperative != 0;
  device->multiprocessors = multiprocessors;
  device->shared_bytes = shared_bytes;
  return nullptr;
}

}  // namespace

Error StepLoop::Choose(const HostInterface& host, int64_t steps,
                       std::initializer_list<PersistentProduct> products) {
  if (!host.persistent) return nullptr;
  if (Error error = AskDevice(&device_)) return error;
  device_.multiprocessors /= host.side_by_side;
  plan_ = PlanPersistent(device_, steps, products.begin(),
                         static_cast<int>(products.size()));
  return nullptr;
}

}  // namespace blockrnn::cuda
