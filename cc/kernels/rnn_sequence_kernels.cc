// Owns the kernels of RNNSequence and RNNSequenceGrad. The order of inputs and
// outputs is that of cc/ops/rnn_sequence_ops.cc.

#include <string>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu_host.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/kernels/sequence_util.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

absl::Status GetActivation(OpKernelConstruction* ctx, bool* relu) {
  std::string activation;
  const absl::Status status = ctx->GetAttr("activation", &activation);
  *relu = activation == "relu";
  return status;
}

template <class T, class Device>
class RnnSequenceOp : public ContractKernel {
 public:
  explicit RnnSequenceOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, false, &options_));
    OP_REQUIRES_OK(ctx, GetActivation(ctx, &relu_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    RnnSequenceForwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 6, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.relu = relu_;
    args.shape.projected_input = IsProjected(ctx, 2);
    args.mask = OptionalInput<uint8_t>(ctx, 5);
    args.recurrent_dropout = OptionalInput<T>(ctx, 7);
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_x = Input<T>(ctx, 2);
    args.w_h = Input<T>(ctx, 3);
    args.b = Input<T>(ctx, 4);
    args.h = Output<T>(ctx, 0);
    args.h_last = Output<T>(ctx, 1);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
  bool relu_ = false;
};

template <class T, class Device>
class RnnSequenceGradOp : public ContractKernel {
 public:
  explicit RnnSequenceGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, false, &options_));
    OP_REQUIRES_OK(ctx, GetActivation(ctx, &relu_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    RnnSequenceBackwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 5, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kAll));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.relu = relu_;
    args.shape.projected_input = IsProjected(ctx, 2);
    args.mask = OptionalInput<uint8_t>(ctx, 4);
    args.recurrent_dropout = OptionalInput<T>(ctx, 9);
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_x = Input<T>(ctx, 2);
    args.w_h = Input<T>(ctx, 3);
    args.h = Input<T>(ctx, 6);
    args.h_grad = OptionalInput<T>(ctx, 7);
    args.h_last_grad = OptionalInput<T>(ctx, 8);
    args.x_grad = Output<T>(ctx, 0);
    args.h_prev_grad = Output<T>(ctx, 1);
    args.w_x_grad = Output<T>(ctx, 2);
    args.w_h_grad = Output<T>(ctx, 3);
    args.b_grad = Output<T>(ctx, 4);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
  bool relu_ = false;
};

[[maybe_unused]] const bool rnn_sequence_registered =
    RegisterKernels<RnnSequenceOp>("BlockRNN>RNNSequence", {kLengthsInput}) &&
    RegisterKernels<RnnSequenceGradOp>("BlockRNN>RNNSequenceGrad",
                                       {kLengthsInput});

}  // namespace
}  // namespace blockrnn
