#include "cc/kernels/cpu_host.h"

#include <mutex>
#include <string>

namespace blockrnn {

CpuHost::CpuHost(OpCall* call) : call_(call) {
  host_.context = this;
  host_.num_threads = call->num_threads();
  host_.schedule = &Schedule;
  host_.allocate = &Allocate;
  if (call->can_be_cancelled()) host_.cancelled = &Cancelled;
}

void CpuHost::Schedule(void* context, void (*run)(void* arg), void* arg) {
  static_cast<CpuHost*>(context)->call_->Schedule(run, arg);
}

void* CpuHost::Allocate(void* context, std::size_t bytes) {
  auto* self = static_cast<CpuHost*>(context);
  void* scratch = nullptr;
  const absl::Status status = self->call_->AllocateScratch(bytes, &scratch);
  if (status.ok()) return scratch;
  const std::lock_guard<std::mutex> lock(self->mutex_);
  self->allocation_ = status;
  return nullptr;
}

bool CpuHost::Cancelled(void* context) {
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

}  // namespace blockrnn
