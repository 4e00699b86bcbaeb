// Implements a substitute for cuBLAS in the emulation, built as
// libcublas.so.12: the functions that the engine calls, one element after the
// other. It rejects what cuBLAS rejects, and what cuBLAS would accept but the
// engine must not do.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/gpu/emulation/cuda_bf16.h"
#include "tests/gpu/emulation/cuda_fp16.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

struct cublasContext {
  void* stream = nullptr;
  void* workspace = nullptr;
  int pointer_mode = -1;
  int atomics = -1;
  int math = -1;
};

namespace {

enum Status {
  kSuccess = 0,
  kAllocationFailed = 3,
  kInvalidValue = 7,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
};
enum Type { kReal32 = 0, kReal64 = 1, kReal16 = 2, kRealBfloat16 = 14 };
enum Compute { kCompute32 = 68, kCompute64 = 70, kCompute32FastTf32 = 77 };

constexpr std::size_t kLeastWorkspace = std::size_t{4} << 20;

// The emulated device's: queues work(data) on a stream.
using Enqueue = int (*)(void* stream, int (*work)(void*), void* data);
Enqueue enqueue = nullptr;

// Whether the calling function is to fail.
using FailsNow = int (*)();
FailsNow fails_now = [] { return 0; };

int calls = 0;
int tf32_calls = 0;
int handles = 0;                      // that are open
int calls_to_handles_left = 1 << 30;  // that succeed

double LoadAs(int type, const void* p, int64_t at) {
  switch (type) {
    case kReal16:
      return __half2float(static_cast<const __half*>(p)[at]);
    case kRealBfloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[at]);
    case kReal32:
      return static_cast<const float*>(p)[at];
    default:
      return static_cast<const double*>(p)[at];
  }
}

void StoreAs(int type, void* p, int64_t at, double value) {
  const float rounded = static_cast<float>(value);
  switch (type) {
    case kReal16:
      static_cast<__half*>(p)[at] = __float2half_rn(rounded);
      break;
    case kRealBfloat16:
      static_cast<__nv_bfloat16*>(p)[at] = __float2bfloat16_rn(rounded);
      break;
    case kReal32:
      static_cast<float*>(p)[at] = rounded;
      break;
    default:
      static_cast<double*>(p)[at] = value;
  }
}

// Column-major.
struct Matrix {
  const void* data;
  int type;
  int64_t stride;
  bool transposed;

  int64_t Index(int64_t row, int64_t column) const {
    return transposed ? row * stride + column : column * stride + row;
  }
  double At(int64_t row, int64_t column) const {
    return LoadAs(type, data, Index(row, column));
  }
};

// What cuBLAS may leave in its workspace.
constexpr std::size_t kScribbled = 4096;

struct Work {
  void* workspace;
  int64_t m, n, k;
  Matrix a, b, c;
  double alpha, beta;
};

int Run(void* data) {
  const std::unique_ptr<Work> work(static_cast<Work*>(data));
  const Matrix& c = work->c;
  std::memset(work->workspace, 0xff, kScribbled);
  for (int64_t column = 0; column < work->n; ++column) {
    for (int64_t row = 0; row < work->m; ++row) {
      double sum = 0;
      for (int64_t d = 0; d < work->k; ++d) {
        sum += work->a.At(row, d) * work->b.At(d, column);
      }
      sum *= work->alpha;
      if (work->beta != 0) sum += work->beta * c.At(row, column);
      StoreAs(c.type, const_cast<void*>(c.data), c.Index(row, column), sum);
    }
  }
  return kSuccess;
}

bool KnownTypes(int ab, int c, int compute) {
  switch (compute) {
    case kCompute32:
      return ab != kReal64 && (c == ab || c == kReal32);
    case kCompute32FastTf32:
      return ab == kReal32 && c == kReal32;
    case kCompute64:
      return ab == kReal64 && c == kReal64;
  }
  return false;
}

double Scalar(const void* p, int compute) {
  return LoadAs(compute == kCompute64 ? kReal64 : kReal32, p, 0);
}

template <class T>
int Set(T* setting, T value) {
  if (fails_now()) return kExecutionFailed;
  *setting = value;
  return kSuccess;
}

}  // namespace

EXPORT int cublasCreate_v2(cublasContext** handle) {
  if (fails_now()) return kExecutionFailed;
  if (calls_to_handles_left-- <= 0) return kAllocationFailed;
  *handle = new cublasContext;
  ++handles;
  return kSuccess;
}

EXPORT int cublasDestroy_v2(cublasContext* handle) {
  delete handle;
  --handles;
  return kSuccess;
}

EXPORT int cublasSetStream_v2(cublasContext* handle, void* stream) {
  handle->workspace = nullptr;
  return Set(&handle->stream, stream);
}

EXPORT int cublasSetWorkspace_v2(cublasContext* handle, void* workspace,
                                 std::size_t bytes) {
  const auto place = reinterpret_cast<std::uintptr_t>(workspace);
  if (place % 256 != 0 || bytes < kLeastWorkspace) return kInvalidValue;
  return Set(&handle->workspace, workspace);
}

EXPORT int cublasSetPointerMode_v2(cublasContext* handle, int mode) {
  return Set(&handle->pointer_mode, mode);
}

EXPORT int cublasSetAtomicsMode(cublasContext* handle, int mode) {
  return Set(&handle->atomics, mode);
}

EXPORT int cublasSetMathMode(cublasContext* handle, int mode) {
  if (calls_to_handles_left-- <= 0) return kAllocationFailed;
  return Set(&handle->math, mode);
}

EXPORT int cublasGemmEx_64(cublasContext* handle, int transpose_a,
                           int transpose_b, int64_t m, int64_t n, int64_t k,
                           const void* alpha, const void* a, int a_type,
                           int64_t a_stride, const void* b, int b_type,
                           int64_t b_stride, const void* beta, void* c,
                           int c_type, int64_t c_stride, int compute,
                           int algorithm) {
  if (fails_now()) return kExecutionFailed;
  // The default stream, sums whose order varies, sums that are rounded, or
  // cuBLAS' own scratch, which streams share.
  if (enqueue == nullptr || handle->stream == nullptr ||
      handle->workspace == nullptr || handle->pointer_mode != 0 ||
      handle->atomics != 0 || handle->math != 16 || algorithm != -1) {
    return kInternalError;
  }
  if (m <= 0 || n <= 0 || k <= 0 || c_stride < m ||
      a_stride < (transpose_a == 0 ? m : k) ||
      b_stride < (transpose_b == 0 ? k : n)) {
    return kInvalidValue;
  }
  if (a_type != b_type || !KnownTypes(a_type, c_type, compute)) {
    return kNotSupported;
  }
  ++calls;
  if (compute == kCompute32FastTf32) ++tf32_calls;
  auto* const work = new Work{handle->workspace, m, n, k, {}, {}, {}, 0, 0};
  work->a = {a, a_type, a_stride, transpose_a != 0};
  work->b = {b, b_type, b_stride, transpose_b != 0};
  work->c = {c, c_type, c_stride, false};
  work->alpha = Scalar(alpha, compute);
  work->beta = Scalar(beta, compute);
  return enqueue(handle->stream, &Run, work);
}

EXPORT const char* cublasGetStatusString(int status) {
  return status == kExecutionFailed ? "the function failed to launch on the GPU"
                                    : "the engine uses cuBLAS as it must not";
}

EXPORT void stand_in_connect(Enqueue to_enqueue, FailsNow to_fail) {
  enqueue = to_enqueue;
  fails_now = to_fail;
}

// How many more calls that create a handle or set its math mode succeed.
EXPORT void stand_in_allow_handles(int allowed) {
  calls_to_handles_left = allowed;
}

EXPORT int stand_in_handles() { return handles; }

// GEMMs so far, and those of them that may use TF32.
EXPORT void stand_in_calls(int* all, int* tf32) {
  *all = calls;
  *tf32 = tf32_calls;
}
