// Compares what the engine declares of cuBLAS with cuBLAS' header, where that
// is there.

#if defined(__has_include)
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>

#include <type_traits>

#include "cc/kernels/cuda/blas/cublas.h"

namespace blockrnn::cuda::cublas {

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

}  // namespace blockrnn::cuda::cublas

#endif
#endif
