#include "cc/kernels/cudnn_rnn_util.h"

#include <string>

#include "cc/ops/cudnn_rnn_contract.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// 1, 2 or 3, as the op's name says.
int VersionOf(const std::string& op) {
  const char last = op.back();
  return last == '2' ? 2 : last == '3' ? 3 : 1;
}

}  // namespace

absl::Status ReadCudnnRnnAttrs(OpKernelConstruction* ctx,
                               CudnnRnnAttrs* attrs) {
  const tensorflow::AttrSlice node(ctx->def());
  const auto find = [&node](const char* name) { return node.Find(name); };
  return ReadCudnnRnnAttrs(WithoutNamespace(ctx->def().op()), find, attrs);
}

CudnnRnnKernel::CudnnRnnKernel(OpKernelConstruction* ctx, bool backward)
    : OpKernel(ctx), version_(VersionOf(type_string())) {
  OP_REQUIRES_OK(ctx, ReadCudnnRnnAttrs(ctx, &attrs_));
  contract_ = &CudnnRnnContract(version_, backward, attrs_);
  alternative_ = attrs_.time_major ? 0 : 1;
}

absl::Status CudnnRnnKernel::Check(OpKernelContext* ctx,
                                   CudnnRnnCall* call) const {
  call->bound = CudnnRnnBindings(attrs_);
  TF_RETURN_IF_ERROR(CheckInputs(ctx, *contract_, alternative_, &call->bound));
  CudnnRnnSizes sizes;
  TF_RETURN_IF_ERROR(CheckCudnnRnnSizes(op(), attrs_, call->bound, &sizes));
  call->geometry = CudnnRnnGeometry(attrs_, sizes);
  call->steps = call->bound['T'];
  call->batch = call->bound['B'];
  TF_RETURN_IF_ERROR(
      CheckParams(op(), call->geometry, ctx->input(kParams).NumElements()));
  if (version_ < 3) return absl::OkStatus();
  return call->lengths.Make(ctx, kSequenceLengths, call->steps);
}

}  // namespace blockrnn
