// Declares the large GEMMs of a sequence, which need no epilogue: x · W of a
// block of steps, and the gradients of x and of the weights. The host's BLAS
// computes them if there is one, else the engine's own kernel.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_LARGE_GEMM_CUH_
#define BLOCKRNN_KERNELS_CUDA_BLAS_LARGE_GEMM_CUH_

#include <cstdint>

#include "cc/kernels/cuda/blas/blas.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// c = a · b or c += a · b, on elements T with sums of ComputeType<T>.
template <class T>
struct LargeGemm {
  int64_t rows = 0;     // of a and c
  int64_t columns = 0;  // of b and c
  int64_t depth = 0;    // 0: a · b is zeros
  const T* a = nullptr;
  int64_t a_stride = 0;  // from row to row, as it lies in memory
  bool a_transposed = false;
  const T* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;
  ComputeType<T>* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

template <class T>
Error RunLargeGemm(const HostInterface& host, const LargeGemm<T>& gemm);

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_LARGE_GEMM_CUH_
