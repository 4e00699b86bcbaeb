// Declares the GEMMs that need no epilogue, which a BLAS computes: x · W of a
// block of steps, the gradients of x and of the weights, the steps of many rows
// with large weights, and those of the block cells. Includes none of cuBLAS'
// headers; the checks have a BLAS of their own.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_BLAS_CUH_
#define BLOCKRNN_KERNELS_CUDA_BLAS_BLAS_CUH_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

enum class BlasType { kHalf, kBfloat16, kFloat, kDouble };

template <class T>
inline constexpr BlasType kBlasTypeOf =
    std::is_same_v<T, Eigen::half>       ? BlasType::kHalf
    : std::is_same_v<T, Eigen::bfloat16> ? BlasType::kBfloat16
    : std::is_same_v<T, double>          ? BlasType::kDouble
                                         : BlasType::kFloat;

// A row-major matrix in device memory; void: of elements of any type.
template <class T>
struct BlasMatrix {
  const T* data = nullptr;
  int64_t stride = 0;       // elements from row to row, as it lies in memory
  bool transposed = false;  // the memory holds the transpose
};

// C = A · B, or C += A · B. C has the type in which `type` is accumulated:
// double for kDouble, else float.
struct BlasGemm {
  int64_t rows = 0;     // of A and C
  int64_t columns = 0;  // of B and C
  int64_t depth = 0;    // columns of A, rows of B; 0: A · B is zeros
  BlasType type = BlasType::kFloat;  // of A and B
  BlasMatrix<void> a;
  BlasMatrix<void> b;
  void* c = nullptr;  // overlaps neither A nor B
  int64_t c_stride = 0;
  bool accumulate = false;  // C += A · B
};

// The BLAS of one call of an engine function: it may hold scratch of the host
// until that call returns.
struct Blas {
  void* context = nullptr;
  // Queues the GEMM on host.stream. Deterministic: the same GEMM gives the same
  // bits.
  Error (*gemm)(void* context, const BlasGemm& gemm,
                const HostInterface& host) = nullptr;
};

// A BlasGemm of elements T.
template <class T>
struct LargeGemm {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  BlasMatrix<T> a;
  BlasMatrix<T> b;
  ComputeType<T>* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

template <class T>
Error RunLargeGemm(const HostInterface& host, const LargeGemm<T>& gemm) {
  const auto untyped = [](const BlasMatrix<T>& matrix) {
    return BlasMatrix<void>{matrix.data, matrix.stride, matrix.transposed};
  };
  const BlasGemm of_any_type = {
      gemm.rows,      gemm.columns,    gemm.depth,
      kBlasTypeOf<T>, untyped(gemm.a), untyped(gemm.b),
      gemm.c,         gemm.c_stride,   gemm.accumulate};
  return host.blas->gemm(host.blas->context, of_any_type, host);
}

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_BLAS_CUH_
