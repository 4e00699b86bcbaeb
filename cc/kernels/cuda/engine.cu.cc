// The table that the engine's library exports.

#include "cc/kernels/cuda/engine.h"

#include "cc/kernels/cuda/blas/cublas.h"

namespace blockrnn::cuda {
namespace {

// An engine function as its caller sees it.
template <class Args>
Error RunWithCublas(const Args& args, const HostInterface& caller) {
  const CublasCall cublas(caller.allow_tf32);
  HostInterface host = caller;
  host.blas = cublas.blas();
  return Run(args, host);
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
