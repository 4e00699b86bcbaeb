// Declares the kernels as TensorFlow's executor calls them.

#ifndef BLOCKRNN_KERNELS_TENSORFLOW_CALL_H_
#define BLOCKRNN_KERNELS_TENSORFLOW_CALL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace blockrnn {

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

  int num_threads() const override;
  void Schedule(void (*run)(void* arg), void* arg) override;
  absl::Status AllocateScratch(std::size_t bytes, void** scratch) override;
  bool can_be_cancelled() const override;
  bool Cancelled() const override;
  void* stream() const override;

 private:
  tensorflow::OpKernelContext* ctx_;
  std::mutex mutex_;
  absl::InlinedVector<tensorflow::Tensor, 4> scratch_;  // under mutex_
};

// A kernel for TensorFlow's executor.
class TensorFlowKernel final : public tensorflow::OpKernel {
 public:
  TensorFlowKernel(tensorflow::OpKernelConstruction* ctx,
                   KernelFactory factory);

  void Compute(tensorflow::OpKernelContext* ctx) override {
    TensorFlowCall call(ctx);
    OP_REQUIRES_OK(ctx, kernel_->Run(&call));
  }

 private:
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_TENSORFLOW_CALL_H_
