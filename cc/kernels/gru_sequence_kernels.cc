// Owns the kernels of GRUSequence, GRUAfterSequence and their gradients. The
// order of inputs and outputs is that of cc/ops/gru_sequence_ops.cc.

#include <string>

#include "cc/core/gate_layout.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/cpu_host.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/sequence_attrs.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Both matrices of the input, w_ru_x and w_c_x, or none.
absl::Status CheckInputWeights(OpKernelContext* ctx) {
  const bool left_out = IsProjected(ctx, 2);
  if (left_out == IsProjected(ctx, 4)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      OpName(ctx) +
      ": w_ru_x and w_c_x must be left out together, got [0] for " +
      (left_out ? "w_ru_x" : "w_c_x") + " alone");
}

template <class T, class Device>
class GruSequenceOp : public ContractKernel {
 public:
  explicit GruSequenceOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, true, &options_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound = BoundByIsTraining(options_.is_training);
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    OP_REQUIRES_OK(ctx, CheckInputWeights(ctx));
    GruSequenceForwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 9, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.recurrent_dropout = OptionalInput<T>(ctx, 10);
    args.shape.projected_input = IsProjected(ctx, 2);
    args.mask = OptionalInput<uint8_t>(ctx, 8);
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_ru_x = Input<T>(ctx, 2);
    args.w_ru_h = Input<T>(ctx, 3);
    args.w_c_x = Input<T>(ctx, 4);
    args.w_c_h = Input<T>(ctx, 5);
    args.b_ru = Input<T>(ctx, 6);
    args.b_c = Input<T>(ctx, 7);
    args.h = Output<T>(ctx, 0);
    args.h_last = Output<T>(ctx, 1);
    if (options_.is_training) {
      args.r = Output<T>(ctx, 2);
      args.u = Output<T>(ctx, 3);
      args.c = Output<T>(ctx, 4);
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
};

template <class T, class Device>
class GruSequenceGradOp : public ContractKernel {
 public:
  explicit GruSequenceGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, false, &options_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    OP_REQUIRES_OK(ctx, CheckInputWeights(ctx));
    GruSequenceBackwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 7, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kAll));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.recurrent_dropout = OptionalInput<T>(ctx, 14);
    args.shape.projected_input = IsProjected(ctx, 2);
    args.mask = OptionalInput<uint8_t>(ctx, 6);
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_ru_x = Input<T>(ctx, 2);
    args.w_ru_h = Input<T>(ctx, 3);
    args.w_c_x = Input<T>(ctx, 4);
    args.w_c_h = Input<T>(ctx, 5);
    args.h = Input<T>(ctx, 8);
    args.r = Input<T>(ctx, 9);
    args.u = Input<T>(ctx, 10);
    args.c = Input<T>(ctx, 11);
    args.h_grad = OptionalInput<T>(ctx, 12);
    args.h_last_grad = OptionalInput<T>(ctx, 13);
    args.x_grad = Output<T>(ctx, 0);
    args.h_prev_grad = Output<T>(ctx, 1);
    args.w_ru_x_grad = Output<T>(ctx, 2);
    args.w_ru_h_grad = Output<T>(ctx, 3);
    args.w_c_x_grad = Output<T>(ctx, 4);
    args.w_c_h_grad = Output<T>(ctx, 5);
    args.b_ru_grad = Output<T>(ctx, 6);
    args.b_c_grad = Output<T>(ctx, 7);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
};

absl::Status GetGateOrder(OpKernelConstruction* ctx,
                          GruAfterGateLayout* layout) {
  std::string order;
  const absl::Status status = ctx->GetAttr("gate_order", &order);
  *layout = order == "urc" ? kGruUrc : kGruRuc;
  return status;
}

template <class T, class Device>
class GruAfterSequenceOp : public ContractKernel {
 public:
  explicit GruAfterSequenceOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, true, &options_));
    OP_REQUIRES_OK(ctx, GetGateOrder(ctx, &layout_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound = BoundByIsTraining(options_.is_training);
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    GruAfterSequenceForwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 7, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.recurrent_dropout = OptionalInput<T>(ctx, 8);
    args.shape.projected_input = IsProjected(ctx, 2);
    args.mask = OptionalInput<uint8_t>(ctx, 6);
    args.layout = layout_;
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_x = Input<T>(ctx, 2);
    args.w_h = Input<T>(ctx, 3);
    args.b_x = Input<T>(ctx, 4);
    args.b_h = Input<T>(ctx, 5);
    args.h = Output<T>(ctx, 0);
    args.h_last = Output<T>(ctx, 1);
    if (options_.is_training) {
      args.r = Output<T>(ctx, 2);
      args.u = Output<T>(ctx, 3);
      args.c = Output<T>(ctx, 4);
      args.hc = Output<T>(ctx, 5);
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
  GruAfterGateLayout layout_ = kGruRuc;
};

template <class T, class Device>
class GruAfterSequenceGradOp : public ContractKernel {
 public:
  explicit GruAfterSequenceGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, false, &options_));
    OP_REQUIRES_OK(ctx, GetGateOrder(ctx, &layout_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    GruAfterSequenceBackwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 5, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kAll));
    if (NoState(bound)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.recurrent_dropout = OptionalInput<T>(ctx, 13);
    args.shape.projected_input = IsProjected(ctx, 2);
    args.mask = OptionalInput<uint8_t>(ctx, 4);
    args.layout = layout_;
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.w_x = Input<T>(ctx, 2);
    args.w_h = Input<T>(ctx, 3);
    args.h = Input<T>(ctx, 6);
    args.r = Input<T>(ctx, 7);
    args.u = Input<T>(ctx, 8);
    args.c = Input<T>(ctx, 9);
    args.hc = Input<T>(ctx, 10);
    args.h_grad = OptionalInput<T>(ctx, 11);
    args.h_last_grad = OptionalInput<T>(ctx, 12);
    args.x_grad = Output<T>(ctx, 0);
    args.h_prev_grad = Output<T>(ctx, 1);
    args.w_x_grad = Output<T>(ctx, 2);
    args.w_h_grad = Output<T>(ctx, 3);
    args.b_x_grad = Output<T>(ctx, 4);
    args.b_h_grad = Output<T>(ctx, 5);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
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
