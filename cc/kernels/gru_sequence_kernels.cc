// Owns the kernels of GRUSequence, GRUAfterSequence and their gradients. The
// order of inputs and outputs is that of cc/ops/gru_sequence_ops.cc.

#include "cc/core/gate_layout.h"
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

template <class T, class Device>
class GruSequenceOp
    : public SequenceKernel<T, GruSequenceForwardArgs<T>, Device> {
 public:
  explicit GruSequenceOp(OpKernelConstruction* ctx)
      : GruSequenceOp::SequenceKernel(ctx, Pass::kForward,
                                      {kWRuX, kMask, kLengths, kDropout}) {}

 private:
  enum In {
    kX,
    kHPrev,
    kWRuX,
    kWRuH,
    kWCX,
    kWCH,
    kBRu,
    kBC,
    kMask,
    kLengths,
    kDropout
  };
  enum Out { kH, kHLast, kR, kU, kC };

  void Fill(OpKernelContext* ctx,
            GruSequenceForwardArgs<T>* args) const override {
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->w_ru_x = Input<T>(ctx, kWRuX);
    args->w_ru_h = Input<T>(ctx, kWRuH);
    args->w_c_x = Input<T>(ctx, kWCX);
    args->w_c_h = Input<T>(ctx, kWCH);
    args->b_ru = Input<T>(ctx, kBRu);
    args->b_c = Input<T>(ctx, kBC);
    args->h = Output<T>(ctx, kH);
    args->h_last = Output<T>(ctx, kHLast);
    if (this->is_training()) {
      args->r = Output<T>(ctx, kR);
      args->u = Output<T>(ctx, kU);
      args->c = Output<T>(ctx, kC);
    }
  }
};

template <class T, class Device>
class GruSequenceGradOp
    : public SequenceKernel<T, GruSequenceBackwardArgs<T>, Device> {
 public:
  explicit GruSequenceGradOp(OpKernelConstruction* ctx)
      : GruSequenceGradOp::SequenceKernel(ctx, Pass::kBackward,
                                          {kWRuX, kMask, kLengths, kDropout}) {}

 private:
  enum In {
    kX,
    kHPrev,
    kWRuX,
    kWRuH,
    kWCX,
    kWCH,
    kMask,
    kLengths,
    kH,
    kR,
    kU,
    kC,
    kHGrad,
    kHLastGrad,
    kDropout
  };
  enum Out {
    kXGrad,
    kHPrevGrad,
    kWRuXGrad,
    kWRuHGrad,
    kWCXGrad,
    kWCHGrad,
    kBRuGrad,
    kBCGrad
  };

  void Fill(OpKernelContext* ctx,
            GruSequenceBackwardArgs<T>* args) const override {
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->w_ru_x = Input<T>(ctx, kWRuX);
    args->w_ru_h = Input<T>(ctx, kWRuH);
    args->w_c_x = Input<T>(ctx, kWCX);
    args->w_c_h = Input<T>(ctx, kWCH);
    args->h = Input<T>(ctx, kH);
    args->r = Input<T>(ctx, kR);
    args->u = Input<T>(ctx, kU);
    args->c = Input<T>(ctx, kC);
    args->h_grad = OptionalInput<T>(ctx, kHGrad);
    args->h_last_grad = OptionalInput<T>(ctx, kHLastGrad);
    args->x_grad = Output<T>(ctx, kXGrad);
    args->h_prev_grad = Output<T>(ctx, kHPrevGrad);
    args->w_ru_x_grad = Output<T>(ctx, kWRuXGrad);
    args->w_ru_h_grad = Output<T>(ctx, kWRuHGrad);
    args->w_c_x_grad = Output<T>(ctx, kWCXGrad);
    args->w_c_h_grad = Output<T>(ctx, kWCHGrad);
    args->b_ru_grad = Output<T>(ctx, kBRuGrad);
    args->b_c_grad = Output<T>(ctx, kBCGrad);
  }
};

absl::Status GetGateOrder(OpKernelConstruction* ctx,
                          GruAfterGateLayout* layout) {
  std::string order;
  const absl::Status status = ctx->GetAttr("gate_order", &order);
  *layout = order == "urc" ? kGruUrc : kGruRuc;
  return status;
}

template <class T, class Device>
class GruAfterSequenceOp
    : public SequenceKernel<T, GruAfterSequenceForwardArgs<T>, Device> {
 public:
  explicit GruAfterSequenceOp(OpKernelConstruction* ctx)
      : GruAfterSequenceOp::SequenceKernel(ctx, Pass::kForward,
                                           {kWX, kMask, kLengths, kDropout}) {
    OP_REQUIRES_OK(ctx, GetGateOrder(ctx, &layout_));
  }

 private:
  enum In { kX, kHPrev, kWX, kWH, kBX, kBH, kMask, kLengths, kDropout };
  enum Out { kH, kHLast, kR, kU, kC, kHc };

  void Fill(OpKernelContext* ctx,
            GruAfterSequenceForwardArgs<T>* args) const override {
    args->layout = layout_;
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->w_x = Input<T>(ctx, kWX);
    args->w_h = Input<T>(ctx, kWH);
    args->b_x = Input<T>(ctx, kBX);
    args->b_h = Input<T>(ctx, kBH);
    args->h = Output<T>(ctx, kH);
    args->h_last = Output<T>(ctx, kHLast);
    if (this->is_training()) {
      args->r = Output<T>(ctx, kR);
      args->u = Output<T>(ctx, kU);
      args->c = Output<T>(ctx, kC);
      args->hc = Output<T>(ctx, kHc);
    }
  }

  GruAfterGateLayout layout_ = kGruRuc;
};

template <class T, class Device>
class GruAfterSequenceGradOp
    : public SequenceKernel<T, GruAfterSequenceBackwardArgs<T>, Device> {
 public:
  explicit GruAfterSequenceGradOp(OpKernelConstruction* ctx)
      : GruAfterSequenceGradOp::SequenceKernel(
            ctx, Pass::kBackward, {kWX, kMask, kLengths, kDropout}) {
    OP_REQUIRES_OK(ctx, GetGateOrder(ctx, &layout_));
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
    kR,
    kU,
    kC,
    kHc,
    kHGrad,
    kHLastGrad,
    kDropout
  };
  enum Out { kXGrad, kHPrevGrad, kWXGrad, kWHGrad, kBXGrad, kBHGrad };

  void Fill(OpKernelContext* ctx,
            GruAfterSequenceBackwardArgs<T>* args) const override {
    args->layout = layout_;
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->w_x = Input<T>(ctx, kWX);
    args->w_h = Input<T>(ctx, kWH);
    args->h = Input<T>(ctx, kH);
    args->r = Input<T>(ctx, kR);
    args->u = Input<T>(ctx, kU);
    args->c = Input<T>(ctx, kC);
    args->hc = Input<T>(ctx, kHc);
    args->h_grad = OptionalInput<T>(ctx, kHGrad);
    args->h_last_grad = OptionalInput<T>(ctx, kHLastGrad);
    args->x_grad = Output<T>(ctx, kXGrad);
    args->h_prev_grad = Output<T>(ctx, kHPrevGrad);
    args->w_x_grad = Output<T>(ctx, kWXGrad);
    args->w_h_grad = Output<T>(ctx, kWHGrad);
    args->b_x_grad = Output<T>(ctx, kBXGrad);
    args->b_h_grad = Output<T>(ctx, kBHGrad);
  }

  GruAfterGateLayout layout_ = kGruRuc;
};

[[maybe_unused]] const bool gru_sequence_registered =
    RegisterKernels<GruSequenceOp>("BlockRNN>GRUSequence", {kLengthsInput}) &&
    RegisterKernels<GruSequenceGradOp>("BlockRNN>GRUSequenceGrad",
                                       {kLengthsInput}) &&
    RegisterKernels<GruAfterSequenceOp>("BlockRNN>GRUAfterSequence",
                                        {kLengthsInput}) &&
    RegisterKernels<GruAfterSequenceGradOp>("BlockRNN>GRUAfterSequenceGrad",
                                            {kLengthsInput});

}  // namespace
}  // namespace blockrnn
