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
    args.x = Input<T>(ctx, kX);
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w_ru = Input<T>(ctx, kWRu);
    args.w_c = Input<T>(ctx, kWC);
    args.b_ru = Input<T>(ctx, kBRu);
    args.b_c = Input<T>(ctx, kBC);
    args.r = Output<T>(ctx, kR);
    args.u = Output<T>(ctx, kU);
    args.c = Output<T>(ctx, kC);
    args.h = Output<T>(ctx, kH);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In { kX, kHPrev, kWRu, kWC, kBRu, kBC };
  enum Out { kR, kU, kC, kH };

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
    args.h_prev = Input<T>(ctx, kHPrev);
    args.w_ru = Input<T>(ctx, kWRu);
    args.w_c = Input<T>(ctx, kWC);
    args.r = Input<T>(ctx, kR);
    args.u = Input<T>(ctx, kU);
    args.c = Input<T>(ctx, kC);
    args.d_h = Input<T>(ctx, kDH);
    args.d_x = Output<T>(ctx, kDX);
    args.d_h_prev = Output<T>(ctx, kDHPrev);
    args.d_c_bar = Output<T>(ctx, kDCBar);
    args.d_r_bar_u_bar = Output<T>(ctx, kDRBarUBar);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  enum In { kX, kHPrev, kWRu, kWC, kBRu, kBC, kR, kU, kC, kDH };
  enum Out { kDX, kDHPrev, kDCBar, kDRBarUBar };

  Device device_;
};

[[maybe_unused]] const bool gru_block_cell_registered =
    RegisterKernels<GruBlockCellOp>("BlockRNN>GRUBlockCell") &&
    RegisterKernels<GruBlockCellGradOp>("BlockRNN>GRUBlockCellGrad");

}  // namespace
}  // namespace blockrnn
