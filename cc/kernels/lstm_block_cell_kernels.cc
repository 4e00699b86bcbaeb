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
    args.x = Input<T>(ctx, kX);
    args.cs_prev = Input<T>(ctx, kCsPrev);
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w = Input<T>(ctx, kW);
    args.wci = Input<T>(ctx, kWci);
    args.wcf = Input<T>(ctx, kWcf);
    args.wco = Input<T>(ctx, kWco);
    args.b = Input<T>(ctx, kB);
    args.i = Output<T>(ctx, kI);
    args.cs = Output<T>(ctx, kCs);
    args.f = Output<T>(ctx, kF);
    args.o = Output<T>(ctx, kO);
    args.ci = Output<T>(ctx, kCi);
    args.co = Output<T>(ctx, kCo);
    args.h = Output<T>(ctx, kH);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In { kX, kCsPrev, kHPrev, kW, kWci, kWcf, kWco, kB };
  enum Out { kI, kCs, kF, kO, kCi, kCo, kH };

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
    args.cs_prev = Input<T>(ctx, kCsPrev);
    args.wci = Input<T>(ctx, kWci);
    args.wcf = Input<T>(ctx, kWcf);
    args.wco = Input<T>(ctx, kWco);
    args.i = Input<T>(ctx, kI);
    args.cs = Input<T>(ctx, kCs);
    args.f = Input<T>(ctx, kF);
    args.o = Input<T>(ctx, kO);
    args.ci = Input<T>(ctx, kCi);
    args.co = Input<T>(ctx, kCo);
    args.cs_grad = Input<T>(ctx, kCsGrad);
    args.h_grad = Input<T>(ctx, kHGrad);
    args.cs_prev_grad = Output<T>(ctx, kCsPrevGrad);
    args.dicfo = Output<T>(ctx, kDicfo);
    args.wci_grad = Output<T>(ctx, kWciGrad);
    args.wcf_grad = Output<T>(ctx, kWcfGrad);
    args.wco_grad = Output<T>(ctx, kWcoGrad);
    if (!use_peephole_) {
      // The engine leaves these alone, and their length need not be H.
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, kWciGrad, kWcoGrad + 1));
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In {
    kX,
    kCsPrev,
    kHPrev,
    kW,
    kWci,
    kWcf,
    kWco,
    kB,
    kI,
    kCs,
    kF,
    kO,
    kCi,
    kCo,
    kCsGrad,
    kHGrad
  };
  enum Out { kCsPrevGrad, kDicfo, kWciGrad, kWcfGrad, kWcoGrad };

  Device device_;
  bool use_peephole_ = false;
};

[[maybe_unused]] const bool lstm_block_cell_registered =
    RegisterKernels<LstmBlockCellOp>("BlockRNN>LSTMBlockCell") &&
    RegisterKernels<LstmBlockCellGradOp>("BlockRNN>LSTMBlockCellGrad");

}  // namespace
}  // namespace blockrnn
