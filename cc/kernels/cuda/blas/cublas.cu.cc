// Implements the calls of cuBLAS, whose matrices are column-major: A · B of the
// engine is Bᵀ · Aᵀ of cuBLAS on the same memory.

#include "cc/kernels/cuda/blas/cublas.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {
namespace {

using cublas::Api;

struct Library {
  Api api = {};
  const char* path = nullptr;
  const char* problem = nullptr;  // nullptr: all is well
};

// Sets `function`, or the problem.
template <class Function>
void Find(void* opened, const char* name, Function* function,
          Library* library) {
  *function = reinterpret_cast<Function>(dlsym(opened, name));
  if (*function == nullptr) {
    library->problem = "libcublas lacks a function of CUDA 12's";
  }
}

Library OpenLibrary() {
  constexpr const char* kNames[] = {"libcublas.so.12", "libcublas.so.13"};
  Library library;
  void* opened = nullptr;
  for (const int flags : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW}) {
    for (const char* name : kNames) {
      if (opened == nullptr) opened = dlopen(name, flags);
    }
  }
  if (opened == nullptr) {
    library.problem = "no libcublas.so.12 or libcublas.so.13";
    return library;
  }
  Api& api = library.api;
  Find(opened, "cublasCreate_v2", &api.cublasCreate_v2, &library);
  Find(opened, "cublasDestroy_v2", &api.cublasDestroy_v2, &library);
  Find(opened, "cublasSetStream_v2", &api.cublasSetStream_v2, &library);
  Find(opened, "cublasSetWorkspace_v2", &api.cublasSetWorkspace_v2, &library);
  Find(opened, "cublasSetPointerMode_v2", &api.cublasSetPointerMode_v2,
       &library);
  Find(opened, "cublasSetAtomicsMode", &api.cublasSetAtomicsMode, &library);
  Find(opened, "cublasSetMathMode", &api.cublasSetMathMode, &library);
  Find(opened, "cublasGemmEx_64", &api.cublasGemmEx_64, &library);
  Find(opened, "cublasGetStatusString", &api.cublasGetStatusString, &library);
  Dl_info where;
  if (library.problem == nullptr &&
      dladdr(reinterpret_cast<void*>(api.cublasCreate_v2), &where) != 0) {
    library.path = where.dli_fname;  // as long as it is open
  }
  return library;
}

// Returns nullptr if there is no cuBLAS, and the reason in `problem`.
//
// Only success is cached: a call before TensorFlow has opened its copy must not
// deprive later ops of cuBLAS. An op that runs on a GPU comes after TensorFlow
// has opened that copy, so the search, which takes some 100 µs, is not repeated
// in vain.
//
// The library is never closed: TensorFlow's threads may still compute while the
// process ends.
const Library* FindLibrary(const char** problem = nullptr) {
  static std::mutex mutex;  // trivially destroyed, as the library
  static Library library;
  static bool found = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!found) library = OpenLibrary();
  found = library.problem == nullptr;
  if (problem != nullptr) *problem = library.problem;
  return found ? &library : nullptr;
}

// The status of a call of cuBLAS, so the library has been found.
Error Check(int status) {
  if (status == cublas::kSuccess) return nullptr;
  if (status == cublas::kAllocationFailed) return kOutOfMemory;
  return FindLibrary()->api.cublasGetStatusString(status);
}

// The state of a handle lasts from one of its calls to the next, so one thread
// at a time may use it.
struct StreamHandle {
  std::mutex mutex;
  cublas::Handle handle = nullptr;
};

StreamHandle& HandleFor(int device, void* stream) {
  static std::mutex* const mutex = new std::mutex;
  static auto* const handles =
      new std::map<std::pair<int, void*>, std::unique_ptr<StreamHandle>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<StreamHandle>& handle = (*handles)[{device, stream}];
  if (handle == nullptr) handle = std::make_unique<StreamHandle>();
  return *handle;
}

Error Create(const Api& api, cublas::Handle* out) {
  cublas::Handle handle = nullptr;
  const int created = api.cublasCreate_v2(&handle);
  // cuBLAS' answer if the device has no memory left for the handle itself.
  if (created == cublas::kNotInitialized) return kOutOfMemory;
  if (Error error = Check(created)) return error;
  for (const int status :
       {api.cublasSetPointerMode_v2(handle, cublas::kPointersToHost),
        api.cublasSetAtomicsMode(handle, cublas::kNoAtomics),
        api.cublasSetMathMode(handle, cublas::kFullPrecisionReductions)}) {
    if (Error error = Check(status)) {
      static_cast<void>(api.cublasDestroy_v2(handle));
      return error;
    }
  }
  *out = handle;
  return nullptr;
}

// The sizes that cuBLAS' documentation recommends.
Error WorkspaceBytes(int device, std::size_t* bytes) {
  constexpr std::size_t kMegabyte = std::size_t{1} << 20;
  int major = 0;
  if (Error error = ToError(cudaDeviceGetAttribute(
          &major, cudaDevAttrComputeCapabilityMajor, device))) {
    return error;
  }
  *bytes = (major >= 9 ? 32 : 4) * kMegabyte;
  return nullptr;
}

int DataType(BlasType type) {
  switch (type) {
    case BlasType::kHalf:
      return cublas::kReal16;
    case BlasType::kBfloat16:
      return cublas::kRealBfloat16;
    case BlasType::kFloat:
      return cublas::kReal32;
    case BlasType::kDouble:
      return cublas::kReal64;
  }
  return -1;
}

int GemmCompute(BlasType type, bool allow_tf32) {
  if (type == BlasType::kDouble) return cublas::kCompute64;
  return type == BlasType::kFloat && allow_tf32 ? cublas::kCompute32FastTf32
                                                : cublas::kCompute32;
}

// The engine leaves the stride of a single row unspecified; cuBLAS checks it.
int64_t LeadingDimension(const BlasMatrix<void>& matrix, int64_t rows,
                         int64_t columns) {
  const int64_t rows_in_memory = matrix.transposed ? columns : rows;
  const int64_t width = matrix.transposed ? rows : columns;
  return rows_in_memory == 1 ? width : matrix.stride;
}

int Transposition(const BlasMatrix<void>& matrix) {
  return matrix.transposed ? cublas::kTranspose : cublas::kNoTranspose;
}

// C = 0, for GEMMs with a depth of 0.
Error Clear(const BlasGemm& p, const HostInterface& host) {
  const std::size_t size =
      p.type == BlasType::kDouble ? sizeof(double) : sizeof(float);
  const int64_t stride = LeadingDimension({p.c, p.c_stride}, p.rows, p.columns);
  return ToError(cudaMemset2DAsync(p.c, stride * size, 0, p.columns * size,
                                   p.rows,
                                   static_cast<cudaStream_t>(host.stream)));
}

int Multiply(const Api& api, cublas::Handle handle, const BlasGemm& p,
             int compute) {
  const bool wide = p.type == BlasType::kDouble;
  const float one32 = 1.0f, add32 = p.accumulate ? 1.0f : 0.0f;
  const double one64 = 1.0, add64 = p.accumulate ? 1.0 : 0.0;
  const void* const alpha = wide ? static_cast<const void*>(&one64) : &one32;
  const void* const beta = wide ? static_cast<const void*>(&add64) : &add32;
  const int type = DataType(p.type);
  const int c_type = wide ? cublas::kReal64 : cublas::kReal32;
  const int64_t stride_a = LeadingDimension(p.a, p.rows, p.depth);
  const int64_t stride_b = LeadingDimension(p.b, p.depth, p.columns);
  const int64_t stride_c =
      LeadingDimension({p.c, p.c_stride}, p.rows, p.columns);
  return api.cublasGemmEx_64(
      handle, Transposition(p.b), Transposition(p.a), p.columns, p.rows,
      p.depth, alpha, p.b.data, type, stride_b, p.a.data, type, stride_a, beta,
      p.c, c_type, stride_c, compute, cublas::kDefaultAlgorithm);
}

}  // namespace

CublasFound FindCublas() noexcept {
  CublasFound found;
  if (const Library* library = FindLibrary(&found.problem)) {
    found.path = library->path;
  }
  return found;
}

Error CublasCall::RunGemm(void* context, const BlasGemm& gemm,
                          const HostInterface& host) {
  if (gemm.rows == 0 || gemm.columns == 0) return nullptr;
  if (gemm.depth == 0) {
    return gemm.accumulate ? nullptr : Clear(gemm, host);
  }
  const char* problem = nullptr;
  const Library* const library = FindLibrary(&problem);
  if (library == nullptr) return problem;
  const Api& api = library->api;
  auto* const self = static_cast<CublasCall*>(context);
  int device = 0;
  if (Error error = ToError(cudaGetDevice(&device))) return error;
  std::size_t bytes = 0;
  if (Error error = WorkspaceBytes(device, &bytes)) return error;
  if (self->workspace_ == nullptr) {
    self->workspace_ = host.allocate(host.context, bytes);
    if (self->workspace_ == nullptr) return kOutOfMemory;
  }

  StreamHandle& shared = HandleFor(device, host.stream);
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.handle == nullptr) {
    if (Error error = Create(api, &shared.handle)) return error;
  }
  // In this order: setting the stream resets the workspace.
  for (const int status :
       {api.cublasSetStream_v2(shared.handle, host.stream),
        api.cublasSetWorkspace_v2(shared.handle, self->workspace_, bytes)}) {
    if (Error error = Check(status)) return error;
  }
  return Check(Multiply(api, shared.handle, gemm,
                        GemmCompute(gemm.type, self->allow_tf32_)));
}

}  // namespace blockrnn::cuda
