#if BLOCKRNN_CUDA

#include "cc/kernels/cuda_host.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "cc/kernels/kernel_util.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/tensor_float_32_utils.h"
#include "xla/stream_executor/stream.h"

namespace blockrnn {

using tensorflow::OpKernelContext;

namespace {

bool PersistentAllowed() {
  static const bool allowed = [] {
    const char* const set = std::getenv("TF_BLOCKRNN_CUDA_PERSISTENT");
    return set == nullptr || std::string(set) != "0";
  }();
  return allowed;
}

}  // namespace

CudaHost::CudaHost(OpKernelContext* ctx)
    : ctx_(ctx), cublas_(tensorflow::tensor_float_32_execution_enabled()) {
  host_.context = this;
  host_.stream =
      ctx->op_device_context()->stream()->platform_specific_handle().stream;
  host_.allocate = &Allocate;
  host_.persistent = PersistentAllowed();
  host_.blas = cublas_.blas();
}

void* CudaHost::Allocate(void* context, std::size_t bytes) {
  auto* self = static_cast<CudaHost*>(context);
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int64_t>::max())) {
    return nullptr;
  }
  // An empty tensor has no address, which would count as a failure.
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
  const std::string message = OpName(ctx_) + ": " + std::string(error);
  if (std::string(error) == cuda::kOutOfMemory) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

}  // namespace blockrnn

#define BLOCKRNN_EXPORT __attribute__((visibility("default")))

extern "C" {

BLOCKRNN_EXPORT const char* blockrnn_cublas() {
  return blockrnn::cuda::FindCublas().path;
}

BLOCKRNN_EXPORT const char* blockrnn_cublas_problem() {
  return blockrnn::cuda::FindCublas().problem;
}

}  // extern "C"

#endif  // BLOCKRNN_CUDA
