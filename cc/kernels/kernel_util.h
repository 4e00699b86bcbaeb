// Declares what every kernel does around its engine call: checking the inputs
// against the op's contract, allocating the outputs, and typed views of both.

#ifndef BLOCKRNN_KERNELS_KERNEL_UTIL_H_
#define BLOCKRNN_KERNELS_KERNEL_UTIL_H_

#include <string>

#include "absl/status/status.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

enum class Wanted {
  kAll,
  // The outputs that the graph uses; all in eager mode. Output() of any other
  // is null.
  kUsed,
};

// An op's name, "CudnnRNNV3", from its name with or without our namespace.
std::string WithoutNamespace(const std::string& op);
std::string OpName(tensorflow::OpKernelContext* ctx);

// A kernel of an op that has one contract.
class ContractKernel : public tensorflow::OpKernel {
 public:
  // contract: nullptr for that of the op.
  explicit ContractKernel(tensorflow::OpKernelConstruction* ctx,
                          const OpContract* contract = nullptr);

 protected:
  const std::string& op() const { return contract_->op(); }

  // 0 if the attr that selects an alternative is true or does not exist,
  // else 1.
  int alternative() const { return alternative_; }

  // Checks all inputs. Every malformed call is refused here, before the engine
  // gets a pointer.
  absl::Status CheckInputs(tensorflow::OpKernelContext* ctx,
                           Bindings* bound) const;
  // Allocates all outputs; none reuses the buffer of an input.
  absl::Status AllocateOutputs(tensorflow::OpKernelContext* ctx,
                               const Bindings& bound, Wanted wanted) const;

 private:
  const OpContract* contract_ = nullptr;
  int alternative_ = 0;
};

template <class T>
const T* Input(tensorflow::OpKernelContext* ctx, int index) {
  return static_cast<const T*>(ctx->input(index).data());
}

// Whether an optional input is left out.
inline bool LeftOut(tensorflow::OpKernelContext* ctx, int index) {
  return ctx->input(index).dims() == 1 && ctx->input(index).NumElements() == 0;
}

template <class T>
T* Output(tensorflow::OpKernelContext* ctx, int index) {
  tensorflow::Tensor* tensor = ctx->mutable_output(index);
  return tensor == nullptr ? nullptr : static_cast<T*>(tensor->data());
}

// Fills an output with zeros, from index `from` of its first dim on; does
// nothing for an unused output.
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
