// Implements the kernel of an op that is one call of an engine: the checks and
// their order, the allocations, and the cases in which the engine is not
// called. What differs between ops follows from their rows of the op table and
// from the members of the engine's argument struct, which have the same names.

#ifndef BLOCKRNN_KERNELS_ENGINE_KERNEL_H_
#define BLOCKRNN_KERNELS_ENGINE_KERNEL_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "cc/kernels/argument_fields.h"
#include "cc/kernels/devices.h"
#include "cc/kernels/frozen_call.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/contract_rules.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {

// The index of the row of an op, for template arguments.
constexpr int RowAt(std::string_view op) {
  return static_cast<int>(&Row(op) - kOpTable);
}

// How an op is mapped onto a function of the engines.
struct Mapping {
  FieldNames names;
  LstmGateLayout lstm_gates = kLstmIfco;
};
inline constexpr Mapping kSameNames;

// What follows from the row of an op.
template <int kRowAt>
struct OpTraits {
  static constexpr const OpSpec& kRow = kOpTable[kRowAt];

  // The indices of inputs and outputs, -1 for one that the op lacks.
  static constexpr int Input(std::string_view name) {
    return FindArgument(kRow.inputs, name);
  }
  static constexpr int Output(std::string_view name) {
    return FindArgument(kRow.outputs, name);
  }
  static constexpr int kSeqLenMax = Input("seq_len_max");
  static constexpr int kLengths = Input("sequence_lengths");
  static constexpr int kMask = Input("mask");
  static constexpr int kResets = Input("resets");
  static constexpr int kZoneoutH = Input("zoneout_h");
  static constexpr int kZoneoutC = Input("zoneout_c");
  static constexpr int kPeepholes = Input("peepholes");
  static constexpr int kWP = Input("w_p");
  // Left out where the input is x · w_x.
  static constexpr int kWX = Input("w_x");
  static constexpr int kXGrad = Output("x_grad");
  static constexpr int kWciGrad = Output("wci_grad");
  static constexpr int kSpanStates = Output("span_states");

  static constexpr bool kFirstSteps = kSeqLenMax >= 0;  // of all rows
  static constexpr bool kRows = kLengths >= 0;  // with masks and lengths
  static constexpr bool kCell = !kFirstSteps && !kRows;  // one step
  static constexpr bool kBackward = kXGrad >= 0;
  static constexpr bool kFreezes = kRows && !kBackward;
  static constexpr bool kRecomputes = HasAttr(kRow, "recompute");
  // Engines accept nullptr for unused outputs of the forward pass over a
  // sequence.
  static constexpr Wanted kWanted =
      kCell || kBackward ? Wanted::kAll : Wanted::kUsed;

  static constexpr bool kLstmOptions =
      HasAttr(kRow, "cell_clip") || HasAttr(kRow, "use_peephole");
  static constexpr bool kGateOrder = HasAttr(kRow, "gate_order");
  static constexpr bool kActivation = HasAttr(kRow, "activation");
  static constexpr bool kEpsilon = HasAttr(kRow, "epsilon");
  static constexpr bool kNormOutputOnly = HasAttr(kRow, "norm_output_only");
};

// ArgsOf: the engine's arguments, which identify its function.
template <int kRowAt, template <class T> class ArgsOf, const Mapping& kMapping>
struct EngineOp : OpTraits<kRowAt> {
  template <class T>
  using Args = ArgsOf<T>;
  static constexpr ArgumentFields<Args<float>> kFields{kOpTable[kRowAt],
                                                       kMapping.names};
  static constexpr const LstmGateLayout& kLstmGates = kMapping.lstm_gates;
};

// Op: an EngineOp.
template <class Op, class T, class Device>
class EngineKernel : public ContractKernel {
 public:
  explicit EngineKernel(KernelNode* node)
      : ContractKernel(node), device_(node), attrs_(GetCellAttrs(node)) {
    if constexpr (Op::kRows) options_ = GetSequenceOptions(node);
    if constexpr (Op::kFreezes) frozen_.Construct(node, Op::kRow);
  }

  absl::Status Run(OpCall* call) final {
    Bindings bound;
    bound[kSavedSymbol] = options_.SavesGates() ? 1 : 0;
    TF_RETURN_IF_ERROR(CheckInputs(*call, &bound));
    if constexpr (Op::kRecomputes) {
      TF_RETURN_IF_ERROR(
          BindSpanStates(contract(), options_.recompute, sizeof(T), &bound));
    }
    Args args;
    RowLengths lengths;
    TF_RETURN_IF_ERROR(SetShape(*call, bound, &lengths, &args));
    TF_RETURN_IF_ERROR(AllocateOutputs(call, bound, Op::kWanted));
    // If the states have no elements, every output is empty or zero, but the
    // engine's time would grow with the steps. P is bound by a projection.
    if (bound['B'] == 0 || (bound['H'] == 0 && bound['P'] <= 0)) {
      return ZeroOutputs(call, device_, 0, call->num_outputs());
    }
    TF_RETURN_IF_ERROR(ZeroUnwritten(call, bound, args));
    Op::kFields.template Fill<T>(*call, bound, options_.SavesGates(), &args);
    SetOptions(*call, bound, &args);
    if constexpr (Op::kFreezes) {
      if (frozen_.used()) return frozen_.Run(call, device_, &args);
    }
    return device_.Run(call, args);
  }

 private:
  using Args = typename Op::template Args<T>;

  // Checks the values of the inputs and sets the sizes, and which steps of
  // which rows are done.
  absl::Status SetShape(const OpCall& call, const Bindings& bound,
                        RowLengths* lengths, Args* args) const {
    if constexpr (Op::kCell) {
      args->dims = {bound['B'], bound['I'], bound['H']};
    } else if constexpr (Op::kFirstSteps) {
      return GetFirstSteps(op(), call, Op::kSeqLenMax, bound, &args->shape);
    } else {
      args->shape = SequenceShapeOf(bound, options_);
      TF_RETURN_IF_ERROR(lengths->Make(op(), call, Op::kLengths,
                                       options_.lengths, args->shape.steps));
      args->shape.lengths = lengths->data();
      args->shape.projected_input = call.rank(Op::kWX) == 1;
      args->mask = InputOrNull<uint8_t>(call, Op::kMask);
      args->resets = InputOrNull<uint8_t>(call, Op::kResets);
    }
    return absl::OkStatus();
  }

  // Fills the outputs, or parts of them, that the engine does not write.
  absl::Status ZeroUnwritten(OpCall* call, const Bindings& bound,
                             const Args& args) const {
    if constexpr (Op::kFirstSteps) {
      constexpr int kFirst = Op::kBackward ? Op::kXGrad : 0;
      const int end = Op::kBackward ? kFirst + 1 : call->num_outputs();
      // The steps behind the first seq_len_max.
      for (int i = kFirst; i < end && args.shape.steps < bound['T']; ++i) {
        if (call->output(i) == nullptr) continue;
        const int64_t step = call->output_bytes(i) / bound['T'];
        TF_RETURN_IF_ERROR(
            ZeroOutput(call, device_, i, step * args.shape.steps));
      }
    }
    if constexpr (Op::kSpanStates >= 0 && !Device::kWritesSpanStates) {
      TF_RETURN_IF_ERROR(ZeroOutput(call, device_, Op::kSpanStates));
    }
    if constexpr (Op::kWciGrad >= 0) {
      static_assert(Op::Output("wco_grad") == Op::kWciGrad + 2);
      // Without use_peephole; their length need not be H then.
      if (alternative() == 1) {
        return ZeroOutputs(call, device_, Op::kWciGrad, Op::kWciGrad + 3);
      }
    }
    return absl::OkStatus();
  }

  // Sets what follows from attrs, and from which inputs are left out.
  void SetOptions(const OpCall& call, const Bindings& bound, Args* args) const {
    if constexpr (Op::kLstmOptions) args->options = attrs_.lstm;
    if constexpr (Op::kLstmOptions && !Op::kCell) {
      args->layout = Op::kLstmGates;
    }
    if constexpr (Op::kPeepholes >= 0) {
      args->options.use_peephole = args->wci != nullptr;
    }
    // To an engine, 0 means no projection.
    if constexpr (Op::kWP >= 0) {
      args->proj = LeftOut(call, Op::kWP) ? 0 : bound['P'];
    }
    if constexpr (Op::kGateOrder) args->layout = attrs_.gate_order;
    if constexpr (Op::kActivation) args->relu = attrs_.relu;
    if constexpr (Op::kEpsilon) args->epsilon = attrs_.epsilon;
    if constexpr (Op::kNormOutputOnly) {
      args->norm_output_only = attrs_.norm_output_only;
    }
    if constexpr (Op::kZoneoutH >= 0) {
      args->zoneout_h = {InputOrNull<uint8_t>(call, Op::kZoneoutH),
                         options_.zoneout_rate_h};
    }
    if constexpr (Op::kZoneoutC >= 0) {
      args->zoneout_c = {InputOrNull<uint8_t>(call, Op::kZoneoutC),
                         options_.zoneout_rate_c};
    }
    if constexpr (Op::kRecomputes) {
      args->span_steps = SpanSteps(options_.recompute, args->shape.steps);
    }
  }

  Device device_;
  CellAttrs attrs_;
  SequenceOptions options_;
  FrozenCall<T, Device> frozen_;  // of ops with the attr
};

template <class Op>
struct EngineKernelOf {
  template <class T, class Device>
  using Kernel = EngineKernel<Op, T, Device>;
};

// Registers the kernels of the op at an index of the table.
template <int kRowAt, template <class T> class ArgsOf,
          const Mapping& kMapping = kSameNames>
bool RegisterEngineKernel() {
  using Op = EngineOp<kRowAt, ArgsOf, kMapping>;
  return RegisterKernels<EngineKernelOf<Op>::template Kernel>(Op::kRow);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_ENGINE_KERNEL_H_
