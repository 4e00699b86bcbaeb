// Implements the kernels as TensorFlow's executor calls them, and registers
// kernels with it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/kernels/devices.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/util/work_sharder.h"
#include "xla/stream_executor/stream.h"

namespace blockrnn {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

// Lives as long as the call of the kernel. What an engine has queued on the
// pool may run later, but then does not access the call. On a GPU, TensorFlow
// reuses the scratch only for later work on the same stream.
class TensorFlowCall final : public OpCall {
 public:
  explicit TensorFlowCall(tensorflow::OpKernelContext* ctx) : ctx_(ctx) {}
  TensorFlowCall(const TensorFlowCall&) = delete;
  TensorFlowCall& operator=(const TensorFlowCall&) = delete;

  int rank(int input) const override { return ctx_->input(input).dims(); }
  int64_t dim(int input, int index) const override {
    return ctx_->input(input).dim_size(index);
  }
  const void* input(int index) const override {
    return ctx_->input(index).data();
  }

  int num_outputs() const override { return ctx_->num_outputs(); }
  bool output_required(int index) const override {
    return ctx_->output_required(index);
  }
  absl::Status AllocateOutput(int index,
                              absl::Span<const int64_t> dims) override;
  void* output(int index) const override;
  int64_t output_bytes(int index) const override;

  std::shared_ptr<const void> Hold(int index) const override {
    return std::make_shared<tensorflow::Tensor>(ctx_->input(index));
  }
  // As of a tensor made by tf.experimental.dlpack.from_dlpack, and of slices of
  // one, and variables.
  bool IsForeign(int index) const override {
    Tensor tensor = ctx_->input(index);
    tensorflow::TensorBuffer* const buffer =
        tensorflow::DMAHelper::buffer(&tensor);
    return buffer != nullptr && !buffer->root_buffer()->OwnsMemory();
  }

  int num_threads() const override;
  void Schedule(void (*run)(void* arg) noexcept, void* arg) noexcept override;
  absl::Status AllocateScratch(std::size_t bytes, void** scratch) override;
  bool can_be_cancelled() const override;
  bool Cancelled() const noexcept override;
  void* stream() const override;

 private:
  tensorflow::OpKernelContext* ctx_;
  std::mutex mutex_;
  absl::InlinedVector<tensorflow::Tensor, 4> scratch_;  // under mutex_
};

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

void TensorFlowCall::Schedule(void (*run)(void* arg) noexcept,
                              void* arg) noexcept {
  try {
    ctx_->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
        [run, arg] { run(arg); });
  } catch (...) {
    run(arg);
  }
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

bool TensorFlowCall::Cancelled() const noexcept {
  return ctx_->cancellation_manager()->IsCancelled();
}

void* TensorFlowCall::stream() const {
  return ctx_->op_device_context()->stream()->platform_specific_handle().stream;
}

// A kernel for TensorFlow's executor.
class TensorFlowKernel final : public tensorflow::OpKernel {
 public:
  TensorFlowKernel(tensorflow::OpKernelConstruction* ctx, KernelFactory factory)
      : OpKernel(ctx) {
    KernelNode node(ctx->def());
    kernel_ = factory(&node);
    OP_REQUIRES_OK(ctx, node.status());
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    TensorFlowCall call(ctx);
    OP_REQUIRES_OK(ctx, WithoutExceptions([&] { return kernel_->Run(&call); }));
  }

 private:
  std::unique_ptr<Kernel> kernel_;
};

class FactoryForTensorFlow final
    : public tensorflow::kernel_factory::OpKernelFactory {
 public:
  explicit FactoryForTensorFlow(KernelFactory factory) : factory_(factory) {}
  tensorflow::OpKernel* Create(tensorflow::OpKernelConstruction* ctx) override {
    try {
      return new TensorFlowKernel(ctx, factory_);
    } catch (...) {
      ctx->SetStatus(StatusOfException());
      return nullptr;
    }
  }

 private:
  KernelFactory factory_;
};

// Registers one kernel with TensorFlow's executor. This is what
// REGISTER_KERNEL_BUILDER expands to, without a class for each kernel.
void RegisterWithTensorFlow(const OpSpec& row, const std::string& op,
                            tensorflow::DataType type, const char* device,
                            KernelFactory factory) {
  tensorflow::KernelDefBuilder builder(op.c_str());
  builder.Device(device).TypeConstraint("T", type);
  for (const ArgumentList* list : {&row.inputs, &row.outputs}) {
    for (std::string_view argument : *list) {
      if (!IsOnHost(argument)) continue;
      builder.HostMemory(std::string(ArgumentName(argument)).c_str());
    }
  }
  tensorflow::kernel_factory::OpKernelRegistrar(
      builder.Build(), op, std::make_unique<FactoryForTensorFlow>(factory));
}

// The static objects that register kernels fill it while the library is loaded;
// then it does not change.
using KernelKey = std::tuple<std::string, tensorflow::DataType, std::string>;

std::map<KernelKey, KernelFactory>& KernelFactories() {
  static auto* const factories = new std::map<KernelKey, KernelFactory>;
  return *factories;
}

}  // namespace

KernelFactory FindKernelFactory(const std::string& op,
                                tensorflow::DataType type, const char* device) {
  const auto found = KernelFactories().find({op, type, device});
  return found == KernelFactories().end() ? nullptr : found->second;
}

void RegisterKernelsOfType(const OpSpec& row, tensorflow::DataType type,
                           KernelFactory cpu, KernelFactory gpu) {
  const std::string op = std::string(kNamespace) + row.name;
  KernelFactories()[{row.name, type, tensorflow::DEVICE_CPU}] = cpu;
  RegisterWithTensorFlow(row, op, type, tensorflow::DEVICE_CPU, cpu);
  if ((row.flags & kServesTensorFlow) != 0 && ExtendsTensorFlow()) {
    RegisterWithTensorFlow(row, row.name, type, tensorflow::DEVICE_CPU, cpu);
  }
  if (gpu != nullptr && GpuKernelsAreUsable()) {
    KernelFactories()[{row.name, type, tensorflow::DEVICE_GPU}] = gpu;
    RegisterWithTensorFlow(row, op, type, tensorflow::DEVICE_GPU, gpu);
  }
}

}  // namespace blockrnn
