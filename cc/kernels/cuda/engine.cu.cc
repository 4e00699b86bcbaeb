// Implements the table that the engine's library exports, and its functions
// that fill and copy device memory.

#include "cc/kernels/cuda/engine.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <new>

#include "cc/core/engine_version.h"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"

namespace blockrnn::cuda {

Error FillZero(void* device, std::size_t bytes,
               const HostInterface& host) noexcept {
  if (bytes == 0) return nullptr;
  return ToError(cudaMemsetAsync(device, 0, bytes,
                                 static_cast<cudaStream_t>(host.stream)));
}

Error Copy(const void* from, std::size_t bytes, void* to,
           const HostInterface& host) noexcept {
  if (bytes == 0) return nullptr;
  return ToError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                 static_cast<cudaStream_t>(host.stream)));
}

Error CopyToHost(const void* from, std::size_t bytes, void* to,
                 const HostInterface& host) noexcept {
  if (bytes == 0) return nullptr;
  const auto stream = static_cast<cudaStream_t>(host.stream);
  const Error error =
      ToError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
  return error != nullptr ? error : ToError(cudaStreamSynchronize(stream));
}

namespace {

// An engine function as its caller sees it. What is on the host's heap is small
// and rare (the handles of cuBLAS, what was asked of a kernel); where there is
// no memory for it, the work that is queued already does no harm.
template <class Args>
Error RunWithCublas(const Args& args, const HostInterface& caller) noexcept {
  try {
    const CublasCall cublas(caller.allow_tf32);
    HostInterface host = caller;
    host.blas = cublas.blas();
    return RunAny(args, host);
  } catch (const std::bad_alloc&) {
    return kOutOfHostMemory;
  } catch (...) {
    return "an exception in the engine";
  }
}

template <class T, template <class> class... Args>
EngineFunctions<T> Functions(ArgsList<Args...>) {
  return {{&RunWithCublas<Args<T>>}...};
}

}  // namespace
}  // namespace blockrnn::cuda

extern "C" __attribute__((visibility("default"))) const blockrnn::cuda::Engine*
blockrnn_cuda_engine() {
  namespace cuda = blockrnn::cuda;
  using blockrnn::EngineArgs;
  static const cuda::Engine engine = {
      blockrnn::kEngineVersion<cuda::Engine>,
      cuda::Functions<Eigen::half>(EngineArgs()),
      cuda::Functions<Eigen::bfloat16>(EngineArgs()),
      cuda::Functions<float>(EngineArgs()),
      cuda::Functions<double>(EngineArgs()),
      &cuda::FillZero,
      &cuda::Copy,
      &cuda::CopyToHost,
      &cuda::FindCublas,
  };
  return &engine;
}
