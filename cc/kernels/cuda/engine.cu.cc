// Implements the table that the engine's library exports, and its functions
// that fill and copy device memory.

#include "cc/kernels/cuda/engine.h"

#include <cuda_runtime.h>

#include <cstddef>

#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/launch.cuh"
#include "cc/kernels/cuda/sequence/calls.cuh"

namespace blockrnn::cuda {

Error FillZero(void* device, std::size_t bytes, const HostInterface& host) {
  if (bytes == 0) return nullptr;
  return ToError(cudaMemsetAsync(device, 0, bytes,
                                 static_cast<cudaStream_t>(host.stream)));
}

Error Copy(const void* from, std::size_t bytes, void* to,
           const HostInterface& host) {
  if (bytes == 0) return nullptr;
  return ToError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                 static_cast<cudaStream_t>(host.stream)));
}

Error CopyToHost(const void* from, std::size_t bytes, void* to,
                 const HostInterface& host) {
  if (bytes == 0) return nullptr;
  const auto stream = static_cast<cudaStream_t>(host.stream);
  const Error error =
      ToError(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
  return error != nullptr ? error : ToError(cudaStreamSynchronize(stream));
}

namespace {

// An engine function as its caller sees it.
template <class Args>
Error RunWithCublas(const Args& args, const HostInterface& caller) {
  const CublasCall cublas(caller.allow_tf32);
  HostInterface host = caller;
  host.blas = cublas.blas();
  return RunAny(args, host);
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
      cuda::kEngineVersion,
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
