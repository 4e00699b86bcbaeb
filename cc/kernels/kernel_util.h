// Owns what every kernel does around its engine call: the check of the inputs
// against the op's contract, the outputs, and typed views of both.

#ifndef BLOCKRNN_KERNELS_KERNEL_UTIL_H_
#define BLOCKRNN_KERNELS_KERNEL_UTIL_H_

#include <string>

#include "absl/status/status.h"
#include "cc/core/cell_args.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

enum class Wanted {
  kAll,
  // Those that the graph uses; all in eager mode. Output() is null elsewhere.
  kUsed,
};

// The op's name in messages, without the namespace.
std::string OpName(tensorflow::OpKernelContext* ctx);

// Checks all inputs that the contract knows. alternative: 0 when the contract's
// attr is true or there is none, else 1.
absl::Status CheckInputs(tensorflow::OpKernelContext* ctx,
                         const OpContract& contract, int alternative,
                         Bindings* bound);
// Allocates all outputs, which take no input's buffer.
absl::Status AllocateOutputs(tensorflow::OpKernelContext* ctx,
                             const OpContract& contract, int alternative,
                             const Bindings& bound, Wanted wanted);

// A kernel of an op that has one contract.
class ContractKernel : public tensorflow::OpKernel {
 public:
  explicit ContractKernel(tensorflow::OpKernelConstruction* ctx);

 protected:
  // Checks all inputs, then allocates all outputs, which take no input's
  // buffer. Everything is refused here, before the engine sees a pointer.
  absl::Status Prepare(tensorflow::OpKernelContext* ctx, Bindings* bound) const;

  // The two halves of it, for kernels that do more between or leave out outputs
  // that nobody wants.
  absl::Status CheckInputs(tensorflow::OpKernelContext* ctx,
                           Bindings* bound) const;
  absl::Status AllocateOutputs(tensorflow::OpKernelContext* ctx,
                               const Bindings& bound, Wanted wanted) const;

 private:
  const OpContract* contract_ = nullptr;
  int alternative_ = 0;
};

inline CellDims CellDimsOf(const Bindings& bound) {
  return {bound['B'], bound['I'], bound['H']};
}

template <class T>
const T* Input(tensorflow::OpKernelContext* ctx, int index) {
  return static_cast<const T*>(ctx->input(index).data());
}

template <class T>
T* Output(tensorflow::OpKernelContext* ctx, int index) {
  tensorflow::Tensor* tensor = ctx->mutable_output(index);
  return tensor == nullptr ? nullptr : static_cast<T*>(tensor->data());
}

// Fills an output with zeros, from index `from` of its first dim on; nothing to
// do for one that nobody uses.
template <class Device>
absl::Status ZeroOutput(tensorflow::OpKernelContext* ctx, const Device& device,
                        int index, int64_t from = 0) {
  tensorflow::Tensor* tensor = ctx->mutable_output(index);
  if (tensor == nullptr || tensor->NumElements() == 0) return absl::OkStatus();
  const int64_t bytes = static_cast<int64_t>(tensor->TotalBytes());
  // No output is a scalar, and dim 0 is not 0, since there are elements.
  const int64_t skip = bytes / tensor->dim_size(0) * from;
  return device.FillZero(ctx, static_cast<char*>(tensor->data()) + skip,
                         bytes - skip);
}

template <class Device>
absl::Status ZeroOutputs(tensorflow::OpKernelContext* ctx, const Device& device,
                         int begin, int end, int64_t from = 0) {
  for (int index = begin; index < end; ++index) {
    const absl::Status status = ZeroOutput(ctx, device, index, from);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_KERNEL_UTIL_H_
