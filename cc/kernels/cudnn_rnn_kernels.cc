// Implements the kernels of CudnnRNN and CudnnRNNBackprop, under our names on
// every device and, on CPUs, where it has none, under TensorFlow's.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/argument_fields.h"
#include "cc/kernels/devices.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/determinism.h"
#include "tensorflow/core/util/guarded_philox_random.h"

namespace blockrnn {
namespace {

// The same in all versions of both ops.
constexpr int kParams = InputAt(Row("CudnnRNN"), "params");
static_assert(kParams == InputAt(Row("CudnnRNNBackpropV3"), "params"));

// The node fails if they are invalid.
CudnnRnnAttrs CudnnRnnAttrsOf(KernelNode* node) {
  CudnnRnnAttrs attrs;
  const auto find = [node](const char* name) { return node->FindAttr(name); };
  node->Check(ReadCudnnRnnAttrs(node->op(), find, &attrs));
  return attrs;
}

// The sizes of a call, which its check determines.
struct CudnnRnnSizesOfCall {
  Bindings bound;
  RnnGeometry geometry;
  int64_t steps = 0;   // T
  int64_t batch = 0;   // B
  RowLengths lengths;  // of version 3
};

// A kernel of one version of CudnnRNN or CudnnRNNBackprop, under our name or
// TensorFlow's.
class CudnnRnnKernel : public ContractKernel {
 protected:
  explicit CudnnRnnKernel(KernelNode* node)
      : CudnnRnnKernel(node, CudnnRnnAttrsOf(node)) {}

  const CudnnRnnAttrs& attrs() const { return attrs_; }

  // Checks every input but the content of reserve_space.
  absl::Status Check(const OpCall& call, CudnnRnnSizesOfCall* of_call) const {
    of_call->bound = CudnnRnnBindings(attrs_);
    TF_RETURN_IF_ERROR(CheckInputs(call, &of_call->bound));
    CudnnRnnSizes sizes;
    TF_RETURN_IF_ERROR(
        CheckCudnnRnnSizes(op(), attrs_, of_call->bound, &sizes));
    of_call->geometry = CudnnRnnGeometry(attrs_, sizes);
    of_call->steps = of_call->bound['T'];
    of_call->batch = of_call->bound['B'];
    TF_RETURN_IF_ERROR(
        CheckParams(op(), of_call->geometry, InputElements(call, kParams)));
    if (sequence_lengths_ < 0) return absl::OkStatus();
    return of_call->lengths.Make(op(), call, sequence_lengths_,
                                 tensorflow::DT_INT32, of_call->steps);
  }

  // Sets the arguments, other than pointers to inputs, that forward and
  // backward share. They live no longer than the call.
  template <class Args>
  void Begin(const CudnnRnnSizesOfCall& sizes, Args* args) const {
    args->geometry = sizes.geometry;
    args->steps = sizes.steps;
    args->batch = sizes.batch;
    args->time_major = attrs_.time_major;
    args->lengths = sizes.lengths.data();
  }

 private:
  CudnnRnnKernel(KernelNode* node, const CudnnRnnAttrs& attrs)
      : ContractKernel(node, CudnnRnnContract(node->op(), attrs)),
        attrs_(attrs),
        sequence_lengths_(
            FindArgument(Row(node->op()).inputs, "sequence_lengths")) {}

  CudnnRnnAttrs attrs_;
  int sequence_lengths_ = -1;  // the index of that input, if there is one
};

// The bytes that a forward call saves for backward.
absl::Status ReserveBytes(const std::string& op,
                          const CudnnRnnSizesOfCall& sizes,
                          int64_t element_size, float dropout, int64_t* bytes) {
  const std::optional<int64_t> counted = ReserveLayout::Bytes(
      sizes.geometry, sizes.steps, sizes.batch,
      ValidRows(sizes.steps, sizes.batch, sizes.lengths.data()), element_size,
      dropout > 0);
  if (!counted.has_value()) {
    return absl::InvalidArgumentError(
        op + ": the size of reserve_space overflows int64");
  }
  *bytes = *counted;
  return absl::OkStatus();
}

// The outputs that both ops begin with are the same in all versions.
constexpr int kOutputC = OutputAt(Row("CudnnRNN"), "output_c");
constexpr int kReserveSpace = OutputAt(Row("CudnnRNN"), "reserve_space");
constexpr int kInputCBackprop =
    OutputAt(Row("CudnnRNNBackprop"), "input_c_backprop");

template <class T, class Device>
class CudnnRnnOp : public CudnnRnnKernel {
 public:
  explicit CudnnRnnOp(KernelNode* node) : CudnnRnnKernel(node), device_(node) {
    // Without dropout seeds do not matter, not even where TensorFlow's
    // determinism is enabled and refuses seeds of 0.
    if (dropout() > 0) InitRandom(node);
  }

  absl::Status Run(OpCall* call) override {
    CudnnRnnSizesOfCall sizes;
    TF_RETURN_IF_ERROR(Check(*call, &sizes));
    const bool keeps = Keeps(*call, sizes.geometry);
    int64_t bytes = 0;
    if (keeps) {
      TF_RETURN_IF_ERROR(
          ReserveBytes(op(), sizes, sizeof(T), dropout(), &bytes));
    }
    sizes.bound[kReserveSymbol] = bytes / static_cast<int64_t>(sizeof(T));
    TF_RETURN_IF_ERROR(AllocateOutputs(call, sizes.bound, Wanted::kAll));
    // XLA allocates for all steps of all rows, before their lengths are known.
    TF_RETURN_IF_ERROR(ZeroOutput(call, device_, kReserveSpace, bytes));
    Args args;
    Begin(sizes, &args);
    // These have the same indices in all versions.
    kFields.template Fill<T>(*call, sizes.bound, true, &args);
    if (!attrs().lstm()) {
      args.input_c = nullptr;
      args.output_c = nullptr;
      TF_RETURN_IF_ERROR(ZeroOutput(call, device_, kOutputC));  // a scalar
    }
    if (keeps) {
      args.reserve = Output<T>(*call, kReserveSpace);
      args.dropout = dropout();
      args.philox = Draw(sizes);
    }
    return device_.Run(call, args);
  }

 private:
  using Args = RnnStackForwardArgs<T>;
  static constexpr ArgumentFields<RnnStackForwardArgs<float>> kFields{
      Row("CudnnRNN"), {"", "reserve_space"}};

  float dropout() const { return attrs().is_training ? attrs().dropout : 0; }

  // Whether to fill reserve_space: not in inference, nor where a graph does not
  // use it. Dropout masks are stored nowhere else.
  bool Keeps(const OpCall& call, const RnnGeometry& geometry) const {
    return attrs().is_training && (call.output_required(kReserveSpace) ||
                                   (dropout() > 0 && geometry.layers > 1));
  }

  // As GuardedPhiloxRandom::Init, which takes a node of TensorFlow's executor.
  void InitRandom(KernelNode* node) {
    int64_t seed = 0;
    int64_t seed2 = 0;
    node->GetAttr("seed", &seed);
    node->GetAttr("seed2", &seed2);
    if (seed == 0 && seed2 == 0 && tensorflow::OpDeterminismRequired()) {
      node->Check(absl::InvalidArgumentError(absl::StrCat(
          op(),
          ": with dropout and tf.config.experimental."
          "enable_op_determinism, seed or seed2 must be set, got 0")));
    }
    random_.Init(seed, seed2);
  }

  // Random numbers that no other call uses.
  PhiloxState Draw(const CudnnRnnSizesOfCall& sizes) {
    PhiloxState state;
    if (dropout() <= 0) return state;
    const auto drawn = random_.ReserveSamples128(
        DropoutBlocks(sizes.geometry, sizes.steps, sizes.batch));
    for (int i = 0; i < 2; ++i) state.key[i] = drawn.key()[i];
    for (int i = 0; i < 4; ++i) state.counter[i] = drawn.counter()[i];
    return state;
  }

  Device device_;
  tensorflow::GuardedPhiloxRandom random_;
};

template <class T, class Device>
class CudnnRnnBackpropOp : public CudnnRnnKernel {
 public:
  explicit CudnnRnnBackpropOp(KernelNode* node)
      : CudnnRnnKernel(node),
        device_(node),
        reserve_space_(InputAt(Row(op()), "reserve_space")),
        fields_(Row(op()), {"", "output_h output_c reserve_space"}) {}

  absl::Status Run(OpCall* call) override {
    CudnnRnnSizesOfCall sizes;
    TF_RETURN_IF_ERROR(Check(*call, &sizes));
    Args args;
    Begin(sizes, &args);
    args.dropout = attrs().dropout;
    TF_RETURN_IF_ERROR(CheckReserve(*call, sizes, args));
    TF_RETURN_IF_ERROR(AllocateOutputs(call, sizes.bound, Wanted::kAll));
    fields_.template Fill<T>(*call, sizes.bound, true, &args);
    args.reserve = Input<T>(*call, reserve_space_);
    if (!attrs().lstm()) {
      args.input_c = nullptr;
      args.output_c_backprop = nullptr;
      args.input_c_backprop = nullptr;
      TF_RETURN_IF_ERROR(ZeroOutput(call, device_, kInputCBackprop));
    }
    return device_.Run(call, args);
  }

 private:
  using Args = RnnStackBackwardArgs<T>;

  absl::Status CheckReserve(const OpCall& call,
                            const CudnnRnnSizesOfCall& sizes,
                            const Args& args) const {
    int64_t bytes = 0;
    TF_RETURN_IF_ERROR(
        ReserveBytes(op(), sizes, sizeof(T), args.dropout, &bytes));
    const ReserveHeader header =
        MakeReserveHeader(args, sizeof(T), Device::kReserveDevice);
    const ReserveLayout layout(sizes.geometry, sizes.steps, sizes.batch,
                               header.valid_rows, sizeof(T), args.dropout > 0);
    const void* const given = call.input(reserve_space_);
    const int64_t elements = InputElements(call, reserve_space_);
    const int64_t given_bytes = elements * static_cast<int64_t>(sizeof(T));
    // Where the host does not read tensors, the engine checks the header, and
    // gives gradients of NaN if it is of another call. It reads words of 8
    // bytes, and only tensors that TensorFlow allocated are certain to be so
    // aligned: not those from DLPack.
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(given) % sizeof(int64_t) == 0;
    const std::string mismatch =
        Device::kHostReads ? ReserveMismatch(given, given_bytes, header, layout)
        : aligned          ? ReserveSizeMismatch(given_bytes, layout)
                           : "does not begin at a multiple of 8 bytes";
    if (mismatch.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        op(), ": reserve_space must be that of the forward call, [",
        bytes / static_cast<int64_t>(sizeof(T)), "] with is_training, got [",
        elements, "], which ", mismatch));
  }

  Device device_;
  const int reserve_space_;
  const ArgumentFields<RnnStackBackwardArgs<float>> fields_;
};

[[maybe_unused]] const bool cudnn_rnn_registered =
    RegisterKernels<CudnnRnnOp>(Row("CudnnRNN")) &&
    RegisterKernels<CudnnRnnOp>(Row("CudnnRNNV2")) &&
    RegisterKernels<CudnnRnnOp>(Row("CudnnRNNV3")) &&
    RegisterKernels<CudnnRnnBackpropOp>(Row("CudnnRNNBackprop")) &&
    RegisterKernels<CudnnRnnBackpropOp>(Row("CudnnRNNBackpropV2")) &&
    RegisterKernels<CudnnRnnBackpropOp>(Row("CudnnRNNBackpropV3"));

}  // namespace
}  // namespace blockrnn
