#include "cc/xla/ffi_call.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/kernels/cuda/engine.h"
#include "cc/kernels/kernel.h"
#include "cc/loader/cuda_engine_loader.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/work_sharder.h"

namespace blockrnn {
namespace {

// The arguments of a function of the interface, whose structs all begin alike.
template <class Args>
Args FfiArgs(std::size_t size) {
  Args args = {};
  args.struct_size = size;
  return args;
}

#define BLOCKRNN_FFI_ARGS(name) FfiArgs<name>(name##_STRUCT_SIZE)

int64_t Elements(const XLA_FFI_Buffer& buffer) {
  int64_t elements = 1;
  for (int64_t d = 0; d < buffer.rank; ++d) elements *= buffer.dims[d];
  return elements;
}

// Of the types that arguments and results of our ops have.
int64_t BytesOf(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_F64:
    case XLA_FFI_DataType_S64:
      return 8;
    case XLA_FFI_DataType_F32:
    case XLA_FFI_DataType_S32:
      return 4;
    case XLA_FFI_DataType_F16:
    case XLA_FFI_DataType_BF16:
      return 2;
    default:
      return 1;  // bool, int8
  }
}

}  // namespace

absl::Status ToStatus(const XLA_FFI_Api* api, XLA_FFI_Error* error) {
  if (error == nullptr) return absl::OkStatus();
  auto get = BLOCKRNN_FFI_ARGS(XLA_FFI_Error_GetMessage_Args);
  get.error = error;
  api->XLA_FFI_Error_GetMessage(&get);
  absl::Status status = absl::InternalError(get.message);
  auto destroy = BLOCKRNN_FFI_ARGS(XLA_FFI_Error_Destroy_Args);
  destroy.error = error;
  api->XLA_FFI_Error_Destroy(&destroy);
  return status;
}

XLA_FFI_Error* ToError(const XLA_FFI_Api* api,
                       const absl::Status& status) noexcept {
  if (status.ok()) return nullptr;
  auto create = BLOCKRNN_FFI_ARGS(XLA_FFI_Error_Create_Args);
  // The interface has the codes of absl::Status.
  create.errc = static_cast<XLA_FFI_Error_Code>(status.code());
  try {
    const std::string message(status.message());  // with a 0 at its end
    create.message = message.c_str();
    return api->XLA_FFI_Error_Create(&create);
  } catch (...) {
    // There may be memory for an error without a text. Where there is none for
    // that either, the process ends: XLA takes nullptr for success.
    create.message = "";
    return api->XLA_FFI_Error_Create(&create);
  }
}

absl::Status FfiCall::AllocateOutput(int index,
                                     absl::Span<const int64_t> dims) {
  const XLA_FFI_Buffer& result = Result(index);
  const auto given = absl::MakeConstSpan(result.dims, result.rank);
  if (given == dims) return absl::OkStatus();
  if (given.size() == 1 && dims.size() == 1 && given[0] > dims[0]) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("output ", index, " has shape [", absl::StrJoin(given, ", "),
                   "] in the compiled program, but [",
                   absl::StrJoin(dims, ", "), "] in this call"));
}

int64_t FfiCall::output_bytes(int index) const {
  return Elements(Result(index)) * BytesOf(Result(index).dtype);
}

void CpuFfiCall::Deallocate::operator()(void* scratch) const {
  tensorflow::cpu_allocator()->DeallocateRaw(scratch);
}

int CpuFfiCall::num_threads() const {
  int64_t threads = 1;
  auto args = BLOCKRNN_FFI_ARGS(XLA_FFI_ThreadPool_NumThreads_Args);
  args.ctx = context();
  args.num_threads = &threads;
  // There may be no pool.
  const absl::Status status =
      ToStatus(api(), api()->XLA_FFI_ThreadPool_NumThreads(&args));
  if (!status.ok()) return 1;
  return static_cast<int>(std::clamp<int64_t>(
      threads, 1, std::max(1, tensorflow::GetPerThreadMaxParallelism())));
}

void CpuFfiCall::Schedule(void (*run)(void* arg) noexcept, void* arg) noexcept {
  auto args = BLOCKRNN_FFI_ARGS(XLA_FFI_ThreadPool_Schedule_Args);
  args.ctx = context();
  args.task = run;
  args.data = arg;
  const absl::Status status = WithoutExceptions([&] {
    return ToStatus(api(), api()->XLA_FFI_ThreadPool_Schedule(&args));
  });
  if (!status.ok()) run(arg);
}

absl::Status CpuFfiCall::AllocateScratch(std::size_t bytes, void** scratch) {
  // 0 bytes have no address, which would count as a failure.
  std::unique_ptr<void, Deallocate> memory(
      tensorflow::cpu_allocator()->AllocateRaw(
          tensorflow::Allocator::kAllocatorAlignment,
          std::max<std::size_t>(1, bytes)));
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("scratch of ", bytes));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  scratch_.push_back(std::move(memory));
  *scratch = scratch_.back().get();
  return absl::OkStatus();
}

CudaFfiCall::~CudaFfiCall() {
  for (const Scratch& scratch : scratch_) {
    if (scratch.data == nullptr) continue;
    auto args = BLOCKRNN_FFI_ARGS(XLA_FFI_DeviceMemory_Free_Args);
    args.ctx = context();
    args.size = scratch.bytes;
    args.data = scratch.data;
    // XLA reuses the memory only for later work on the same stream.
    ToStatus(api(), api()->XLA_FFI_DeviceMemory_Free(&args)).IgnoreError();
  }
}

absl::Status CudaFfiCall::Begin() {
  auto get = BLOCKRNN_FFI_ARGS(XLA_FFI_Stream_Get_Args);
  get.ctx = context();
  TF_RETURN_IF_ERROR(ToStatus(api(), api()->XLA_FFI_Stream_Get(&get)));
  stream_ = get.stream;
  const cuda::Engine* const engine = CudaEngine().engine;
  if (engine == nullptr) return absl::InternalError(CudaEngine().problem);
  cuda::HostInterface host;
  host.stream = stream_;
  for (int index : host_inputs_) {
    const XLA_FFI_Buffer& on_device = Argument(index);
    copies_.push_back({index, std::vector<char>(Elements(on_device) *
                                                BytesOf(on_device.dtype))});
    std::vector<char>& bytes = copies_.back().bytes;
    const cuda::Error error =
        engine->copy_to_host(on_device.data, bytes.size(), bytes.data(), host);
    if (error != nullptr) return absl::InternalError(error);
  }
  return absl::OkStatus();
}

const void* CudaFfiCall::input(int index) const {
  for (const HostCopy& copy : copies_) {
    if (copy.index == index) return copy.bytes.data();
  }
  return FfiCall::input(index);
}

absl::Status CudaFfiCall::AllocateScratch(std::size_t bytes, void** scratch) {
  constexpr std::size_t kAlignment = 256;
  constexpr std::size_t kXlaAlignment = 16;  // XLA refuses a larger one
  // Its place first: an exception must not lose the memory.
  Scratch& kept = scratch_.emplace_back();
  auto args = BLOCKRNN_FFI_ARGS(XLA_FFI_DeviceMemory_Allocate_Args);
  args.ctx = context();
  args.size = bytes + (kAlignment - kXlaAlignment);
  args.alignment = kXlaAlignment;
  TF_RETURN_IF_ERROR(
      ToStatus(api(), api()->XLA_FFI_DeviceMemory_Allocate(&args)));
  kept = {args.data, args.size};
  // Null if the memory is, or if the sum above has overflowed.
  *scratch = std::align(kAlignment, bytes, args.data, args.size);
  if (*scratch == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("scratch of ", bytes));
  }
  return absl::OkStatus();
}

}  // namespace blockrnn
