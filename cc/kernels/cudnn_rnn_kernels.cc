// Implements the kernels of CudnnRNN and CudnnRNNBackprop, under our names on
// every device and, on CPUs, where it has none, under TensorFlow's.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/core/reserve_space.h"
#include "cc/core/rnn_stack_args.h"
#include "cc/kernels/argument_fields.h"
#include "cc/kernels/cpu_host.h"
#include "cc/kernels/cudnn_rnn_util.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/register_kernels.h"
#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/guarded_philox_random.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// The bytes that a forward call saves for backward.
absl::Status ReserveBytes(const std::string& op, const CudnnRnnCall& call,
                          int64_t element_size, float dropout, int64_t* bytes) {
  const std::optional<int64_t> counted = ReserveLayout::Bytes(
      call.geometry, call.steps, call.batch,
      ValidRows(call.steps, call.batch, call.lengths.data()), element_size,
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
  explicit CudnnRnnOp(OpKernelConstruction* ctx)
      : CudnnRnnKernel(ctx), device_(ctx) {
    if (!ctx->status().ok()) return;
    // Without dropout seeds do not matter, not even where TensorFlow's
    // determinism is enabled and refuses seeds of 0.
    if (dropout() > 0) OP_REQUIRES_OK(ctx, random_.Init(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    CudnnRnnCall call;
    OP_REQUIRES_OK(ctx, Check(ctx, &call));
    const bool keeps = Keeps(ctx, call.geometry);
    int64_t bytes = 0;
    if (keeps) {
      OP_REQUIRES_OK(ctx,
                     ReserveBytes(op(), call, sizeof(T), dropout(), &bytes));
    }
    call.bound[kReserveSymbol] = bytes / static_cast<int64_t>(sizeof(T));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, call.bound, Wanted::kAll));
    Args args;
    Begin(call, &args);
    // These have the same indices in all versions.
    kFields.Fill(ctx, true, &args);
    if (!attrs().lstm()) {
      args.input_c = nullptr;
      args.output_c = nullptr;
      OP_REQUIRES_OK(ctx, ZeroOutput(ctx, device_, kOutputC));  // a scalar
    }
    if (keeps) {
      args.reserve = Output<T>(ctx, kReserveSpace);
      args.dropout = dropout();
      args.philox = Draw(call);
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  using Args = RnnStackForwardArgs<T>;
  static constexpr ArgumentFields<Args, T> kFields{Row("CudnnRNN"),
                                                   {"", "reserve_space"}};

  float dropout() const { return attrs().is_training ? attrs().dropout : 0; }

  // Whether to fill reserve_space: not in inference, nor where a graph does not
  // use it. Dropout masks are stored nowhere else.
  bool Keeps(OpKernelContext* ctx, const RnnGeometry& geometry) const {
    return attrs().is_training && (ctx->output_required(kReserveSpace) ||
                                   (dropout() > 0 && geometry.layers > 1));
  }

  // Random numbers that no other call uses.
  PhiloxState Draw(const CudnnRnnCall& call) {
    PhiloxState state;
    if (dropout() <= 0) return state;
    const auto drawn = random_.ReserveSamples128(
        DropoutBlocks(call.geometry, call.steps, call.batch));
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
  explicit CudnnRnnBackpropOp(OpKernelConstruction* ctx)
      : CudnnRnnKernel(ctx),
        device_(ctx),
        reserve_space_(InputAt(Row(op()), "reserve_space")),
        fields_(Row(op()), {"", "output_h output_c reserve_space"}) {}

  void Compute(OpKernelContext* ctx) override {
    CudnnRnnCall call;
    OP_REQUIRES_OK(ctx, Check(ctx, &call));
    Args args;
    Begin(call, &args);
    args.dropout = attrs().dropout;
    OP_REQUIRES_OK(ctx, CheckReserve(ctx, call, args));
    OP_REQUIRES_OK(ctx, AllocateOutputs(ctx, call.bound, Wanted::kAll));
    fields_.Fill(ctx, true, &args);
    args.reserve = Input<T>(ctx, reserve_space_);
    if (!attrs().lstm()) {
      args.input_c = nullptr;
      args.output_c_backprop = nullptr;
      args.input_c_backprop = nullptr;
      OP_REQUIRES_OK(ctx, ZeroOutput(ctx, device_, kInputCBackprop));
    }
    OP_REQUIRES_OK(ctx, device_.Run(ctx, args));
  }

 private:
  using Args = RnnStackBackwardArgs<T>;

  absl::Status CheckReserve(OpKernelContext* ctx, const CudnnRnnCall& call,
                            const Args& args) const {
    int64_t bytes = 0;
    TF_RETURN_IF_ERROR(
        ReserveBytes(op(), call, sizeof(T), args.dropout, &bytes));
    const ReserveHeader header =
        MakeReserveHeader(args, sizeof(T), Device::kReserveDevice);
    const ReserveLayout layout(call.geometry, call.steps, call.batch,
                               header.valid_rows, sizeof(T), args.dropout > 0);
    const tensorflow::Tensor& given = ctx->input(reserve_space_);
    const auto given_bytes = static_cast<int64_t>(given.TotalBytes());
    // Where the host does not read tensors, the engine checks the header, and
    // gives gradients of NaN if it is of another call. It reads words of 8
    // bytes, and only tensors that TensorFlow allocated are certain to be so
    // aligned: not those from DLPack.
    const bool aligned =
        reinterpret_cast<std::uintptr_t>(given.data()) % sizeof(int64_t) == 0;
    const std::string mismatch =
        Device::kHostReads
            ? ReserveMismatch(given.data(), given_bytes, header, layout)
        : aligned ? ReserveSizeMismatch(given_bytes, layout)
                  : "does not begin at a multiple of 8 bytes";
    if (mismatch.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        op(), ": reserve_space must be that of the forward call, [",
        bytes / static_cast<int64_t>(sizeof(T)), "] with is_training, got [",
        given.NumElements(), "], which ", mismatch));
  }

  Device device_;
  const int reserve_space_;
  const ArgumentFields<Args, T> fields_;
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
