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
//     explicit Example(KernelNode* node);              // reads attrs, if any
//     void Complete(…) const;                          // sets the rest, if any
//   };

#ifndef BLOCKRNN_KERNELS_ENGINE_KERNEL_H_
#define BLOCKRNN_KERNELS_ENGINE_KERNEL_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "cc/kernels/argument_fields.h"
#include "cc/kernels/frozen_call.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "cc/ops/shape_fn.h"
#include "cc/ops/span_states.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {

struct OpMapping {
  static constexpr FieldNames kNames = {};

  OpMapping() = default;
  explicit OpMapping(KernelNode*) {}

  // Sets members other than pointers to inputs or outputs, and pointers into
  // those.
  template <class Args>
  void Complete(const OpCall&, const Bindings&, Args*) const {}
};

template <class Op>
inline constexpr ArgumentFields<typename Op::Args> kFieldsOf{Op::kRow,
                                                             Op::kNames};

// Mapping<T> is a subclass of OpMapping.
template <template <class T> class Mapping, class T, class Device>
class EngineKernel : public ContractKernel {
 public:
  explicit EngineKernel(KernelNode* node)
      : ContractKernel(node), device_(node), mapping_(node) {
    if constexpr (kKind == Kind::kRows) options_ = GetSequenceOptions(node);
    if constexpr (kFreezes) frozen_.Construct(node, kRow);
  }

  absl::Status Run(OpCall* call) final {
    Bindings bound;
    bound[kSavedSymbol] = options_.SavesGates() ? 1 : 0;
    TF_RETURN_IF_ERROR(CheckInputs(*call, &bound));
    if constexpr (kHasSpans) {
      TF_RETURN_IF_ERROR(
          BindSpanStates(contract(), options_.recompute, sizeof(T), &bound));
    }
    Args args;
    RowLengths lengths;
    TF_RETURN_IF_ERROR(Begin(*call, bound, &lengths, &args));
    TF_RETURN_IF_ERROR(AllocateOutputs(call, bound, kWanted));
    // If the states have no elements, every output is empty or zero, but the
    // engine's time would grow with the steps. P is bound by a projection.
    if (bound['B'] == 0 || (bound['H'] == 0 && bound['P'] <= 0)) {
      return ZeroOutputs(call, device_, 0, call->num_outputs());
    }
    TF_RETURN_IF_ERROR(ZeroUnwritten(call, bound, args));
    kFields.Fill(*call, options_.SavesGates(), &args);
    mapping_.Complete(*call, bound, &args);
    if constexpr (kFreezes) {
      if (frozen_.used()) return frozen_.Run(call, device_, &args);
    }
    return device_.Run(call, args);
  }

 private:
  using Op = Mapping<T>;
  using Args = typename Op::Args;
  static constexpr const OpSpec& kRow = Op::kRow;
  static constexpr const auto& kFields = kFieldsOf<Mapping<float>>;

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

  static constexpr bool kFreezes = kKind == Kind::kRows && !kBackward;
  static constexpr bool kHasSpans =
      HasInput(kRow, "span_states") || HasOutput(kRow, "span_states");

  // Checks the values of the inputs and sets the sizes.
  absl::Status Begin(const OpCall& call, const Bindings& bound,
                     RowLengths* lengths, Args* args) const {
    if constexpr (kKind == Kind::kCell) {
      args->dims = {bound['B'], bound['I'], bound['H']};
    } else if constexpr (kKind == Kind::kSteps) {
      constexpr int kSeqLenMax = InputAt(kRow, "seq_len_max");
      return GetFirstSteps(op(), call, kSeqLenMax, bound, &args->shape);
    } else {
      args->shape = SequenceShapeOf(bound, options_);
      constexpr int kLengths = InputAt(kRow, "sequence_lengths");
      TF_RETURN_IF_ERROR(lengths->Make(op(), call, kLengths, options_.lengths,
                                       args->shape.steps));
      args->shape.lengths = lengths->data();
      // Whether the input is x · w_x.
      constexpr int kWX = HasInput(kRow, "w_x") ? InputAt(kRow, "w_x")
                                                : InputAt(kRow, "w_ru_x");
      args->shape.projected_input = call.rank(kWX) == 1;
      constexpr int kMask = InputAt(kRow, "mask");
      args->mask = LeftOut(call, kMask) ? nullptr : Input<uint8_t>(call, kMask);
      if constexpr (HasInput(kRow, "zoneout_h")) {
        constexpr int kZoneoutH = InputAt(kRow, "zoneout_h");
        args->zoneout_h = ZoneoutOf(call, kZoneoutH, options_.zoneout_rate_h);
      }
      if constexpr (HasInput(kRow, "zoneout_c")) {
        constexpr int kZoneoutC = InputAt(kRow, "zoneout_c");
        args->zoneout_c = ZoneoutOf(call, kZoneoutC, options_.zoneout_rate_c);
      }
      if constexpr (kHasSpans) {
        args->span_steps = SpanSteps(options_.recompute, args->shape.steps);
      }
    }
    return absl::OkStatus();
  }

  // draws: the index of that input.
  static Zoneout ZoneoutOf(const OpCall& call, int draws, float rate) {
    return {LeftOut(call, draws) ? nullptr : Input<uint8_t>(call, draws), rate};
  }

  // Fills the outputs, or parts of them, that the engine does not write.
  absl::Status ZeroUnwritten(OpCall* call, const Bindings& bound,
                             const Args& args) const {
    if constexpr (kKind == Kind::kSteps) {
      constexpr int kFirst = kBackward ? OutputAt(kRow, "x_grad") : 0;
      const int end = kBackward ? kFirst + 1 : call->num_outputs();
      // The steps behind the first seq_len_max.
      for (int i = kFirst; i < end && args.shape.steps < bound['T']; ++i) {
        if (call->output(i) == nullptr) continue;
        const int64_t step = call->output_bytes(i) / bound['T'];
        TF_RETURN_IF_ERROR(
            ZeroOutput(call, device_, i, step * args.shape.steps));
      }
    }
    if constexpr (HasOutput(kRow, "span_states")) {
      // There may be fewer spans than there is room for.
      constexpr int kSpanStates = OutputAt(kRow, "span_states");
      TF_RETURN_IF_ERROR(ZeroOutput(call, device_, kSpanStates));
    }
    if constexpr (HasOutput(kRow, "wci_grad")) {
      constexpr int kWci = OutputAt(kRow, "wci_grad");
      static_assert(OutputAt(kRow, "wco_grad") == kWci + 2);
      // Without use_peephole; their length need not be H then.
      if (alternative() == 1) return ZeroOutputs(call, device_, kWci, kWci + 3);
    }
    return absl::OkStatus();
  }

  Device device_;
  Op mapping_;
  SequenceOptions options_;
  FrozenCall<T, Device> frozen_;  // of ops with the attr
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
