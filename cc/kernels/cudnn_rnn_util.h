// Declares what the kernels of CudnnRNN and CudnnRNNBackprop share: the attrs
// of their node and the check of a call.

#ifndef BLOCKRNN_KERNELS_CUDNN_RNN_UTIL_H_
#define BLOCKRNN_KERNELS_CUDNN_RNN_UTIL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cc/core/param_layout.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/op_contract.h"

namespace blockrnn {

// The attrs of the node that a kernel is constructed for; the node fails if
// they are invalid.
CudnnRnnAttrs CudnnRnnAttrsOf(KernelNode* node);

// The sizes of a call, which its check determines.
struct CudnnRnnSizesOfCall {
  Bindings bound;
  RnnGeometry geometry;
  int64_t steps = 0;   // T
  int64_t batch = 0;   // B
  RowLengths lengths;  // of version 3
};

// A kernel of one version of CudnnRNN or CudnnRNNBackprop, under our name or
// TensorFlow's.
class CudnnRnnKernel : public ContractKernel {
 protected:
  // attrs: of the node.
  CudnnRnnKernel(KernelNode* node, const CudnnRnnAttrs& attrs);
  explicit CudnnRnnKernel(KernelNode* node)
      : CudnnRnnKernel(node, CudnnRnnAttrsOf(node)) {}

  const CudnnRnnAttrs& attrs() const { return attrs_; }

  // Checks every input but the content of reserve_space.
  absl::Status Check(const OpCall& call, CudnnRnnSizesOfCall* sizes) const;

  // Sets the arguments, other than pointers to inputs, that forward and
  // backward share. They live no longer than the call.
  template <class Args>
  void Begin(const CudnnRnnSizesOfCall& sizes, Args* args) const {
    args->geometry = sizes.geometry;
    args->steps = sizes.steps;
    args->batch = sizes.batch;
    args->time_major = attrs_.time_major;
    args->lengths = sizes.lengths.data();
  }

 private:
  CudnnRnnAttrs attrs_;
  int sequence_lengths_ = -1;  // the index of that input, if there is one
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_CUDNN_RNN_UTIL_H_
