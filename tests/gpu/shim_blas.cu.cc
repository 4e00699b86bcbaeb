// Defines the C functions through which the checks in tests/gpu call the
// engine's BLAS: one GEMM (null for success, else the error), and which library
// was found.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "cc/kernels/cuda/blas/blas.cuh"
#include "cc/kernels/cuda/blas/cublas.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/cuda/launch.cuh"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace blockrnn::cuda {
namespace {

struct Scratch {
  int calls_left = 0;  // allocations that succeed
  std::vector<void*> arrays;

  ~Scratch() {
    for (void* array : arrays) static_cast<void>(cudaFree(array));
  }

  static void* Allocate(void* context, std::size_t bytes) {
    auto* const self = static_cast<Scratch*>(context);
    void* array = nullptr;
    if (self->calls_left-- <= 0 || cudaMalloc(&array, bytes) != cudaSuccess) {
      return nullptr;
    }
    self->arrays.push_back(array);
    return array;
  }
};

}  // namespace
}  // namespace blockrnn::cuda

// What the engine declares of cuBLAS, where the header of cuBLAS is there.
#if defined(__has_include)
#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>

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

using blockrnn::cuda::Error;

// Fields of BlasGemm in their order. NOLINTNEXTLINE: it mirrors a struct.
struct PlainGemm {
  int64_t rows, columns, depth;
  int64_t type;
  int64_t a_stride, a_transposed;
  int64_t b_stride, b_transposed;
  int64_t c_stride, accumulate;
};

// One GEMM, `repeats` times in one call of the BLAS.
EXPORT Error blockrnn_blas(const PlainGemm* plain, const void* a, const void* b,
                           void* c, int allow_tf32, int repeats,
                           int scratch_calls) {
  using namespace blockrnn::cuda;  // NOLINT: of this function alone
  Scratch scratch;
  scratch.calls_left = scratch_calls;
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) {
    if (Error error = ToError(
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) {
      return error;
    }
  }
  HostInterface host;
  host.context = &scratch;
  host.stream = stream;
  host.allocate = &Scratch::Allocate;
  BlasGemm gemm;
  gemm.rows = plain->rows;
  gemm.columns = plain->columns;
  gemm.depth = plain->depth;
  gemm.type = static_cast<BlasType>(plain->type);
  gemm.a = {a, plain->a_stride, plain->a_transposed != 0};
  gemm.b = {b, plain->b_stride, plain->b_transposed != 0};
  gemm.c = c;
  gemm.c_stride = plain->c_stride;
  gemm.accumulate = plain->accumulate != 0;
  const CublasCall call(allow_tf32 != 0);
  if (Error error = ToError(cudaDeviceSynchronize())) return error;
  for (int n = 0; n < repeats; ++n) {
    if (Error error = call.blas()->gemm(call.blas()->context, gemm, host)) {
      return error;
    }
  }
  return ToError(cudaStreamSynchronize(stream));
}

EXPORT const char* blockrnn_blas_path() {
  return blockrnn::cuda::FindCublas().path;
}

EXPORT const char* blockrnn_blas_problem() {
  return blockrnn::cuda::FindCublas().problem;
}
