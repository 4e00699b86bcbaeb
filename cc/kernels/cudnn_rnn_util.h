// Owns what the kernels of CudnnRNN and CudnnRNNBackprop share: the attrs of
// their node and the check of a call.

#ifndef BLOCKRNN_KERNELS_CUDNN_RNN_UTIL_H_
#define BLOCKRNN_KERNELS_CUDNN_RNN_UTIL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "cc/core/rnn_geometry.h"
#include "cc/kernels/kernel_util.h"
#include "cc/kernels/sequence_util.h"
#include "cc/ops/cudnn_rnn_attrs.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace blockrnn {

// The attrs of the node that a kernel is constructed for, checked.
absl::Status ReadCudnnRnnAttrs(tensorflow::OpKernelConstruction* ctx,
                               CudnnRnnAttrs* attrs);

// What a check finds out about a call.
struct CudnnRnnCall {
  Bindings bound;
  RnnGeometry geometry;
  int64_t steps = 0;   // T
  int64_t batch = 0;   // B
  RowLengths lengths;  // of version 3
};

// A kernel of one version of CudnnRNN or CudnnRNNBackprop, under our name or
// TensorFlow's.
class CudnnRnnKernel : public tensorflow::OpKernel {
 protected:
  CudnnRnnKernel(tensorflow::OpKernelConstruction* ctx, bool backward);

  // The inputs that forward and backward begin with.
  enum FirstInputs { kInput, kInputH, kInputC, kParams, kSequenceLengths };
  // The next one, which the backward alone has.
  int first_backward_input() const {
    return version_ == 3 ? kSequenceLengths + 1 : kSequenceLengths;
  }

  const CudnnRnnAttrs& attrs() const { return attrs_; }
  const std::string& op() const { return contract_->op(); }

  // Checks every input but the content of reserve_space.
  absl::Status Check(tensorflow::OpKernelContext* ctx,
                     CudnnRnnCall* call) const;

  // Of a forward call `bound` also has the size of reserve_space.
  absl::Status AllocateOutputs(tensorflow::OpKernelContext* ctx,
                               const Bindings& bound) const {
    return blockrnn::AllocateOutputs(ctx, *contract_, alternative_, bound,
                                     Wanted::kAll);
  }

  // Fills in what the arguments of forward and backward, Args, have in common.
  // They live no longer than the call.
  template <class T, class Args>
  void Fill(tensorflow::OpKernelContext* ctx, const CudnnRnnCall& call,
            Args* args) const {
    args->geometry = call.geometry;
    args->steps = call.steps;
    args->batch = call.batch;
    args->time_major = attrs_.time_major;
    args->lengths = call.lengths.data();
    args->input = Input<T>(ctx, kInput);
    args->input_h = Input<T>(ctx, kInputH);
    if (attrs_.lstm()) args->input_c = Input<T>(ctx, kInputC);
    args->params = Input<T>(ctx, kParams);
  }

 private:
  CudnnRnnAttrs attrs_;
  int version_ = 1;
  const OpContract* contract_ = nullptr;
  int alternative_ = 0;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_CUDNN_RNN_UTIL_H_
