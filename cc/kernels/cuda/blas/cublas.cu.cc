// Implements the calls of cuBLAS, whose matrices are column-major: A · B of the
// engine is Bᵀ · Aᵀ of cuBLAS on the same memory.

#include "cc/kernels/cuda/blas/cublas.h"

#include <cuda_runtime.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "cc/kernels/cuda/blas/cublas_api.h"
#include "cc/kernels/cuda/launch.cuh"

namespace blockrnn::cuda {
namespace {

using cublas::Api;

struct Library {
  Api api = {};
  std::string path;
  const char* problem = nullptr;  // nullptr: all is well
};

template <class Function>
void Find(void* opened, const char* name, const char* problem,
          Function* function, Library* library) {
  *function = reinterpret_cast<Function>(dlsym(opened, name));
  if (*function == nullptr) library->problem = problem;
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
#define BLOCKRNN_FIND(name) \
  Find(opened, #name, "cuBLAS has no " #name, &api.name, &library)
  BLOCKRNN_FIND(cublasCreate_v2);
  BLOCKRNN_FIND(cublasDestroy_v2);
  BLOCKRNN_FIND(cublasSetStream_v2);
  BLOCKRNN_FIND(cublasSetWorkspace_v2);
  BLOCKRNN_FIND(cublasSetPointerMode_v2);
  BLOCKRNN_FIND(cublasSetAtomicsMode);
  BLOCKRNN_FIND(cublasSetMathMode);
  BLOCKRNN_FIND(cublasGemmEx_64);
  BLOCKRNN_FIND(cublasGetStatusString);
#undef BLOCKRNN_FIND
  Dl_info where;
  if (library.problem == nullptr &&
      dladdr(reinterpret_cast<void*>(api.cublasCreate_v2), &where) != 0) {
    library.path = where.dli_fname;
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
  static std::atomic<const Library*> found{nullptr};
  if (const Library* library = found.load()) return library;
  static std::mutex* const mutex = new std::mutex;
  const std::lock_guard<std::mutex> lock(*mutex);
  if (const Library* library = found.load()) return library;
  Library library = OpenLibrary();
  if (problem != nullptr) *problem = library.problem;
  if (library.problem != nullptr) return nullptr;
  found.store(new Library(std::move(library)));
  return found.load();
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

std::size_t ElementBytes(BlasType type) {
  return type == BlasType::kDouble ? 8 : type == BlasType::kFloat ? 4 : 2;
}

int GemmCompute(BlasType type, bool allow_tf32) {
  if (type == BlasType::kDouble) return cublas::kCompute64;
  return type == BlasType::kFloat && allow_tf32 ? cublas::kCompute32FastTf32
                                                : cublas::kCompute32;
}

// The engine leaves the stride of a single row unspecified; cuBLAS checks it.
int64_t LeadingDimension(const BlasMatrix& matrix, int64_t rows,
                         int64_t columns) {
  const int64_t rows_in_memory = matrix.transposed ? columns : rows;
  const int64_t width = matrix.transposed ? rows : columns;
  return rows_in_memory == 1 ? width : matrix.stride;
}

int64_t LeadingDimensionOfC(const BlasGemm& p) {
  return p.rows == 1 ? p.columns : p.c_stride;
}

int Transposition(const BlasMatrix& matrix) {
  return matrix.transposed ? cublas::kTranspose : cublas::kNoTranspose;
}

// C = 0, for GEMMs with a depth of 0.
Error Clear(const BlasGemm& p, const HostInterface& host) {
  const std::size_t size = ElementBytes(p.c_type);
  return ToError(cudaMemset2DAsync(p.c, LeadingDimensionOfC(p) * size, 0,
                                   p.columns * size, p.rows,
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
  const int64_t stride_a = LeadingDimension(p.a, p.rows, p.depth);
  const int64_t stride_b = LeadingDimension(p.b, p.depth, p.columns);
  return api.cublasGemmEx_64(handle, Transposition(p.b), Transposition(p.a),
                             p.columns, p.rows, p.depth, alpha, p.b.data, type,
                             stride_b, p.a.data, type, stride_a, beta, p.c,
                             DataType(p.c_type), LeadingDimensionOfC(p),
                             compute, cublas::kDefaultAlgorithm);
}

}  // namespace

CublasFound FindCublas() {
  CublasFound found;
  if (const Library* library = FindLibrary(&found.problem)) {
    found.path = library->path.c_str();
  }
  return found;
}

CublasCall::CublasCall(bool allow_tf32) : allow_tf32_(allow_tf32) {
  blas_.context = this;
  blas_.gemm = &CublasCall::RunGemm;
}

const Blas* CublasCall::blas() const {
  return FindLibrary() != nullptr ? &blas_ : nullptr;
}

Error CublasCall::WorkspaceFor(const HostInterface& host, std::size_t bytes,
                               void** memory) {
  for (const Workspace& workspace : workspaces_) {
    if (workspace.stream == host.stream) {
      *memory = workspace.memory;
      return nullptr;
    }
  }
  *memory = host.allocate(host.context, bytes);
  if (*memory == nullptr) return kOutOfMemory;
  workspaces_.push_back({host.stream, *memory});
  return nullptr;
}

Error CublasCall::RunGemm(void* context, const BlasGemm& gemm,
                          const HostInterface& host) {
  if (gemm.rows == 0 || gemm.columns == 0) {
    return nullptr;
  }
  if (gemm.depth == 0) {
    return gemm.accumulate ? nullptr : Clear(gemm, host);
  }
  auto* const self = static_cast<CublasCall*>(context);
  int device = 0;
  if (Error error = ToError(cudaGetDevice(&device))) return error;
  std::size_t bytes = 0;
  if (Error error = WorkspaceBytes(device, &bytes)) return error;
  void* workspace = nullptr;
  if (Error error = self->WorkspaceFor(host, bytes, &workspace)) return error;

  // The library has been found, or blas() would not have returned this
  // function.
  const Api& api = FindLibrary()->api;
  StreamHandle& shared = HandleFor(device, host.stream);
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.handle == nullptr) {
    if (Error error = Create(api, &shared.handle)) return error;
  }
  // In this order: setting the stream resets the workspace.
  if (Error error = Check(api.cublasSetStream_v2(shared.handle, host.stream))) {
    return error;
  }
  if (Error error =
          Check(api.cublasSetWorkspace_v2(shared.handle, workspace, bytes))) {
    return error;
  }
  return Check(Multiply(api, shared.handle, gemm,
                        GemmCompute(gemm.type, self->allow_tf32_)));
}

}  // namespace blockrnn::cuda
