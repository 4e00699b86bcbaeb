// Owns the kernels of LSTMSequence and LSTMSequenceGrad. The order of inputs
// and outputs is that of cc/ops/lstm_sequence_ops.cc.

#include <cstdint>

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

// The parts of peepholes, which come as one array [3, H].
template <class Weights>
struct Peepholes {
  Weights* wci;
  Weights* wcf;
  Weights* wco;

  Peepholes(Weights* all, int64_t units)
      : wci(all), wcf(all + units), wco(all + 2 * units) {}
};

// P, if w_p is not left out; else 0, by which an engine knows that there is no
// projection.
int64_t SizeOfProjection(OpKernelContext* ctx, int w_p) {
  return ctx->input(w_p).dims() == 1 ? 0 : ctx->input(w_p).dim_size(0);
}

template <class T, class Device>
class LstmSequenceOp
    : public SequenceKernel<T, LstmSequenceForwardArgs<T>, Device> {
 public:
  explicit LstmSequenceOp(OpKernelConstruction* ctx)
      : LstmSequenceOp::SequenceKernel(ctx, Pass::kForward,
                                       {kWX, kMask, kLengths, kDropout}) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("forget_bias", &lstm_.forget_bias));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cell_clip", &lstm_.cell_clip));
  }

 private:
  enum In {
    kX,
    kHPrev,
    kCsPrev,
    kWX,
    kWH,
    kB,
    kPeepholes,
    kMask,
    kLengths,
    kWP,
    kDropout
  };
  enum Out { kH, kHLast, kCsLast, kI, kCs, kF, kO, kCi };

  int64_t ProjectionSize(OpKernelContext* ctx) const override {
    return SizeOfProjection(ctx, kWP);
  }

  void Fill(OpKernelContext* ctx,
            LstmSequenceForwardArgs<T>* args) const override {
    args->layout = kLstmIfco;
    args->options = lstm_;
    const T* const peepholes = OptionalInput<T>(ctx, kPeepholes);
    args->options.use_peephole = peepholes != nullptr;
    if (peepholes != nullptr) {
      const Peepholes<const T> weights(peepholes, args->shape.units);
      args->wci = weights.wci;
      args->wcf = weights.wcf;
      args->wco = weights.wco;
    }
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->cs_prev = Input<T>(ctx, kCsPrev);
    args->w_x = Input<T>(ctx, kWX);
    args->w_h = Input<T>(ctx, kWH);
    args->w_p = OptionalInput<T>(ctx, kWP);
    args->proj = ProjectionSize(ctx);
    args->b = Input<T>(ctx, kB);
    args->h = Output<T>(ctx, kH);
    args->h_last = Output<T>(ctx, kHLast);
    args->cs_last = Output<T>(ctx, kCsLast);
    if (this->is_training()) {
      args->i = Output<T>(ctx, kI);
      args->cs = Output<T>(ctx, kCs);
      args->f = Output<T>(ctx, kF);
      args->o = Output<T>(ctx, kO);
      args->ci = Output<T>(ctx, kCi);
    }
  }

  LstmOptions lstm_;
};

template <class T, class Device>
class LstmSequenceGradOp
    : public SequenceKernel<T, LstmSequenceBackwardArgs<T>, Device> {
 public:
  explicit LstmSequenceGradOp(OpKernelConstruction* ctx)
      : LstmSequenceGradOp::SequenceKernel(ctx, Pass::kBackward,
                                           {kWX, kMask, kLengths, kDropout}) {}

 private:
  enum In {
    kX,
    kHPrev,
    kCsPrev,
    kWX,
    kWH,
    kPeepholes,
    kMask,
    kLengths,
    kH,
    kI,
    kCs,
    kF,
    kO,
    kCi,
    kHGrad,
    kHLastGrad,
    kCsLastGrad,
    kCsGrad,
    kWP,
    kDropout
  };
  enum Out {
    kXGrad,
    kHPrevGrad,
    kCsPrevGrad,
    kWXGrad,
    kWHGrad,
    kBGrad,
    kPeepholesGrad,
    kWPGrad
  };

  int64_t ProjectionSize(OpKernelContext* ctx) const override {
    return SizeOfProjection(ctx, kWP);
  }

  void Fill(OpKernelContext* ctx,
            LstmSequenceBackwardArgs<T>* args) const override {
    args->layout = kLstmIfco;
    const T* const peepholes = OptionalInput<T>(ctx, kPeepholes);
    args->use_peephole = peepholes != nullptr;
    if (peepholes != nullptr) {
      const Peepholes<const T> weights(peepholes, args->shape.units);
      const Peepholes<T> grads(Output<T>(ctx, kPeepholesGrad),
                               args->shape.units);
      args->wci = weights.wci;
      args->wcf = weights.wcf;
      args->wco = weights.wco;
      args->wci_grad = grads.wci;
      args->wcf_grad = grads.wcf;
      args->wco_grad = grads.wco;
    }
    args->x = Input<T>(ctx, kX);
    args->h_prev = Input<T>(ctx, kHPrev);
    args->cs_prev = Input<T>(ctx, kCsPrev);
    args->w_x = Input<T>(ctx, kWX);
    args->w_h = Input<T>(ctx, kWH);
    args->w_p = OptionalInput<T>(ctx, kWP);
    args->proj = ProjectionSize(ctx);
    args->h = Input<T>(ctx, kH);
    args->i = Input<T>(ctx, kI);
    args->cs = Input<T>(ctx, kCs);
    args->f = Input<T>(ctx, kF);
    args->o = Input<T>(ctx, kO);
    args->ci = Input<T>(ctx, kCi);
    args->h_grad = OptionalInput<T>(ctx, kHGrad);
    args->h_last_grad = OptionalInput<T>(ctx, kHLastGrad);
    args->cs_last_grad = OptionalInput<T>(ctx, kCsLastGrad);
    args->cs_grad = OptionalInput<T>(ctx, kCsGrad);
    args->x_grad = Output<T>(ctx, kXGrad);
    args->h_prev_grad = Output<T>(ctx, kHPrevGrad);
    args->cs_prev_grad = Output<T>(ctx, kCsPrevGrad);
    args->w_x_grad = Output<T>(ctx, kWXGrad);
    args->w_h_grad = Output<T>(ctx, kWHGrad);
    args->b_grad = Output<T>(ctx, kBGrad);
    args->w_p_grad = Output<T>(ctx, kWPGrad);
  }
};

[[maybe_unused]] const bool lstm_sequence_registered =
    RegisterKernels<LstmSequenceOp>("BlockRNN>LSTMSequence", {kLengthsInput}) &&
    RegisterKernels<LstmSequenceGradOp>("BlockRNN>LSTMSequenceGrad",
                                        {kLengthsInput});

}  // namespace
}  // namespace blockrnn
