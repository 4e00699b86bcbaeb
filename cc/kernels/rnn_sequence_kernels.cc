// Owns the kernels of RNNSequence and RNNSequenceGrad. The order of inputs and
// outputs is that of cc/ops/rnn_sequence_ops.cc.

#include <string>

#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu_host.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/kernels/sequence_kernel.h"
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
class RnnSequenceOp
    : public SequenceKernel<T, SimpleRnnForwardArgs<T>, Device> {
 public:
  explicit RnnSequenceOp(OpKernelConstruction* ctx)
      : RnnSequenceOp::SequenceKernel(ctx, Pass::kForward,
                                      {kWX, kMask, kLengths, kDropout}) {
    OP_REQUIRES_OK(ctx, GetActivation(ctx, &relu_));
  }

 private:
  enum In { kX, kHPrev, kWX, kWH, kB, kMask, kLengths, kDropout };
  enum Out { kH, kHLast };

  void Fill(OpKernelContext* ctx,
            SimpleRnnForwardArgs<T>* args) const override {
    args->relu = relu_;
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->w_x = Input<T>(ctx, kWX);
    args->w_h = Input<T>(ctx, kWH);
    args->b = Input<T>(ctx, kB);
    args->h = Output<T>(ctx, kH);
    args->h_last = Output<T>(ctx, kHLast);
  }

  bool relu_ = false;
};

template <class T, class Device>
class RnnSequenceGradOp
    : public SequenceKernel<T, SimpleRnnBackwardArgs<T>, Device> {
 public:
  explicit RnnSequenceGradOp(OpKernelConstruction* ctx)
      : RnnSequenceGradOp::SequenceKernel(ctx, Pass::kBackward,
                                          {kWX, kMask, kLengths, kDropout}) {
    OP_REQUIRES_OK(ctx, GetActivation(ctx, &relu_));
  }

 private:
  enum In {
    kX,
    kHPrev,
    kWX,
    kWH,
    kMask,
    kLengths,
    kH,
    kHGrad,
    kHLastGrad,
    kDropout
  };
  enum Out { kXGrad, kHPrevGrad, kWXGrad, kWHGrad, kBGrad };

  void Fill(OpKernelContext* ctx,
            SimpleRnnBackwardArgs<T>* args) const override {
    args->relu = relu_;
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->w_x = Input<T>(ctx, kWX);
    args->w_h = Input<T>(ctx, kWH);
    args->h = Input<T>(ctx, kH);
    args->h_grad = OptionalInput<T>(ctx, kHGrad);
    args->h_last_grad = OptionalInput<T>(ctx, kHLastGrad);
    args->x_grad = Output<T>(ctx, kXGrad);
    args->h_prev_grad = Output<T>(ctx, kHPrevGrad);
    args->w_x_grad = Output<T>(ctx, kWXGrad);
    args->w_h_grad = Output<T>(ctx, kWHGrad);
    args->b_grad = Output<T>(ctx, kBGrad);
  }

  bool relu_ = false;
};

[[maybe_unused]] const bool rnn_sequence_registered =
    RegisterKernels<RnnSequenceOp>("BlockRNN>RNNSequence", {kLengthsInput}) &&
    RegisterKernels<RnnSequenceGradOp>("BlockRNN>RNNSequenceGrad",
                                       {kLengthsInput});

}  // namespace
}  // namespace blockrnn
