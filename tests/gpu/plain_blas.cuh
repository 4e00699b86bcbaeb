// Defines a BLAS that shares nothing with cuBLAS: a thread for each element of
// the result, whose sum is in the order of the depth.

#ifndef BLOCKRNN_TESTS_GPU_PLAIN_BLAS_CUH_
#define BLOCKRNN_TESTS_GPU_PLAIN_BLAS_CUH_

#include <cstdint>

#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/pointwise.cuh"
#include "cc/kernels/cuda/storage.cuh"

namespace blockrnn::cuda {

template <class T>
struct PlainGemmElement {
  using C = ComputeType<T>;
  BlasGemm gemm;

  __device__ static C At(const BlasMatrix<void>& matrix, int64_t row,
                         int64_t column) {
    return Load(static_cast<const T*>(matrix.data),
                matrix.transposed ? column * matrix.stride + row
                                  : row * matrix.stride + column);
  }
  __device__ void operator()(int64_t row, int64_t column) const {
    C* const out = static_cast<C*>(gemm.c) + row * gemm.c_stride + column;
    C sum = C(0);
    for (int64_t depth = 0; depth < gemm.depth; ++depth) {
      sum += At(gemm.a, row, depth) * At(gemm.b, depth, column);
    }
    *out = gemm.accumulate ? *out + sum : sum;
  }
};

inline Error RunPlainGemm(void*, const BlasGemm& gemm,
                          const HostInterface& host) {
  if (gemm.depth == 0 && gemm.accumulate) return nullptr;
  const auto run = [&](const auto& element) {
    return RunPointwise(host, gemm.rows, gemm.columns, element);
  };
  switch (gemm.type) {
    case BlasType::kHalf:
      return run(PlainGemmElement<Eigen::half>{gemm});
    case BlasType::kBfloat16:
      return run(PlainGemmElement<Eigen::bfloat16>{gemm});
    case BlasType::kFloat:
      return run(PlainGemmElement<float>{gemm});
    case BlasType::kDouble:
      return run(PlainGemmElement<double>{gemm});
  }
  return "unknown type";
}

inline constexpr Blas kPlainBlas = {nullptr, &RunPlainGemm};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_TESTS_GPU_PLAIN_BLAS_CUH_
