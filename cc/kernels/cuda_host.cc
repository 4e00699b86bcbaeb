#if BLOCKRNN_CUDA

#include "cc/kernels/cuda_host.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "xla/stream_executor/stream.h"

namespace blockrnn {

using tensorflow::OpKernelContext;

CudaHost::CudaHost(OpKernelContext* ctx) : ctx_(ctx) {
  host_.context = this;
  host_.stream =
      ctx->op_device_context()->stream()->platform_specific_handle().stream;
  host_.allocate = &Allocate;
}

void* CudaHost::Allocate(void* context, std::size_t bytes) {
  auto* self = static_cast<CudaHost*>(context);
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int64_t>::max())) {
    return nullptr;
  }
  // An empty tensor has no address, which would read as a failure.
  const int64_t size = std::max<int64_t>(1, static_cast<int64_t>(bytes));
  tensorflow::Tensor scratch;
  const absl::Status status = self->ctx_->allocate_temp(
      tensorflow::DT_INT8, tensorflow::TensorShape({size}), &scratch);
  if (!status.ok()) return nullptr;
  self->scratch_.push_back(std::move(scratch));
  return self->scratch_.back().data();
}

absl::Status CudaHost::ToStatus(cuda::Error error) const {
  if (error == nullptr) return absl::OkStatus();
  const std::string message =
      ctx_->op_kernel().type_string() + ": " + std::string(error);
  if (std::string(error) == cuda::kOutOfMemory) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_CUDA
