#include "cc/kernels/cpu_host.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

#include "cc/kernels/kernel_util.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/util/work_sharder.h"

namespace blockrnn {

using tensorflow::OpKernelContext;

// The engine relies on TensorFlow's guarantee.
static_assert(tensorflow::Allocator::kAllocatorAlignment >= 64);

CpuHost::CpuHost(OpKernelContext* ctx) : ctx_(ctx) {
  const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  host_.context = this;
  // tf.data and others may ask for fewer threads than the pool has.
  host_.num_threads =
      workers == nullptr
          ? 1
          : std::max(1, std::min(workers->num_threads,
                                 tensorflow::GetPerThreadMaxParallelism()));
  host_.schedule = &Schedule;
  host_.allocate = &Allocate;
  if (ctx->cancellation_manager() != nullptr) host_.cancelled = &Cancelled;
}

void CpuHost::Schedule(void* context, void (*run)(void* arg), void* arg) {
  static_cast<CpuHost*>(context)
      ->ctx_->device()
      ->tensorflow_cpu_worker_threads()
      ->workers->Schedule([run, arg] { run(arg); });
}

void* CpuHost::Allocate(void* context, std::size_t bytes) {
  auto* self = static_cast<CpuHost*>(context);
  const std::lock_guard<std::mutex> lock(self->mutex_);
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int64_t>::max())) {
    self->allocation_ =
        absl::ResourceExhaustedError("scratch of " + std::to_string(bytes));
    return nullptr;
  }
  // An empty tensor has no address, which would count as a failure.
  const int64_t size = std::max<int64_t>(1, static_cast<int64_t>(bytes));
  tensorflow::Tensor scratch;
  const absl::Status status = self->ctx_->allocate_temp(
      tensorflow::DT_INT8, tensorflow::TensorShape({size}), &scratch);
  if (!status.ok()) {
    self->allocation_ = status;
    return nullptr;
  }
  self->scratch_.push_back(std::move(scratch));
  return self->scratch_.back().data();
}

bool CpuHost::Cancelled(void* context) {
  return static_cast<CpuHost*>(context)
      ->ctx_->cancellation_manager()
      ->IsCancelled();
}

absl::Status CpuHost::ToStatus(cpu::Status status) const {
  const std::string op = OpName(ctx_);
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
