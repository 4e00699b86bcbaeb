// Defines the C functions through which the checks in tests/gpu call the
// engine's BLAS: one GEMM (null for success, else the error), and which library
// was found.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/kernels/cuda/blas/blas.h"
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

using blockrnn::cuda::Error;

// Fields of BlasGemm in their order. NOLINTNEXTLINE: it mirrors a struct.
struct PlainGemm {
  int64_t rows, columns, depth;
  int64_t type, c_type;
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
  gemm.c_type = static_cast<BlasType>(plain->c_type);
  gemm.a = {a, plain->a_stride, plain->a_transposed != 0};
  gemm.b = {b, plain->b_stride, plain->b_transposed != 0};
  gemm.c = c;
  gemm.c_stride = plain->c_stride;
  gemm.accumulate = plain->accumulate != 0;
  CublasCall call(allow_tf32 != 0);
  if (call.blas() == nullptr) return FindCublas().problem;
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
