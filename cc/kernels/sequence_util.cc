#include "cc/kernels/sequence_util.h"

#include <string>

#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status OutOfRange(OpKernelContext* ctx, const std::string& what,
                        int64_t steps, int64_t given) {
  return absl::InvalidArgumentError(
      OpName(ctx) + ": " + what + " must be in 0..T = 0.." +
      std::to_string(steps) + ", got " + std::to_string(given));
}

int64_t LengthAt(const Tensor& lengths, int64_t b) {
  return lengths.dtype() == tensorflow::DT_INT64
             ? static_cast<const int64_t*>(lengths.data())[b]
             : static_cast<const int32_t*>(lengths.data())[b];
}

}  // namespace

absl::Status GetFirstSteps(OpKernelContext* ctx, int index,
                           const Bindings& bound, SequenceShape* shape) {
  const int64_t steps = *Input<int64_t>(ctx, index);
  if (steps < 0 || steps > bound['T']) {
    return OutOfRange(ctx, "seq_len_max", bound['T'], steps);
  }
  shape->steps = steps;
  shape->batch = bound['B'];
  shape->input = bound['I'];
  shape->units = bound['H'];
  return absl::OkStatus();
}

absl::Status GetSequenceOptions(OpKernelConstruction* ctx,
                                SequenceOptions* options) {
  absl::Status status = ctx->GetAttr("time_major", &options->time_major);
  if (status.ok()) {
    status = ctx->GetAttr("go_backwards", &options->go_backwards);
  }
  if (status.ok() && ctx->HasAttr("is_training")) {
    status = ctx->GetAttr("is_training", &options->is_training);
  }
  return status;
}

absl::Status RowLengths::Make(OpKernelContext* ctx, int lengths,
                              int64_t steps) {
  const Tensor& given = ctx->input(lengths);
  const int64_t batch = given.NumElements();
  // An engine reads them in host memory, whatever its device.
  tensorflow::AllocatorAttributes on_host;
  on_host.set_on_host(true);
  const absl::Status status = ctx->allocate_temp(
      tensorflow::DT_INT64, TensorShape({batch}), &made_, on_host);
  if (!status.ok()) return status;
  auto* const made = static_cast<int64_t*>(made_.data());
  bool all = true;
  for (int64_t b = 0; b < batch; ++b) {
    // The copy is checked: memory that is shared, such as a NumPy array's, may
    // change meanwhile.
    made[b] = LengthAt(given, b);
    if (made[b] < 0 || made[b] > steps) {
      return OutOfRange(ctx, "sequence_lengths[" + std::to_string(b) + "]",
                        steps, made[b]);
    }
    all = all && made[b] == steps;
  }
  if (!all) data_ = made;
  return absl::OkStatus();
}

}  // namespace blockrnn
