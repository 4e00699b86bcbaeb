#include "cc/kernels/devices.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>

#include "cc/loader/open_engine.h"
#include "tensorflow/core/platform/logging.h"
#include "tensorflow/core/platform/tensor_float_32_utils.h"

namespace blockrnn {
namespace {

bool PersistentAllowed() {
  static const bool allowed = [] {
    const char* const set = std::getenv("TF_BLOCKRNN_CUDA_PERSISTENT");
    return set == nullptr || std::string(set) != "0";
  }();
  return allowed;
}

// Opens the engine.
cuda::CublasFound FindCublas() {
  const auto& loaded = CudaEngine();
  if (loaded.engine == nullptr) return {nullptr, loaded.problem.c_str()};
  return loaded.engine->find_cublas();
}

}  // namespace

CpuHost::CpuHost(OpCall* call) : call_(call) {
  host_.context = this;
  host_.num_threads = call->num_threads();
  host_.schedule = &Schedule;
  host_.allocate = &Allocate;
  if (call->can_be_cancelled()) host_.cancelled = &Cancelled;
}

void CpuHost::Schedule(void* context, void (*run)(void* arg) noexcept,
                       void* arg) noexcept {
  static_cast<CpuHost*>(context)->call_->Schedule(run, arg);
}

void* CpuHost::Allocate(void* context, std::size_t bytes) noexcept {
  auto* self = static_cast<CpuHost*>(context);
  void* scratch = nullptr;
  const absl::Status status = WithoutExceptions(
      [&] { return self->call_->AllocateScratch(bytes, &scratch); });
  if (status.ok()) return scratch;
  const std::lock_guard<std::mutex> lock(self->mutex_);
  self->allocation_ = status;
  return nullptr;
}

bool CpuHost::Cancelled(void* context) noexcept {
  return static_cast<CpuHost*>(context)->call_->Cancelled();
}

absl::Status CpuHost::ToStatus(const std::string& op,
                               cpu::Status status) const {
  switch (status) {
    case cpu::Status::kOk:
      return absl::OkStatus();
    case cpu::Status::kOutOfMemory:
      return absl::ResourceExhaustedError(
          op + ": no memory for scratch: " +
          (allocation_.ok() ? "its size overflows"
                            : std::string(allocation_.message())));
    case cpu::Status::kCancelled:
      return absl::CancelledError(op + " was cancelled");
  }
  return absl::InternalError(op + ": unknown engine status " +
                             std::to_string(static_cast<int>(status)));
}

bool GpuKernelsAreUsable() {
  static const bool usable = [] {
    const CudaEngineChoice& choice = ChosenCudaEngine();
    if (choice.driver_is_too_old) {
      LOG(WARNING) << "tf_blockrnn: " << choice.problem
                   << "; the ops run on the CPU";
    }
    return choice.problem.empty();
  }();
  return usable;
}

CudaHost::CudaHost(OpCall* call) : call_(call) {
  host_.context = this;
  host_.stream = call->stream();
  host_.allocate = &Allocate;
  host_.persistent = PersistentAllowed();
  host_.allow_tf32 = tensorflow::tensor_float_32_execution_enabled();
}

void* CudaHost::Allocate(void* context, std::size_t bytes) noexcept {
  auto* self = static_cast<CudaHost*>(context);
  void* scratch = nullptr;
  const absl::Status status = WithoutExceptions(
      [&] { return self->call_->AllocateScratch(bytes, &scratch); });
  if (status.ok()) return scratch;
  self->allocation_ = status;
  return nullptr;
}

absl::Status CudaHost::ToStatus(const std::string& op,
                                cuda::Error error) const {
  if (error == nullptr) return absl::OkStatus();
  std::string message = op + ": " + std::string(error);
  if (error != std::string_view(cuda::kOutOfMemory) &&
      error != std::string_view(cuda::kOutOfHostMemory)) {
    return absl::InternalError(message);
  }
  if (!allocation_.ok()) message += ": " + std::string(allocation_.message());
  return absl::ResourceExhaustedError(message);
}

}  // namespace blockrnn

#define BLOCKRNN_EXPORT __attribute__((visibility("default")))

extern "C" {

BLOCKRNN_EXPORT const char* blockrnn_cublas() {
  return blockrnn::TextOrNull([] { return blockrnn::FindCublas().path; });
}

BLOCKRNN_EXPORT const char* blockrnn_cublas_problem() {
  return blockrnn::TextOrNull([] { return blockrnn::FindCublas().problem; });
}

}  // extern "C"
