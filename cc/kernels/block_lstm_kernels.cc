// Owns the kernels of BlockLSTM, BlockLSTMV2 and their gradients. The order of
// inputs and outputs is that of cc/ops/block_lstm_ops.cc.

#include "cc/core/gate_layout.h"
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

// V2 has another order of the gates and no forget bias.

template <class T, class Device, bool kV2>
class BlockLstmOp : public ContractKernel {
 public:
  explicit BlockLstmOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    options_.forget_bias = 0;
    if (!kV2) {
      OP_REQUIRES_OK(ctx, ctx->GetAttr("forget_bias", &options_.forget_bias));
    }
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cell_clip", &options_.cell_clip));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_peephole", &options_.use_peephole));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    LstmSequenceForwardArgs<T> args;
    OP_REQUIRES_OK(ctx, GetFirstSteps(ctx, bound, &args.shape));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    OP_REQUIRES_OK(
        ctx, ZeroOutputs(ctx, device_, 0, num_outputs(), args.shape.steps));
    if (NoState(bound)) return;
    args.layout = kV2 ? kLstmIfco : kLstmIcfo;
    args.options = options_;
    args.x = Input<T>(ctx, kX);
    args.cs_prev = Input<T>(ctx, kCsPrev);
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w_x = Input<T>(ctx, kW);
    args.w_h = args.w_x + bound['I'] * kLstmGates * bound['H'];
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
  enum In { kSeqLenMax, kX, kCsPrev, kHPrev, kW, kWci, kWcf, kWco, kB };
  enum Out { kI, kCs, kF, kO, kCi, kCo, kH };

  Device device_;
  LstmOptions options_;
};

template <class T, class Device, bool kV2>
class BlockLstmGradOp : public ContractKernel {
 public:
  explicit BlockLstmGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("use_peephole", &use_peephole_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    LstmSequenceBackwardArgs<T> args;
    OP_REQUIRES_OK(ctx, GetFirstSteps(ctx, bound, &args.shape));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kAll));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    OP_REQUIRES_OK(ctx, ZeroOutput(ctx, device_, kXGrad, args.shape.steps));
    if (!use_peephole_) {
      // The engine leaves these alone, and their length need not be H.
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, kWciGrad, kWcoGrad + 1));
    }
    args.layout = kV2 ? kLstmIfco : kLstmIcfo;
    args.use_peephole = use_peephole_;
    args.x = Input<T>(ctx, kX);
    args.cs_prev = Input<T>(ctx, kCsPrev);
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w_x = Input<T>(ctx, kW);
    const int64_t w_h = bound['I'] * kLstmGates * bound['H'];
    args.w_h = args.w_x + w_h;
    args.wci = Input<T>(ctx, kWci);
    args.wcf = Input<T>(ctx, kWcf);
    args.wco = Input<T>(ctx, kWco);
    args.i = Input<T>(ctx, kI);
    args.cs = Input<T>(ctx, kCs);
    args.f = Input<T>(ctx, kF);
    args.o = Input<T>(ctx, kO);
    args.ci = Input<T>(ctx, kCi);
    args.co = Input<T>(ctx, kCo);
    args.h = Input<T>(ctx, kH);
    args.cs_grad = Input<T>(ctx, kCsGrad);
    args.h_grad = Input<T>(ctx, kHGrad);
    args.x_grad = Output<T>(ctx, kXGrad);
    args.cs_prev_grad = Output<T>(ctx, kCsPrevGrad);
    args.h_prev_grad = Output<T>(ctx, kHPrevGrad);
    args.w_x_grad = Output<T>(ctx, kWGrad);
    args.w_h_grad = args.w_x_grad + w_h;
    args.wci_grad = Output<T>(ctx, kWciGrad);
    args.wcf_grad = Output<T>(ctx, kWcfGrad);
    args.wco_grad = Output<T>(ctx, kWcoGrad);
    args.b_grad = Output<T>(ctx, kBGrad);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In {
    kSeqLenMax,
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
    kH,
    kCsGrad,
    kHGrad
  };
  enum Out {
    kXGrad,
    kCsPrevGrad,
    kHPrevGrad,
    kWGrad,
    kWciGrad,
    kWcfGrad,
    kWcoGrad,
    kBGrad
  };

  Device device_;
  bool use_peephole_ = false;
};

template <class T, class Device>
using BlockLstmV1Op = BlockLstmOp<T, Device, false>;
template <class T, class Device>
using BlockLstmV2Op = BlockLstmOp<T, Device, true>;
template <class T, class Device>
using BlockLstmGradV1Op = BlockLstmGradOp<T, Device, false>;
template <class T, class Device>
using BlockLstmGradV2Op = BlockLstmGradOp<T, Device, true>;

[[maybe_unused]] const bool block_lstm_registered =
    RegisterKernels<BlockLstmV1Op>("BlockRNN>BlockLSTM", {kSeqLenMaxInput}) &&
    RegisterKernels<BlockLstmV2Op>("BlockRNN>BlockLSTMV2", {kSeqLenMaxInput}) &&
    RegisterKernels<BlockLstmGradV1Op>("BlockRNN>BlockLSTMGrad",
                                       {kSeqLenMaxInput}) &&
    RegisterKernels<BlockLstmGradV2Op>("BlockRNN>BlockLSTMGradV2",
                                       {kSeqLenMaxInput});

}  // namespace
}  // namespace blockrnn
