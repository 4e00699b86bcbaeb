// Declares by hand the part of cuBLAS' interface that the engine calls: cuBLAS
// is opened at run time, and the machine that builds the engine need not have
// it. If its header is available, the compiler compares the two.

#ifndef BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_API_H_
#define BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_API_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__has_include)
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define BLOCKRNN_HAS_CUBLAS_HEADER 1
#endif
#endif

namespace blockrnn::cuda::cublas {

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

#if BLOCKRNN_HAS_CUBLAS_HEADER

// Whether two parameter types are passed alike: the same type, an enumeration
// and an int, or two pointers.
template <class Ours, class Theirs>
inline constexpr bool kAlike = std::is_same_v<Ours, Theirs> ||
                               (std::is_same_v<Ours, int> &&
                                std::is_enum_v<Theirs> &&
                                sizeof(Theirs) == sizeof(int)) ||
                               (std::is_pointer_v<Ours> &&
                                std::is_pointer_v<Theirs>);

template <class Ours, class Theirs>
struct Alike : std::false_type {};
template <class R, class... A, class S, class... B>
struct Alike<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kAlike<R, S> && (kAlike<A, B> && ...)> {};

#define BLOCKRNN_SAME(function)                                         \
  static_assert(Alike<decltype(Api::function),                          \
                      std::add_pointer_t<decltype(::function)>>::value, \
                #function)
BLOCKRNN_SAME(cublasCreate_v2);
BLOCKRNN_SAME(cublasDestroy_v2);
BLOCKRNN_SAME(cublasSetStream_v2);
BLOCKRNN_SAME(cublasSetWorkspace_v2);
BLOCKRNN_SAME(cublasSetPointerMode_v2);
BLOCKRNN_SAME(cublasSetAtomicsMode);
BLOCKRNN_SAME(cublasSetMathMode);
BLOCKRNN_SAME(cublasGemmEx_64);
BLOCKRNN_SAME(cublasGetStatusString);
#undef BLOCKRNN_SAME

static_assert(kSuccess == CUBLAS_STATUS_SUCCESS);
static_assert(kNotInitialized == CUBLAS_STATUS_NOT_INITIALIZED);
static_assert(kAllocationFailed == CUBLAS_STATUS_ALLOC_FAILED);
static_assert(kNoTranspose == CUBLAS_OP_N && kTranspose == CUBLAS_OP_T);
static_assert(kPointersToHost == CUBLAS_POINTER_MODE_HOST);
static_assert(kNoAtomics == CUBLAS_ATOMICS_NOT_ALLOWED);
static_assert(kFullPrecisionReductions ==
              CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
static_assert(kCompute32 == CUBLAS_COMPUTE_32F);
static_assert(kCompute32FastTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(kCompute64 == CUBLAS_COMPUTE_64F);
static_assert(kDefaultAlgorithm == CUBLAS_GEMM_DEFAULT);
static_assert(kReal32 == CUDA_R_32F && kReal64 == CUDA_R_64F);
static_assert(kReal16 == CUDA_R_16F && kRealBfloat16 == CUDA_R_16BF);

#endif  // BLOCKRNN_HAS_CUBLAS_HEADER

}  // namespace blockrnn::cuda::cublas

#endif  // BLOCKRNN_KERNELS_CUDA_BLAS_CUBLAS_API_H_
