#include "cc/kernels/kernel.h"

#include <cstdint>
#include <new>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using OutputShape = absl::InlinedVector<int64_t, 4>;

absl::Status OutputDims(const OpContract& contract,
                        const ArgumentPattern& output, int alternative,
                        const Bindings& bound, const OpCall& call,
                        OutputShape* dims) {
  const ShapePattern& pattern = output.shape(alternative);
  if (pattern.same_as >= 0) {
    for (int d = 0; d < call.rank(pattern.same_as); ++d) {
      dims->push_back(call.dim(pattern.same_as, d));
    }
    return absl::OkStatus();
  }
  for (const DimPattern& dim : pattern.dims) {
    dims->push_back(0);
    TF_RETURN_IF_ERROR(
        contract.OutputDim(output, alternative, dim, bound, &dims->back()));
  }
  return absl::OkStatus();
}

}  // namespace

std::string WithoutNamespace(const std::string& op) {
  return op.substr(op.find('>') + 1);  // npos + 1 is 0
}

absl::Status ToStatus(const std::exception& exception) noexcept {
  const bool memory =
      dynamic_cast<const std::bad_alloc*>(&exception) != nullptr;
  const auto status = [memory](std::string_view text) {
    return memory ? absl::ResourceExhaustedError(text)
                  : absl::InternalError(text);
  };
  try {
    return status(memory ? "out of memory" : exception.what());
  } catch (const std::bad_alloc&) {
    return status("");  // which takes no memory
  }
}

ContractKernel::ContractKernel(KernelNode* node, const OpContract* contract)
    : op_(node->op()),
      contract_(contract == nullptr ? FindContract(op_) : contract) {
  if (contract_ == nullptr) {
    node->Check(absl::InternalError(op_ + " has no contract"));
    return;
  }
  if (const char* const attr = contract_->row().alternative_attr) {
    bool first = false;
    node->GetAttr(attr, &first);
    alternative_ = first ? 0 : 1;
  }
}

absl::Status ContractKernel::AllocateOutputs(OpCall* call,
                                             const Bindings& bound,
                                             Wanted wanted) const {
  for (int i = 0; i < call->num_outputs(); ++i) {
    if (wanted == Wanted::kUsed && !call->output_required(i)) continue;
    const ArgumentPattern& output = contract_->outputs()[i];
    OutputShape dims;
    TF_RETURN_IF_ERROR(
        OutputDims(*contract_, output, alternative_, bound, *call, &dims));
    const absl::Status status = call->AllocateOutput(i, dims);
    if (absl::IsInvalidArgument(status)) {
      return absl::InvalidArgumentError(
          op_ + ": the output " + output.name +
          " is too large: " + std::string(status.message()));
    }
    TF_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace blockrnn
