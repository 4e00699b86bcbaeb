// Owns the kernels of LSTMBlockCell and LSTMBlockCellGrad. The order of inputs
// and outputs is that of cc/ops/lstm_block_cell_ops.cc.

#include "cc/kernels/cpu_host.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

template <class T, class Device>
class LstmBlockCellOp : public ContractKernel {
 public:
  explicit LstmBlockCellOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("forget_bias", &options_.forget_bias));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cell_clip", &options_.cell_clip));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_peephole", &options_.use_peephole));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &bound));
    LstmCellForwardArgs<T> args;
    args.dims = CellDimsOf(bound);
    args.options = options_;
    args.x = Input<T>(ctx, 0);
    args.cs_prev = Input<T>(ctx, 1);
    args.h_prev = Input<T>(ctx, 2);
    args.w = Input<T>(ctx, 3);
    args.wci = Input<T>(ctx, 4);
    args.wcf = Input<T>(ctx, 5);
    args.wco = Input<T>(ctx, 6);
    args.b = Input<T>(ctx, 7);
    args.i = Output<T>(ctx, 0);
    args.cs = Output<T>(ctx, 1);
    args.f = Output<T>(ctx, 2);
    args.o = Output<T>(ctx, 3);
    args.ci = Output<T>(ctx, 4);
    args.co = Output<T>(ctx, 5);
    args.h = Output<T>(ctx, 6);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  LstmOptions options_;
};

template <class T, class Device>
class LstmBlockCellGradOp : public ContractKernel {
 public:
  explicit LstmBlockCellGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_peephole", &use_peephole_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &bound));
    LstmCellBackwardArgs<T> args;
    args.dims = CellDimsOf(bound);
    args.use_peephole = use_peephole_;
    args.cs_prev = Input<T>(ctx, 1);
    args.wci = Input<T>(ctx, 4);
    args.wcf = Input<T>(ctx, 5);
    args.wco = Input<T>(ctx, 6);
    args.i = Input<T>(ctx, 8);
    args.cs = Input<T>(ctx, 9);
    args.f = Input<T>(ctx, 10);
    args.o = Input<T>(ctx, 11);
    args.ci = Input<T>(ctx, 12);
    args.co = Input<T>(ctx, 13);
    args.cs_grad = Input<T>(ctx, 14);
    args.h_grad = Input<T>(ctx, 15);
    args.cs_prev_grad = Output<T>(ctx, 0);
    args.dicfo = Output<T>(ctx, 1);
    args.wci_grad = Output<T>(ctx, 2);
    args.wcf_grad = Output<T>(ctx, 3);
    args.wco_grad = Output<T>(ctx, 4);
    if (!use_peephole_) {
      // The engine leaves these alone, and their length need not be H.
      for (int output = 2; output <= 4; ++output) {
        OP_REQUIRES_OK(
            ctx, device_.FillZero(ctx, Output<T>(ctx, output),
                                  ctx->mutable_output(output)->TotalBytes()));
      }
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  bool use_peephole_ = false;
};

[[maybe_unused]] const bool lstm_block_cell_registered =
    RegisterKernels<LstmBlockCellOp>("BlockRNN>LSTMBlockCell") &&
    RegisterKernels<LstmBlockCellGradOp>("BlockRNN>LSTMBlockCellGrad");

}  // namespace
}  // namespace blockrnn
