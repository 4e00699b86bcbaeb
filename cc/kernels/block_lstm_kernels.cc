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
    OP_REQUIRES_OK(ctx, SequenceShapeOf(ctx, bound, &args.shape));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    OP_REQUIRES_OK(
        ctx, ZeroOutputs(ctx, device_, 0, num_outputs(), args.shape.steps));
    if (NoState(bound)) return;
    args.layout = kV2 ? kLstmIfco : kLstmIcfo;
    args.options = options_;
    args.x = Input<T>(ctx, 1);
    args.cs_prev = Input<T>(ctx, 2);
    args.h_prev = Input<T>(ctx, 3);
    args.w_x = Input<T>(ctx, 4);
    args.w_h = args.w_x + bound['I'] * kLstmGates * bound['H'];
    args.wci = Input<T>(ctx, 5);
    args.wcf = Input<T>(ctx, 6);
    args.wco = Input<T>(ctx, 7);
    args.b = Input<T>(ctx, 8);
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
    OP_REQUIRES_OK(ctx, SequenceShapeOf(ctx, bound, &args.shape));
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
    args.x = Input<T>(ctx, 1);
    args.cs_prev = Input<T>(ctx, 2);
    args.h_prev = Input<T>(ctx, 3);
    args.w_x = Input<T>(ctx, 4);
    const int64_t w_h = bound['I'] * kLstmGates * bound['H'];
    args.w_h = args.w_x + w_h;
    args.wci = Input<T>(ctx, 5);
    args.wcf = Input<T>(ctx, 6);
    args.wco = Input<T>(ctx, 7);
    args.i = Input<T>(ctx, 9);
    args.cs = Input<T>(ctx, 10);
    args.f = Input<T>(ctx, 11);
    args.o = Input<T>(ctx, 12);
    args.ci = Input<T>(ctx, 13);
    args.co = Input<T>(ctx, 14);
    args.h = Input<T>(ctx, 15);
    args.cs_grad = Input<T>(ctx, 16);
    args.h_grad = Input<T>(ctx, 17);
    args.x_grad = Output<T>(ctx, kXGrad);
    args.cs_prev_grad = Output<T>(ctx, 1);
    args.h_prev_grad = Output<T>(ctx, 2);
    args.w_x_grad = Output<T>(ctx, 3);
    args.w_h_grad = args.w_x_grad + w_h;
    args.wci_grad = Output<T>(ctx, kWciGrad);
    args.wcf_grad = Output<T>(ctx, kWciGrad + 1);
    args.wco_grad = Output<T>(ctx, kWcoGrad);
    args.b_grad = Output<T>(ctx, 7);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  static constexpr int kXGrad = 0;
  static constexpr int kWciGrad = 4;
  static constexpr int kWcoGrad = 6;

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
