// Owns what every kernel does around its engine call: the check of the inputs
// against the op's contract, the outputs, and typed views of both.

#ifndef BLOCKRNN_KERNELS_KERNEL_UTIL_H_
#define BLOCKRNN_KERNELS_KERNEL_UTIL_H_

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

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_KERNEL_UTIL_H_
