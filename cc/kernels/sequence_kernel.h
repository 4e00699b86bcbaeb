// Owns the course of events of our own ops over whole sequences (LSTMSequence
// and its like): what is checked, in which order, what is allocated, and when
// the engine is not asked at all.

#ifndef BLOCKRNN_KERNELS_SEQUENCE_KERNEL_H_
#define BLOCKRNN_KERNELS_SEQUENCE_KERNEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/sequence_attrs.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

// Where the inputs stand that all of these ops have.
struct SequenceInputs {
  int w_x = 0;
  int mask = 0;
  int sequence_lengths = 0;
  int recurrent_dropout = 0;
};

enum class Pass { kForward, kBackward };

// Args: what the engine takes for it.
template <class T, class Args, class Device>
class SequenceKernel : public ContractKernel {
 public:
  SequenceKernel(tensorflow::OpKernelConstruction* ctx, Pass pass,
                 const SequenceInputs& at)
      : ContractKernel(ctx), device_(ctx), pass_(pass), at_(at) {
    OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, &options_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) final {
    Bindings bound = BoundByIsTraining(options_.is_training);
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    Args args;
    args.shape = SequenceShapeOf(bound, options_);
    RowLengths lengths;
    OP_REQUIRES_OK(ctx,
                   lengths.Make(ctx, at_.sequence_lengths, args.shape.steps));
    args.shape.lengths = lengths.data();
    args.shape.projected_input = HasInputProducts(ctx, at_.w_x);
    OP_REQUIRES_OK(ctx,
                   AllocateOutputs(
                       ctx, bound,
                       pass_ == Pass::kForward ? Wanted::kUsed : Wanted::kAll));
    if (NoState(bound, ProjectionSize(ctx))) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    args.mask = OptionalInput<uint8_t>(ctx, at_.mask);
    args.recurrent_dropout = OptionalInput<T>(ctx, at_.recurrent_dropout);
    Fill(ctx, &args);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 protected:
  bool is_training() const { return options_.is_training; }

 private:
  // The size that the state is projected to, or 0.
  virtual int64_t ProjectionSize(tensorflow::OpKernelContext*) const {
    return 0;
  }

  // All else that the engine takes.
  virtual void Fill(tensorflow::OpKernelContext* ctx, Args* args) const = 0;

  Device device_;
  const Pass pass_;
  const SequenceInputs at_;
  SequenceOptions options_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_SEQUENCE_KERNEL_H_
