// Implements the kernel of an op that is one call of an engine: the checks and
// their order, the allocations, and the cases in which the engine is not
// called. What differs between ops follows from their rows of the op table; an
// op defines only the mapping of its arguments onto the engine's:
//
//   template <class T>
//   struct Example : OpMapping {
//     using Args = …;                                  // the engine's
//     static constexpr const OpSpec& kRow = Row("Example");
//     static constexpr FieldNames kNames = {…};        // names that differ
//     explicit Example(OpKernelConstruction* ctx);     // reads attrs, if any
//     void Complete(…) const;                          // sets the rest, if any
//   };

#ifndef BLOCKRNN_KERNELS_ENGINE_KERNEL_H_
#define BLOCKRNN_KERNELS_ENGINE_KERNEL_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "cc/kernels/argument_fields.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

struct OpMapping {
  static constexpr FieldNames kNames = {};

  OpMapping() = default;
  explicit OpMapping(tensorflow::OpKernelConstruction*) {}

  // Sets members other than pointers to inputs or outputs, and pointers into
  // those.
  template <class Args>
  void Complete(tensorflow::OpKernelContext*, const Bindings&, Args*) const {}
};

// Mapping<T> is a subclass of OpMapping.
template <template <class T> class Mapping, class T, class Device>
class EngineKernel : public ContractKernel {
 public:
  explicit EngineKernel(tensorflow::OpKernelConstruction* ctx)
      : ContractKernel(ctx), device_(ctx), mapping_(ctx) {
    if constexpr (kKind == Kind::kRows) {
      OP_REQUIRES_OK(ctx, GetSequenceOptions(ctx, &options_));
    }
  }

  void Compute(tensorflow::OpKernelContext* ctx) final {
    Bindings bound;
    bound[kSavedSymbol] = options_.is_training ? 1 : 0;
    OP_REQUIRES_OK(ctx, CheckInputs(ctx, &bound));
    Args args;
    RowLengths lengths;
    OP_REQUIRES_OK(ctx, Begin(ctx, bound, &lengths, &args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, bound, kWanted));
    // If the states have no elements, every output is empty or zero, but the
    // engine's time would grow with the steps. P is bound by a projection.
    if (bound['B'] == 0 || (bound['H'] == 0 && bound['P'] <= 0)) {
      OP_REQUIRES_OK(ctx, ZeroOutputs(ctx, device_, 0, num_outputs()));
      return;
    }
    OP_REQUIRES_OK(ctx, ZeroUnwritten(ctx, args));
    kFields.Fill(ctx, options_.is_training, &args);
    mapping_.Complete(ctx, bound, &args);
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  using Op = Mapping<T>;
  using Args = typename Op::Args;
  static constexpr const OpSpec& kRow = Op::kRow;
  static constexpr ArgumentFields<Args, T> kFields{kRow, Op::kNames};

  enum class Kind {
    kCell,   // one step
    kSteps,  // the first seq_len_max steps
    kRows,   // rows with masks and lengths of their own
  };
  static constexpr Kind kKind = HasInput(kRow, "seq_len_max") ? Kind::kSteps
                                : HasInput(kRow, "sequence_lengths")
                                    ? Kind::kRows
                                    : Kind::kCell;
  static constexpr bool kBackward = HasOutput(kRow, "x_grad");
  // Engines accept nullptr for unused outputs of the forward pass over a
  // sequence.
  static constexpr Wanted kWanted =
      kKind == Kind::kCell || kBackward ? Wanted::kAll : Wanted::kUsed;

  // Checks the values of the inputs and sets the sizes.
  absl::Status Begin(tensorflow::OpKernelContext* ctx, const Bindings& bound,
                     RowLengths* lengths, Args* args) const {
    if constexpr (kKind == Kind::kCell) {
      args->dims = {bound['B'], bound['I'], bound['H']};
    } else if constexpr (kKind == Kind::kSteps) {
      constexpr int kSeqLenMax = InputAt(kRow, "seq_len_max");
      return GetFirstSteps(ctx, kSeqLenMax, bound, &args->shape);
    } else {
      args->shape = SequenceShapeOf(bound, options_);
      constexpr int kLengths = InputAt(kRow, "sequence_lengths");
      const absl::Status status =
          lengths->Make(ctx, kLengths, args->shape.steps);
      if (!status.ok()) return status;
      args->shape.lengths = lengths->data();
      // Whether the input is x · w_x.
      constexpr int kWX = HasInput(kRow, "w_x") ? InputAt(kRow, "w_x")
                                                : InputAt(kRow, "w_ru_x");
      args->shape.projected_input = ctx->input(kWX).dims() == 1;
      constexpr int kMask = InputAt(kRow, "mask");
      args->mask = LeftOut(ctx, kMask) ? nullptr : Input<uint8_t>(ctx, kMask);
    }
    return absl::OkStatus();
  }

  // Fills the outputs, or parts of them, that the engine does not write.
  absl::Status ZeroUnwritten(tensorflow::OpKernelContext* ctx,
                             const Args& args) const {
    if constexpr (kKind == Kind::kSteps) {
      constexpr int kFirst = kBackward ? OutputAt(kRow, "x_grad") : 0;
      const absl::Status status =
          ZeroOutputs(ctx, device_, kFirst,
                      kBackward ? kFirst + 1 : num_outputs(), args.shape.steps);
      if (!status.ok()) return status;
    }
    if constexpr (HasOutput(kRow, "wci_grad")) {
      constexpr int kWci = OutputAt(kRow, "wci_grad");
      static_assert(OutputAt(kRow, "wco_grad") == kWci + 2);
      // Without use_peephole; their length need not be H then.
      if (alternative() == 1) return ZeroOutputs(ctx, device_, kWci, kWci + 3);
    }
    return absl::OkStatus();
  }

  Device device_;
  Op mapping_;
  SequenceOptions options_;
};

template <template <class T> class Mapping>
struct EngineKernelOf {
  template <class T, class Device>
  using Kernel = EngineKernel<Mapping, T, Device>;
};

// Registers the kernels of ops, each given by its mapping.
template <template <class T> class... Mappings>
bool RegisterEngineKernels() {
  return (RegisterKernels<EngineKernelOf<Mappings>::template Kernel>(
              Mappings<float>::kRow) &&
          ...);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ENGINE_KERNEL_H_
