// Owns the large products of a sequence, which are all there is to a kernel:
// x · W of a block of steps, and the gradients of x and of the weights. The
// host's BLAS does them where there is one, else the kernel here.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_LARGE_GEMM_CUH_
#define BLOCKRNN_KERNELS_CUDA_BLAS_LARGE_GEMM_CUH_

#include <cstdint>

#include "cc/kernels/cuda/blas/blas.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

// c = a · b or c += a · b, of elements T with sums of ComputeType<T>.
template <class T>
struct LargeProduct {
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
Error RunLargeProduct(const HostInterface& host,
                      const LargeProduct<T>& product);

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_LARGE_GEMM_CUH_
