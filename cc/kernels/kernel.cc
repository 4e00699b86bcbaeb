#include "cc/kernels/kernel.h"

#include <cstdint>
#include <exception>
#include <new>
#include <string>

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

absl::Status StatusOfException() noexcept {
  auto code = absl::StatusCode::kInternal;
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      code = absl::StatusCode::kResourceExhausted;
      return absl::Status(code, "out of memory");
    } catch (const std::exception& exception) {
      return absl::Status(code, exception.what());
    } catch (...) {
      return absl::Status(code, "an exception of an unknown type");
    }
  } catch (...) {
    return absl::Status(code, "");  // which takes no memory
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
