// Owns the kernels of BlockGRU and BlockGRUGrad. The order of inputs and
// outputs is that of cc/ops/block_gru_ops.cc.

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

template <class T, class Device>
class BlockGruOp : public ContractKernel {
 public:
  explicit BlockGruOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    GruSequenceForwardArgs<T> args;
    OP_REQUIRES_OK(ctx, GetFirstSteps(ctx, bound, &args.shape));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    OP_REQUIRES_OK(
        ctx, ZeroOutputs(ctx, device_, 0, num_outputs(), args.shape.steps));
    if (NoState(bound)) return;
    args.x = Input<T>(ctx, kX);
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w_ru_x = Input<T>(ctx, kWRu);
    args.w_ru_h = args.w_ru_x + bound['I'] * kGruGates * bound['H'];
    args.w_c_x = Input<T>(ctx, kWC);
    args.w_c_h = args.w_c_x + bound['I'] * bound['H'];
    args.b_ru = Input<T>(ctx, kBRu);
    args.b_c = Input<T>(ctx, kBC);
    args.r = Output<T>(ctx, kR);
    args.u = Output<T>(ctx, kU);
    args.c = Output<T>(ctx, kC);
    args.h = Output<T>(ctx, kH);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In { kSeqLenMax, kX, kHPrev, kWRu, kWC, kBRu, kBC };
  enum Out { kR, kU, kC, kH };

  Device device_;
};

template <class T, class Device>
class BlockGruGradOp : public ContractKernel {
 public:
  explicit BlockGruGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    GruSequenceBackwardArgs<T> args;
    OP_REQUIRES_OK(ctx, GetFirstSteps(ctx, bound, &args.shape));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kAll));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    OP_REQUIRES_OK(ctx, ZeroOutput(ctx, device_, kXGrad, args.shape.steps));
    const int64_t w_ru_h = bound['I'] * kGruGates * bound['H'];
    const int64_t w_c_h = bound['I'] * bound['H'];
    args.x = Input<T>(ctx, kX);
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w_ru_x = Input<T>(ctx, kWRu);
    args.w_ru_h = args.w_ru_x + w_ru_h;
    args.w_c_x = Input<T>(ctx, kWC);
    args.w_c_h = args.w_c_x + w_c_h;
    args.r = Input<T>(ctx, kR);
    args.u = Input<T>(ctx, kU);
    args.c = Input<T>(ctx, kC);
    args.h = Input<T>(ctx, kH);
    args.h_grad = Input<T>(ctx, kHGrad);
    args.x_grad = Output<T>(ctx, kXGrad);
    args.h_prev_grad = Output<T>(ctx, kHPrevGrad);
    args.w_ru_x_grad = Output<T>(ctx, kWRuGrad);
    args.w_ru_h_grad = args.w_ru_x_grad + w_ru_h;
    args.w_c_x_grad = Output<T>(ctx, kWCGrad);
    args.w_c_h_grad = args.w_c_x_grad + w_c_h;
    args.b_ru_grad = Output<T>(ctx, kBRuGrad);
    args.b_c_grad = Output<T>(ctx, kBCGrad);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In {
    kSeqLenMax,
    kX,
    kHPrev,
    kWRu,
    kWC,
    kBRu,
    kBC,
    kR,
    kU,
    kC,
    kH,
    kHGrad
  };
  enum Out { kXGrad, kHPrevGrad, kWRuGrad, kWCGrad, kBRuGrad, kBCGrad };

  Device device_;
};

[[maybe_unused]] const bool block_gru_registered =
    RegisterKernels<BlockGruOp>("BlockRNN>BlockGRU", {kSeqLenMaxInput}) &&
    RegisterKernels<BlockGruGradOp>("BlockRNN>BlockGRUGrad", {kSeqLenMaxInput});

}  // namespace
}  // namespace blockrnn
