#include "cc/kernels/tensorflow_call.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/util/work_sharder.h"
#include "xla/stream_executor/stream.h"

namespace blockrnn {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The engine relies on TensorFlow's guarantee.
static_assert(tensorflow::Allocator::kAllocatorAlignment >= 64);

absl::Status TensorFlowCall::AllocateOutput(int index,
                                            absl::Span<const int64_t> dims) {
  TensorShape shape;
  TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape(dims, &shape));
  Tensor* tensor = nullptr;
  return ctx_->allocate_output(index, shape, &tensor);
}

void* TensorFlowCall::output(int index) const {
  const Tensor* const tensor = ctx_->mutable_output(index);
  return tensor == nullptr ? nullptr : tensor->data();
}

int64_t TensorFlowCall::output_bytes(int index) const {
  return static_cast<int64_t>(ctx_->mutable_output(index)->TotalBytes());
}

int TensorFlowCall::num_threads() const {
  const auto* workers = ctx_->device()->tensorflow_cpu_worker_threads();
  if (workers == nullptr) return 1;
  // tf.data and others may ask for fewer threads than the pool has.
  return std::max(1, std::min(workers->num_threads,
                              tensorflow::GetPerThreadMaxParallelism()));
}

void TensorFlowCall::Schedule(void (*run)(void* arg), void* arg) {
  ctx_->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
      [run, arg] { run(arg); });
}

absl::Status TensorFlowCall::AllocateScratch(std::size_t bytes,
                                             void** scratch) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<int64_t>::max())) {
    return absl::ResourceExhaustedError("scratch of " + std::to_string(bytes));
  }
  // An empty tensor has no address, which would count as a failure.
  const int64_t size = std::max<int64_t>(1, static_cast<int64_t>(bytes));
  Tensor tensor;
  const std::lock_guard<std::mutex> lock(mutex_);
  TF_RETURN_IF_ERROR(
      ctx_->allocate_temp(tensorflow::DT_INT8, TensorShape({size}), &tensor));
  *scratch = tensor.data();
  scratch_.push_back(std::move(tensor));
  return absl::OkStatus();
}

bool TensorFlowCall::can_be_cancelled() const {
  return ctx_->cancellation_manager() != nullptr;
}

bool TensorFlowCall::Cancelled() const {
  return ctx_->cancellation_manager()->IsCancelled();
}

void* TensorFlowCall::stream() const {
  return ctx_->op_device_context()->stream()->platform_specific_handle().stream;
}

TensorFlowKernel::TensorFlowKernel(OpKernelConstruction* ctx,
                                   KernelFactory factory)
    : OpKernel(ctx) {
  KernelNode node(ctx->def());
  kernel_ = factory(&node);
  OP_REQUIRES_OK(ctx, node.status());
}

}  // namespace blockrnn
