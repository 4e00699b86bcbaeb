#include "cc/kernels/kernel_util.h"

#include <array>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class RunTimeShapes : public InputShapes {
 public:
  explicit RunTimeShapes(OpKernelContext* ctx) : ctx_(ctx) {}
  int rank(int input) const override { return ctx_->input(input).dims(); }
  int64_t dim(int input, int index) const override {
    return ctx_->input(input).dim_size(index);
  }

 private:
  OpKernelContext* ctx_;
};

constexpr int kMaxRank = 8;

absl::Status OutputShape(const OpContract& contract,
                         const ArgumentPattern& output, int alternative,
                         const Bindings& bound, TensorShape* shape) {
  const std::vector<DimPattern>& patterns = output.shape(alternative).dims;
  std::array<int64_t, kMaxRank> dims;
  for (size_t d = 0; d < patterns.size(); ++d) {
    TF_RETURN_IF_ERROR(
        contract.OutputDim(output, alternative, patterns[d], bound, &dims[d]));
  }
  const absl::Status status = TensorShape::BuildTensorShape(
      absl::MakeConstSpan(dims.data(), patterns.size()), shape);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      contract.op() + ": the output " + output.name +
      " is too large: " + std::string(status.message()));
}

}  // namespace

std::string WithoutNamespace(const std::string& op) {
  return op.substr(op.find('>') + 1);  // npos + 1 is 0
}

std::string OpName(OpKernelContext* ctx) {
  return WithoutNamespace(ctx->op_kernel().type_string());
}

ContractKernel::ContractKernel(OpKernelConstruction* ctx,
                               const OpContract* contract)
    : OpKernel(ctx), contract_(contract) {
  if (contract_ == nullptr) {
    contract_ = FindContract(WithoutNamespace(type_string()));
  }
  OP_REQUIRES(ctx, contract_ != nullptr,
              absl::InternalError(type_string() + " has no contract"));
  for (const ArgumentPattern& output : contract_->outputs()) {
    OP_REQUIRES(
        ctx, output.shape(0).dims.size() <= kMaxRank,
        absl::InternalError(type_string() + ": rank of " + output.name));
  }
  if (const char* const attr = contract_->row().alternative_attr) {
    bool first = false;
    OP_REQUIRES_OK(ctx, ctx->GetAttr(attr, &first));
    alternative_ = first ? 0 : 1;
  }
}

absl::Status ContractKernel::CheckInputs(OpKernelContext* ctx,
                                         Bindings* bound) const {
  return contract_->Check(RunTimeShapes(ctx), alternative_, bound);
}

absl::Status ContractKernel::AllocateOutputs(OpKernelContext* ctx,
                                             const Bindings& bound,
                                             Wanted wanted) const {
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    if (wanted == Wanted::kUsed && !ctx->output_required(i)) continue;
    const ArgumentPattern& output = contract_->outputs()[i];
    const ShapePattern& pattern = output.shape(alternative_);
    TensorShape shape;
    if (pattern.same_as >= 0) {
      shape = ctx->input(pattern.same_as).shape();
    } else {
      TF_RETURN_IF_ERROR(
          OutputShape(*contract_, output, alternative_, bound, &shape));
    }
    Tensor* tensor = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output(i, shape, &tensor));
  }
  return absl::OkStatus();
}

}  // namespace blockrnn
