#include "cc/kernels/cudnn_rnn_util.h"

#include <string>

#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/op_table.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// The same in all versions of both ops.
constexpr int kParams = InputAt(Row("CudnnRNN"), "params");
static_assert(kParams == InputAt(Row("CudnnRNNBackpropV3"), "params"));

}  // namespace

absl::StatusOr<CudnnRnnAttrs> CudnnRnnAttrsOf(OpKernelConstruction* ctx) {
  const tensorflow::AttrSlice node(ctx->def());
  const auto find = [&node](const char* name) { return node.Find(name); };
  CudnnRnnAttrs attrs;
  TF_RETURN_IF_ERROR(
      ReadCudnnRnnAttrs(WithoutNamespace(ctx->def().op()), find, &attrs));
  return attrs;
}

CudnnRnnKernel::CudnnRnnKernel(OpKernelConstruction* ctx,
                               const absl::StatusOr<CudnnRnnAttrs>& attrs)
    : ContractKernel(ctx, CudnnRnnContract(WithoutNamespace(ctx->def().op()),
                                           attrs.value_or(CudnnRnnAttrs()))) {
  OP_REQUIRES_OK(ctx, attrs.status());
  attrs_ = *attrs;
  sequence_lengths_ = FindArgument(Row(op()).inputs, "sequence_lengths");
}

absl::Status CudnnRnnKernel::Check(OpKernelContext* ctx,
                                   CudnnRnnCall* call) const {
  call->bound = CudnnRnnBindings(attrs_);
  TF_RETURN_IF_ERROR(CheckInputs(ctx, &call->bound));
  CudnnRnnSizes sizes;
  TF_RETURN_IF_ERROR(CheckCudnnRnnSizes(op(), attrs_, call->bound, &sizes));
  call->geometry = CudnnRnnGeometry(attrs_, sizes);
  call->steps = call->bound['T'];
  call->batch = call->bound['B'];
  TF_RETURN_IF_ERROR(
      CheckParams(op(), call->geometry, ctx->input(kParams).NumElements()));
  if (sequence_lengths_ < 0) return absl::OkStatus();
  return call->lengths.Make(ctx, sequence_lengths_, call->steps);
}

}  // namespace blockrnn
