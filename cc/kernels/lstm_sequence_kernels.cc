// Owns the kernels of LSTMSequence and LSTMSequenceGrad. The order of inputs
// and outputs is that of cc/ops/lstm_sequence_ops.cc.

#include <string>

#include "absl/status/status.h"
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

// The peepholes come as one array [3, H], or none.
struct Peepholes {
  static constexpr int kInput = 0;
  static constexpr int kForget = 1;
  static constexpr int kOutput = 2;
};

// The projection, if w_p is not left out. An engine knows it by a P above 0.
template <class T, class Args>
absl::Status GetProjection(OpKernelContext* ctx, int w_p, const Bindings& bound,
                           Args* args) {
  if (ctx->input(w_p).dims() == 1) return absl::OkStatus();
  args->w_p = Input<T>(ctx, w_p);
  args->proj = bound['P'];
  if (args->proj > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      OpName(ctx) + ": w_p must have shape [P, H] with P above 0, got [0, " +
      std::to_string(bound['H']) + "]");
}

template <class T, class Device>
class LstmSequenceOp : public ContractKernel {
 public:
  explicit LstmSequenceOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, true, &options_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("forget_bias", &lstm_.forget_bias));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cell_clip", &lstm_.cell_clip));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound = BoundByIsTraining(options_.is_training);
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    LstmSequenceForwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 8, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, GetProjection<T>(ctx, 9, bound, &args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kUsed));
    if (NoState(bound, args.proj)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.recurrent_dropout = OptionalInput<T>(ctx, 10);
    args.shape.projected_input = IsProjected(ctx, 3);
    args.mask = OptionalInput<uint8_t>(ctx, 7);
    args.layout = kLstmIfco;
    args.options = lstm_;
    const T* const peepholes = OptionalInput<T>(ctx, 6);
    args.options.use_peephole = peepholes != nullptr;
    if (peepholes != nullptr) {
      args.wci = peepholes + Peepholes::kInput * bound['H'];
      args.wcf = peepholes + Peepholes::kForget * bound['H'];
      args.wco = peepholes + Peepholes::kOutput * bound['H'];
    }
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.cs_prev = Input<T>(ctx, 2);
    args.w_x = Input<T>(ctx, 3);
    args.w_h = Input<T>(ctx, 4);
    args.b = Input<T>(ctx, 5);
    args.h = Output<T>(ctx, 0);
    args.h_last = Output<T>(ctx, 1);
    args.cs_last = Output<T>(ctx, 2);
    if (options_.is_training) {
      args.i = Output<T>(ctx, 3);
      args.cs = Output<T>(ctx, 4);
      args.f = Output<T>(ctx, 5);
      args.o = Output<T>(ctx, 6);
      args.ci = Output<T>(ctx, 7);
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
  LstmOptions lstm_;
};

template <class T, class Device>
class LstmSequenceGradOp : public ContractKernel {
 public:
  explicit LstmSequenceGradOp(OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, false, &options_));
  }

  void Compute(OpKernelContext* ctx) override {
    Bindings bound;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    LstmSequenceBackwardArgs<T> args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, lengths.Make(ctx, 7, args.shape.steps));
    args.shape.lengths = lengths.data();
    OP_REQUIRES_OK(ctx, GetProjection<T>(ctx, 18, bound, &args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, Wanted::kAll));
    if (NoState(bound, args.proj)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.w_p_grad = Output<T>(ctx, 7);
    args.recurrent_dropout = OptionalInput<T>(ctx, 19);
    args.shape.projected_input = IsProjected(ctx, 3);
    args.mask = OptionalInput<uint8_t>(ctx, 6);
    args.layout = kLstmIfco;
    const T* const peepholes = OptionalInput<T>(ctx, 5);
    T* const peepholes_grad = Output<T>(ctx, 6);
    args.use_peephole = peepholes != nullptr;
    if (peepholes != nullptr) {
      args.wci = peepholes + Peepholes::kInput * bound['H'];
      args.wcf = peepholes + Peepholes::kForget * bound['H'];
      args.wco = peepholes + Peepholes::kOutput * bound['H'];
      args.wci_grad = peepholes_grad + Peepholes::kInput * bound['H'];
      args.wcf_grad = peepholes_grad + Peepholes::kForget * bound['H'];
      args.wco_grad = peepholes_grad + Peepholes::kOutput * bound['H'];
    }
    args.x = Input<T>(ctx, 0);
    args.h_prev = Input<T>(ctx, 1);
    args.cs_prev = Input<T>(ctx, 2);
    args.w_x = Input<T>(ctx, 3);
    args.w_h = Input<T>(ctx, 4);
    args.h = Input<T>(ctx, 8);
    args.i = Input<T>(ctx, 9);
    args.cs = Input<T>(ctx, 10);
    args.f = Input<T>(ctx, 11);
    args.o = Input<T>(ctx, 12);
    args.ci = Input<T>(ctx, 13);
    args.h_grad = OptionalInput<T>(ctx, 14);
    args.h_last_grad = OptionalInput<T>(ctx, 15);
    args.cs_last_grad = OptionalInput<T>(ctx, 16);
    args.cs_grad = OptionalInput<T>(ctx, 17);
    args.x_grad = Output<T>(ctx, 0);
    args.h_prev_grad = Output<T>(ctx, 1);
    args.cs_prev_grad = Output<T>(ctx, 2);
    args.w_x_grad = Output<T>(ctx, 3);
    args.w_h_grad = Output<T>(ctx, 4);
    args.b_grad = Output<T>(ctx, 5);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  Device device_;
  SequenceOptions options_;
};

[[maybe_unused]] const bool lstm_sequence_registered =
    RegisterKernels<LstmSequenceOp>("BlockRNN>LSTMSequence", {kLengthsInput}) &&
    RegisterKernels<LstmSequenceGradOp>("BlockRNN>LSTMSequenceGrad",
                                        {kLengthsInput});

}  // namespace
}  // namespace blockrnn
