// Declares how a caller of the engine gets cuBLAS. Includes none of CUDA's
// headers.
//
// cuBLAS is opened once in a process, by the first call that finds it: the copy
// that is already loaded (TensorFlow opens one before it lists a GPU), else the
// one that the dynamic linker finds. Each pair of device and stream has one
// handle, which lives as long as the process.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_
#define BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_

#include <vector>

#include "cc/kernels/cuda/blas/blas.h"

namespace blockrnn::cuda {

CublasFound FindCublas();

// A Blas for one call of an engine function, on one thread. The first GEMM on a
// stream allocates scratch from the host, which the later ones share, so that
// results do not depend on other streams.
class CublasCall {
 public:
  // allow_tf32: float32 GEMMs may round their inputs to TF32's 10 bits of
  // mantissa.
  explicit CublasCall(bool allow_tf32);
  CublasCall(const CublasCall&) = delete;
  CublasCall& operator=(const CublasCall&) = delete;

  // nullptr if there is no cuBLAS.
  const Blas* blas() const;

 private:
  struct Workspace {
    void* stream;
    void* memory;
  };

  static Error RunGemm(void* context, const BlasGemm& gemm,
                       const HostInterface& host);
  Error WorkspaceFor(const HostInterface& host, std::size_t bytes,
                     void** memory);

  Blas blas_;
  bool allow_tf32_;
  std::vector<Workspace> workspaces_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_
