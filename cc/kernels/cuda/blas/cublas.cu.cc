// Owns the calls of cuBLAS, which lays matrices down column after column: what
// is A · B to the engine is Bᵀ · Aᵀ to it, of the same memory.

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

// nullptr where there is none, and why in `problem`.
//
// Only what is found is remembered: whoever asks before TensorFlow has opened
// its copy must not take cuBLAS from the ops that come later. Each op asks, but
// an op on a GPU comes after TensorFlow has opened that copy and shown the GPU.
// So a search in vain, of some 100 µs, is not one that is made again and again.
//
// Never closed: TensorFlow's threads may still compute while the process ends.
const Library* TheLibrary(const char** problem = nullptr) {
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

// Of a call of cuBLAS, so there is one.
Error Check(int status) {
  if (status == cublas::kSuccess) return nullptr;
  if (status == cublas::kAllocationFailed) return kOutOfMemory;
  return TheLibrary()->api.cublasGetStatusString(status);
}

// What a handle is told stands between its calls, so one thread at a time.
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
  // What it says where the device has no memory left for the handle's own.
  if (created == cublas::kNotInitialized) return kOutOfMemory;
  if (Error error = Check(created)) return error;
  for (const int status :
       {api.cublasSetPointerMode_v2(handle, cublas::kPointersToHost),
        api.cublasSetAtomicsMode(handle, cublas::kNoAtomics),
        api.cublasSetMathMode(handle, cublas::kWholeReductions)}) {
    if (Error error = Check(status)) {
      static_cast<void>(api.cublasDestroy_v2(handle));
      return error;
    }
  }
  *out = handle;
  return nullptr;
}

// As cuBLAS' documentation advises for a device.
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

int TypeOf(BlasType type) {
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

std::size_t SizeOf(BlasType type) {
  return type == BlasType::kDouble ? 8 : type == BlasType::kFloat ? 4 : 2;
}

int ComputeOf(BlasType type, bool allow_tf32) {
  if (type == BlasType::kDouble) return cublas::kCompute64;
  return type == BlasType::kFloat && allow_tf32 ? cublas::kCompute32FastTf32
                                                : cublas::kCompute32;
}

// The stride of a matrix of one row is its caller's affair, but not to cuBLAS.
int64_t StrideOf(const BlasMatrix& matrix, int64_t rows, int64_t columns) {
  const int64_t rows_in_memory = matrix.transposed ? columns : rows;
  const int64_t width = matrix.transposed ? rows : columns;
  return rows_in_memory == 1 ? width : matrix.stride;
}

int64_t StrideOfC(const BlasProduct& p) {
  return p.rows == 1 ? p.columns : p.c_stride;
}

int OperationOf(const BlasMatrix& matrix) {
  return matrix.transposed ? cublas::kTranspose : cublas::kNoTranspose;
}

// C = 0, for products of no depth.
Error Clear(const BlasProduct& p, const HostInterface& host) {
  const std::size_t size = SizeOf(p.c_type);
  return ToError(cudaMemset2DAsync(p.c, StrideOfC(p) * size, 0,
                                   p.columns * size, p.rows,
                                   static_cast<cudaStream_t>(host.stream)));
}

int Multiply(const Api& api, cublas::Handle handle, const BlasProduct& p,
             int compute) {
  const bool wide = p.type == BlasType::kDouble;
  const float one32 = 1.0f, add32 = p.accumulate ? 1.0f : 0.0f;
  const double one64 = 1.0, add64 = p.accumulate ? 1.0 : 0.0;
  const void* const alpha = wide ? static_cast<const void*>(&one64) : &one32;
  const void* const beta = wide ? static_cast<const void*>(&add64) : &add32;
  const int type = TypeOf(p.type);
  const int64_t stride_a = StrideOf(p.a, p.rows, p.depth);
  const int64_t stride_b = StrideOf(p.b, p.depth, p.columns);
  return api.cublasGemmEx_64(
      handle, OperationOf(p.b), OperationOf(p.a), p.columns, p.rows, p.depth,
      alpha, p.b.data, type, stride_b, p.a.data, type, stride_a, beta, p.c,
      TypeOf(p.c_type), StrideOfC(p), compute, cublas::kDefaultAlgorithm);
}

}  // namespace

CublasFound FindCublas() {
  CublasFound found;
  if (const Library* library = TheLibrary(&found.problem)) {
    found.path = library->path.c_str();
  }
  return found;
}

CublasCall::CublasCall(bool allow_tf32) : allow_tf32_(allow_tf32) {
  blas_.context = this;
  blas_.product = &CublasCall::Product;
}

const Blas* CublasCall::blas() const {
  return TheLibrary() != nullptr ? &blas_ : nullptr;
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

Error CublasCall::Product(void* context, const BlasProduct& product,
                          const HostInterface& host) {
  if (product.rows == 0 || product.columns == 0) {
    return nullptr;
  }
  if (product.depth == 0) {
    return product.accumulate ? nullptr : Clear(product, host);
  }
  auto* const self = static_cast<CublasCall*>(context);
  int device = 0;
  if (Error error = ToError(cudaGetDevice(&device))) return error;
  std::size_t bytes = 0;
  if (Error error = WorkspaceBytes(device, &bytes)) return error;
  void* workspace = nullptr;
  if (Error error = self->WorkspaceFor(host, bytes, &workspace)) return error;

  // There is one, or blas() had not given this function.
  const Api& api = TheLibrary()->api;
  StreamHandle& shared = HandleFor(device, host.stream);
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.handle == nullptr) {
    if (Error error = Create(api, &shared.handle)) return error;
  }
  // In this order: a new stream makes cuBLAS forget the workspace.
  if (Error error = Check(api.cublasSetStream_v2(shared.handle, host.stream))) {
    return error;
  }
  if (Error error =
          Check(api.cublasSetWorkspace_v2(shared.handle, workspace, bytes))) {
    return error;
  }
  return Check(Multiply(api, shared.handle, product,
                        ComputeOf(product.type, self->allow_tf32_)));
}

}  // namespace blockrnn::cuda
