#include "cc/kernels/cudnn_rnn_util.h"

#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

// The same in all versions of both ops.
constexpr int kParams = InputAt(Row("CudnnRNN"), "params");
static_assert(kParams == InputAt(Row("CudnnRNNBackpropV3"), "params"));

}  // namespace

CudnnRnnAttrs CudnnRnnAttrsOf(KernelNode* node) {
  CudnnRnnAttrs attrs;
  const auto find = [node](const char* name) { return node->FindAttr(name); };
  const absl::Status status = ReadCudnnRnnAttrs(node->op(), find, &attrs);
  node->Check(status);
  return status.ok() ? attrs : CudnnRnnAttrs();
}

CudnnRnnKernel::CudnnRnnKernel(KernelNode* node, const CudnnRnnAttrs& attrs)
    : ContractKernel(node, CudnnRnnContract(node->op(), attrs)),
      attrs_(attrs),
      sequence_lengths_(
          FindArgument(Row(node->op()).inputs, "sequence_lengths")) {}

absl::Status CudnnRnnKernel::Check(const OpCall& call,
                                   CudnnRnnSizesOfCall* of_call) const {
  of_call->bound = CudnnRnnBindings(attrs_);
  TF_RETURN_IF_ERROR(CheckInputs(call, &of_call->bound));
  CudnnRnnSizes sizes;
  TF_RETURN_IF_ERROR(CheckCudnnRnnSizes(op(), attrs_, of_call->bound, &sizes));
  of_call->geometry = CudnnRnnGeometry(attrs_, sizes);
  of_call->steps = of_call->bound['T'];
  of_call->batch = of_call->bound['B'];
  TF_RETURN_IF_ERROR(
      CheckParams(op(), of_call->geometry, InputElements(call, kParams)));
  if (sequence_lengths_ < 0) return absl::OkStatus();
  return of_call->lengths.Make(op(), call, sequence_lengths_,
                               tensorflow::DT_INT32, of_call->steps);
}

}  // namespace blockrnn
