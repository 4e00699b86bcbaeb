// Implements the lowering of the ops to XLA: each becomes one custom call of
// its kernel (cc/xla/ffi_handlers.cc). Nothing is written here for each op:
// the shape function that the op has in TensorFlow checks the call and
// determines the outputs.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cc/loader/cuda_engine_loader.h"
#include "cc/ops/contract_rules.h"
#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "cc/xla/ffi_handlers.h"
#include "cc/xla/xla_headers.h"
#include "tensorflow/core/framework/kernel_def_builder.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/lib/strings/proto_serialization.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/logging.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::PartialTensorShape;
using tensorflow::Tensor;
using tensorflow::XlaOpKernelContext;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Whether an argument of a row must be known when the program is compiled:
// outputs have sizes that follow from the sizes of a network.
bool IsConstant(std::string_view argument) {
  return argument.find(":int32@host[]") != std::string_view::npos;
}

// The inputs as they are known when the program is compiled.
struct StaticInputs {
  std::vector<xla::XlaOp> operands;
  std::vector<xla::Shape> shapes;           // dense and row-major
  std::vector<PartialTensorShape> partial;  // the same
  std::vector<Tensor> constants;            // empty where none is needed
};

class StaticShapes : public InputShapes {
 public:
  explicit StaticShapes(const StaticInputs& inputs) : inputs_(inputs) {}
  int rank(int input) const override {
    return static_cast<int>(inputs_.shapes[input].dimensions().size());
  }
  int64_t dim(int input, int index) const override {
    return inputs_.shapes[input].dimensions(index);
  }

 private:
  const StaticInputs& inputs_;
};

class KernelCallOp : public tensorflow::XlaOpKernel {
 public:
  explicit KernelCallOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx), def_(ctx->def()) {
    const std::string name = def_.op().substr(def_.op().find('>') + 1);
    row_ = FindRow(name);
    OP_REQUIRES(ctx, row_ != nullptr,
                absl::InternalError(name + " has no row in the op table"));
    tensorflow::NodeDef node;  // without what would tell equal calls apart
    node.set_op(name);
    for (const auto& [attr, value] : def_.attr()) {
      if (attr.front() != '_') (*node.mutable_attr())[attr] = value;
    }
    // The order of a map's entries differs from one message to another; XLA
    // merges calls of equal bytes alone.
    std::string bytes;
    OP_REQUIRES(ctx, tensorflow::SerializeToStringDeterministic(node, &bytes),
                absl::InternalError(name + ": a node that is no message"));
    config_ =
        absl::StrCat("{", kNodeAttr, " = \"", absl::Base64Escape(bytes), "\"}");
  }

  void Compile(XlaOpKernelContext* ctx) override {
    StaticInputs inputs;
    OP_REQUIRES_OK(ctx, GetInputs(ctx, &inputs));
    std::vector<xla::Shape> outputs;
    OP_REQUIRES_OK(ctx, GetOutputs(ctx, inputs, &outputs));
    if (row_ == &Row("CudnnRNNParamsSize")) {
      // A constant, which may be the shape of another array.
      Tensor size;
      OP_REQUIRES_OK(ctx, GetParamsSize(inputs, &size));
      ctx->SetConstantOutput(0, size);
      return;
    }
    const xla::XlaOp call = xla::CustomCallWithLayout(
        ctx->builder(), absl::StrCat(kNamespace, row_->name), inputs.operands,
        xla::ShapeUtil::MakeTupleShape(outputs), inputs.shapes, config_,
        /*has_side_effect=*/Draws(), /*output_operand_aliasing=*/{},
        /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
        xla::CustomCallApiVersion::API_VERSION_TYPED_FFI);
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      ctx->SetOutput(i, xla::GetTupleElement(call, i));
    }
  }

 private:
  // Whether the kernel draws random numbers.
  bool Draws() const {
    if ((row_->flags & kStateful) == 0) return false;
    float dropout = 0;
    bool is_training = false;
    const tensorflow::AttrSlice attrs(def_);
    return tensorflow::TryGetNodeAttr(attrs, "dropout", &dropout) &&
           tensorflow::TryGetNodeAttr(attrs, "is_training", &is_training) &&
           dropout > 0 && is_training;
  }

  absl::Status GetInputs(XlaOpKernelContext* ctx, StaticInputs* inputs) const {
    auto next = row_->inputs.begin();
    std::string_view argument;
    for (int i = 0; i < ctx->num_inputs(); ++i) {
      // Lists, which have several inputs, are the last arguments.
      if (next != row_->inputs.end()) {
        argument = *next;
        ++next;
      }
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(i));
      if (shape.is_dynamic()) {
        return absl::UnimplementedError(absl::StrCat(
            row_->name, ": ", ArgumentName(argument), " has shape ",
            shape.ToString(),
            ", which depends on data, and XLA can't pass such an array to a "
            "kernel; pad it, and pass a mask or sequence_lengths"));
      }
      const auto dims = shape.dimensions();
      inputs->operands.push_back(ctx->Input(i));
      inputs->shapes.push_back(xla::ShapeUtil::MakeShapeWithDescendingLayout(
          shape.element_type(), dims));
      inputs->partial.emplace_back(
          absl::Span<const int64_t>(dims.data(), dims.size()));
      inputs->constants.emplace_back();
      if (IsConstant(argument)) {
        TF_ASSIGN_OR_RETURN(inputs->constants.back(),
                            ctx->ConstantInputTensor(i));
      }
    }
    return absl::OkStatus();
  }

  absl::Status GetOutputs(XlaOpKernelContext* ctx, const StaticInputs& inputs,
                          std::vector<xla::Shape>* outputs) const {
    const tensorflow::OpRegistrationData* op = nullptr;
    TF_RETURN_IF_ERROR(
        tensorflow::OpRegistry::Global()->LookUp(def_.op(), &op));
    std::vector<const Tensor*> constants;
    for (const Tensor& constant : inputs.constants) {
      constants.push_back(constant.NumElements() > 0 ? &constant : nullptr);
    }
    InferenceContext c(TF_GRAPH_DEF_VERSION, tensorflow::AttrSlice(def_),
                       op->op_def, inputs.partial, constants, {}, {});
    TF_RETURN_IF_ERROR(c.construction_status());
    const OpContract* const contract = FindContract(row_->name);
    // Not the function that the op is registered with: TensorFlow's own checks
    // less.
    TF_RETURN_IF_ERROR(row_->shape_fn == nullptr
                           ? InferShapes(*contract, &c)
                           : row_->shape_fn(*contract, &c));
    for (int i = 0; i < ctx->num_outputs(); ++i) {
      std::vector<int64_t> dims(c.Rank(c.output(i)));
      for (size_t d = 0; d < dims.size(); ++d) {
        dims[d] = c.Value(c.Dim(c.output(i), static_cast<int>(d)));
        if (dims[d] == kUnknown) {
          TF_RETURN_IF_ERROR(LargestReserve(inputs, &dims[d]));
        }
      }
      xla::PrimitiveType type;
      TF_RETURN_IF_ERROR(tensorflow::DataTypeToPrimitiveType(
          ctx->expected_output_dtype(i), &type));
      outputs->push_back(
          xla::ShapeUtil::MakeShapeWithDescendingLayout(type, dims));
    }
    return absl::OkStatus();
  }

  // The elements of reserve_space if all rows have all steps: its size follows
  // from the lengths of the rows, which only the call knows.
  absl::Status LargestReserve(const StaticInputs& inputs,
                              int64_t* elements) const {
    CudnnRnnAttrs attrs;
    TF_RETURN_IF_ERROR(GetCudnnRnnAttrs(&attrs));
    tensorflow::DataType type;
    TF_RETURN_IF_ERROR(
        tensorflow::GetNodeAttr(tensorflow::AttrSlice(def_), "T", &type));
    return LargestReserveElements(row_->name, attrs, StaticShapes(inputs),
                                  tensorflow::DataTypeSize(type), elements);
  }

  absl::Status GetParamsSize(const StaticInputs& inputs, Tensor* size) const {
    CudnnRnnAttrs attrs;
    TF_RETURN_IF_ERROR(GetCudnnRnnAttrs(&attrs));
    NetworkInputs network;
    for (size_t i = 0; i < network.size(); ++i) {
      network[i] = inputs.constants[i].scalar<int32_t>()();
    }
    tensorflow::DataType type;
    TF_RETURN_IF_ERROR(
        tensorflow::GetNodeAttr(tensorflow::AttrSlice(def_), "S", &type));
    RnnGeometry geometry;
    int64_t params = 0;
    TF_RETURN_IF_ERROR(
        GetNetwork(row_->name, attrs, network, &geometry, &params));
    TF_RETURN_IF_ERROR(CheckParamsSize(row_->name, type, params));
    *size = Tensor(type, tensorflow::TensorShape({1}));
    if (type == tensorflow::DT_INT32) {
      size->flat<int32_t>()(0) = static_cast<int32_t>(params);
    } else {
      size->flat<int64_t>()(0) = params;
    }
    return absl::OkStatus();
  }

  absl::Status GetCudnnRnnAttrs(CudnnRnnAttrs* attrs) const {
    const tensorflow::AttrSlice slice(def_);
    return ReadCudnnRnnAttrs(
        row_->name, [&slice](const char* name) { return slice.Find(name); },
        attrs);
  }

  tensorflow::NodeDef def_;
  const OpSpec* row_ = nullptr;
  std::string config_;
};

// What REGISTER_XLA_OP expands to; as a macro it cannot be given a row.
void RegisterLowering(const OpSpec& row, const std::string& op,
                      const char* device, bool late) {
  const auto factory = [](OpKernelConstruction* ctx) -> tensorflow::OpKernel* {
    return new KernelCallOp(ctx);
  };
  auto builder = tensorflow::XlaOpRegistrationBuilder::Name(op);
  builder.Device(device);
  for (std::string_view argument : row.inputs) {
    if (IsConstant(argument)) {
      builder.CompileTimeConstantInput(ArgumentName(argument));
    }
  }
  const tensorflow::XlaOpRegistrar registrar(builder.Build(factory));
  // XLA makes its lowerings known to TensorFlow once, when it first compiles.
  if (late) {
    tensorflow::kernel_factory::OpKernelRegistrar(
        tensorflow::KernelDefBuilder(op.c_str()).Device(device).Build(),
        "KernelCallOp", factory);
  }
}

// Whether XLA has compiled already: an op of TensorFlow has its lowering then.
bool HasCompiled() {
  const auto kernels = tensorflow::GetRegisteredKernelsForOp("AddV2");
  for (const auto& kernel : kernels.kernel()) {
    if (kernel.device_type() == tensorflow::DEVICE_CPU_XLA_JIT) return true;
  }
  return false;
}

[[maybe_unused]] const bool lowerings_registered = [] {
  const char* const failure =
      blockrnn_register_ffi_handlers(xla::ffi::GetXlaFfiApi());
  if (failure != nullptr) {
    LOG(ERROR) << "tf_blockrnn: no kernels for XLA: " << failure;
    return false;
  }
  const bool late = HasCompiled();
  const bool on_gpu = *blockrnn_cuda_problem() == '\0';
  for (const OpSpec& row : kOpTable) {
    const std::string op = absl::StrCat(kNamespace, row.name);
    RegisterLowering(row, op, tensorflow::DEVICE_CPU_XLA_JIT, late);
    if ((row.flags & kServesTensorFlow) != 0 && ExtendsTensorFlow()) {
      RegisterLowering(row, row.name, tensorflow::DEVICE_CPU_XLA_JIT, late);
    }
    if (on_gpu) RegisterLowering(row, op, tensorflow::DEVICE_GPU_XLA_JIT, late);
  }
  return true;
}();

}  // namespace
}  // namespace blockrnn
