// Owns the way to cuBLAS for whoever calls the engine. Free of CUDA's headers.
//
// cuBLAS is opened once in a process, by the first call that finds it: the copy
// that is loaded already (TensorFlow opens one before it shows a GPU), else the
// one that the dynamic linker finds. There is a handle for each device and
// stream, kept for the life of the process.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_
#define BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_

#include <vector>

#include "cc/kernels/cuda/blas/blas.h"

namespace blockrnn::cuda {

// Texts that live as long as the process; one of the two is nullptr.
struct CublasFound {
  const char* path = nullptr;     // of the library
  const char* problem = nullptr;  // why there is none
};
CublasFound FindCublas();

// A Blas for one call of an engine function, by one thread. A stream's first
// product takes scratch from the host, which the later ones share: results then
// do not depend on other streams.
class CublasCall {
 public:
  // allow_tf32: float32 products may round their factors to TF32's 10 bits.
  explicit CublasCall(bool allow_tf32);
  CublasCall(const CublasCall&) = delete;
  CublasCall& operator=(const CublasCall&) = delete;

  // nullptr where there is no cuBLAS.
  const Blas* blas() const;

 private:
  struct Workspace {
    void* stream;
    void* memory;
  };

  static Error Product(void* context, const BlasProduct& product,
                       const HostInterface& host);
  Error WorkspaceFor(const HostInterface& host, std::size_t bytes,
                     void** memory);

  Blas blas_;
  bool allow_tf32_;
  std::vector<Workspace> workspaces_;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_
