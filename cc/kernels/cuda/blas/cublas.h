// Declares the part of cuBLAS that the engine calls, and how a caller of the
// engine gets it.
//
// cuBLAS is opened at run time, since its major version is TensorFlow's and not
// nvcc's, and nvcc comes without its header. tests/gpu/shim_blas.cu.cc compares
// the declarations with that header where it is there.
//
// It is opened once in a process, by the first call that finds it: the copy
// that is already loaded (TensorFlow opens one before it lists a GPU), else the
// one that the dynamic linker finds. Each pair of device and stream has one
// handle, which lives as long as the process.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_
#define BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_

#include <cstddef>
#include <cstdint>

#include "cc/kernels/cuda/blas/blas.cuh"

namespace blockrnn::cuda {

namespace cublas {

// The values of cuBLAS' enumerations that are used; all are passed as int.
inline constexpr int kSuccess = 0;           // cublasStatus_t
inline constexpr int kNotInitialized = 1;    // cublasStatus_t
inline constexpr int kAllocationFailed = 3;  // cublasStatus_t
inline constexpr int kNoTranspose = 0;       // cublasOperation_t
inline constexpr int kTranspose = 1;         // cublasOperation_t
inline constexpr int kPointersToHost = 0;    // cublasPointerMode_t
inline constexpr int kNoAtomics = 0;         // cublasAtomicsMode_t
inline constexpr int kFullPrecisionReductions =
    16;                                        // cublasMath_t: sums of split
                                               // GEMMs are not rounded
inline constexpr int kCompute32 = 68;          // cublasComputeType_t
inline constexpr int kCompute32FastTf32 = 77;  // cublasComputeType_t
inline constexpr int kCompute64 = 70;          // cublasComputeType_t
inline constexpr int kDefaultAlgorithm = -1;   // cublasGemmAlgo_t
inline constexpr int kReal32 = 0;              // cudaDataType
inline constexpr int kReal64 = 1;              // cudaDataType
inline constexpr int kReal16 = 2;              // cudaDataType
inline constexpr int kRealBfloat16 = 14;       // cudaDataType

using Handle = struct cublasContext*;

// The 64-bit functions came with CUDA 12.
struct Api {
  int (*cublasCreate_v2)(Handle*);
  int (*cublasDestroy_v2)(Handle);
  int (*cublasSetStream_v2)(Handle, void* stream);
  int (*cublasSetWorkspace_v2)(Handle, void*, std::size_t bytes);
  int (*cublasSetPointerMode_v2)(Handle, int mode);
  int (*cublasSetAtomicsMode)(Handle, int mode);
  int (*cublasSetMathMode)(Handle, int mode);
  // Column-major: c = alpha · op(a) · op(b) + beta · c, c [m, n].
  int (*cublasGemmEx_64)(Handle, int transpose_a, int transpose_b, int64_t m,
                         int64_t n, int64_t k, const void* alpha, const void* a,
                         int a_type, int64_t a_stride, const void* b,
                         int b_type, int64_t b_stride, const void* beta,
                         void* c, int c_type, int64_t c_stride, int compute,
                         int algorithm);
  const char* (*cublasGetStatusString)(int status);
};

}  // namespace cublas

CublasFound FindCublas() noexcept;

// A Blas for one call of an engine function, on one thread and one stream. The
// first GEMM allocates scratch from the host, which the later ones share, so
// that results do not depend on other streams. Where there is no cuBLAS each
// GEMM fails with the reason.
class CublasCall {
 public:
  // allow_tf32: float32 GEMMs may round their inputs to TF32's 10 bits of
  // mantissa.
  explicit CublasCall(bool allow_tf32)
      : blas_{this, &RunGemm}, allow_tf32_(allow_tf32) {}
  CublasCall(const CublasCall&) = delete;
  CublasCall& operator=(const CublasCall&) = delete;

  const Blas* blas() const { return &blas_; }

 private:
  static Error RunGemm(void* context, const BlasGemm& gemm,
                       const HostInterface& host);

  const Blas blas_;
  const bool allow_tf32_;
  void* workspace_ = nullptr;
};

}  // namespace blockrnn::cuda

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_H_
