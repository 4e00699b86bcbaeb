// Declares what the launch of a persistent kernel depends on: the shared memory
// that it may have, and which errors mean that the device has no room for it.

#ifndef BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_LAUNCH_CUH_
#define BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>

namespace blockrnn::cuda {

// Lets a block of the kernel have that much dynamic shared memory on the
// current device. The limit of a kernel is only ever raised, so that threads
// whose calls need different amounts do not take it from each other.
cudaError_t AllowSharedMemory(const void* kernel, int64_t bytes);

// Whether a launch that failed with this error was refused for lack of room, so
// that nothing was queued and the steps can run one by one: too many blocks for
// the multiprocessors of this process (MPS, MIG), or more registers or shared
// memory than the device or a tool beside the program leaves.
inline bool IsRefused(cudaError_t code) {
  return code == cudaErrorInvalidValue ||
         code == cudaErrorInvalidConfiguration ||
         code == cudaErrorLaunchOutOfResources ||
         code == cudaErrorCooperativeLaunchTooLarge;
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_STEP_PERSISTENT_LAUNCH_CUH_
