// Owns the kernels of GRUBlockCell and GRUBlockCellGrad. The order of inputs
// and outputs is that of cc/ops/gru_block_cell_ops.cc.

#include "cc/kernels/cpu_host.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

template <class T, class Device>
class GruBlockCellOp : public ContractKernel {
 public:
  explicit GruBlockCellOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &bound));
    GruCellForwardArgs<T> args;
    args.dims = CellDimsOf(bound);
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_ru = Input<T>(ctx, 2);
    args.w_c = Input<T>(ctx, 3);
    args.b_ru = Input<T>(ctx, 4);
    args.b_c = Input<T>(ctx, 5);
    args.r = Output<T>(ctx, 0);
    args.u = Output<T>(ctx, 1);
    args.c = Output<T>(ctx, 2);
    args.h = Output<T>(ctx, 3);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
};

template <class T, class Device>
class GruBlockCellGradOp : public ContractKernel {
 public:
  explicit GruBlockCellGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, Prepare(ctx, &bound));
    GruCellBackwardArgs<T> args;
    args.dims = CellDimsOf(bound);
    args.h_prev = Input<T>(ctx, 1);
    args.w_ru = Input<T>(ctx, 2);
    args.w_c = Input<T>(ctx, 3);
    args.r = Input<T>(ctx, 6);
    args.u = Input<T>(ctx, 7);
    args.c = Input<T>(ctx, 8);
    args.d_h = Input<T>(ctx, 9);
    args.d_x = Output<T>(ctx, 0);
    args.d_h_prev = Output<T>(ctx, 1);
    args.d_c_bar = Output<T>(ctx, 2);
    args.d_r_bar_u_bar = Output<T>(ctx, 3);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
};

[[maybe_unused]] const bool gru_block_cell_registered =
    RegisterKernels<GruBlockCellOp>("BlockRNN>GRUBlockCell") &&
    RegisterKernels<GruBlockCellGradOp>("BlockRNN>GRUBlockCellGrad");

}  // namespace
}  // namespace blockrnn
