// Declares the interface between the engine and a BLAS, which computes the
// GEMMs that need no epilogue. Includes neither CUDA's nor cuBLAS' headers. The
// engine also works without a BLAS: HostInterface::blas may be nullptr.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_BLAS_H_
#define BLOCKRNN_KERNELS_CUDA_BLAS_BLAS_H_

#include <cstdint>
#include <type_traits>

#include "cc/kernels/cuda/engine.h"

namespace blockrnn::cuda {

enum class BlasType { kHalf, kBfloat16, kFloat, kDouble };

template <class T>
inline constexpr BlasType kBlasTypeOf =
    std::is_same_v<T, Eigen::half>       ? BlasType::kHalf
    : std::is_same_v<T, Eigen::bfloat16> ? BlasType::kBfloat16
    : std::is_same_v<T, double>          ? BlasType::kDouble
                                         : BlasType::kFloat;

// A row-major matrix in device memory.
struct BlasMatrix {
  const void* data = nullptr;
  int64_t stride = 0;       // elements from row to row, as it lies in memory
  bool transposed = false;  // the memory holds the transpose
};

// C = A · B, or C += A · B. The sums are accumulated in float32, or float64 for
// kDouble.
struct BlasGemm {
  int64_t rows = 0;     // of A and C
  int64_t columns = 0;  // of B and C
  int64_t depth = 0;    // columns of A, rows of B; 0: A · B is zeros
  BlasType type = BlasType::kFloat;    // of A and B
  BlasType c_type = BlasType::kFloat;  // `type`, or kFloat for a 16-bit type
  BlasMatrix a;
  BlasMatrix b;
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

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_BLAS_H_
