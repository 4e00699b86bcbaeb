// Owns what the kernels of whole sequences share: their attrs, the checks of
// seq_len_max and sequence_lengths, and inputs that may be left out.

#ifndef BLOCKRNN_KERNELS_SEQUENCE_UTIL_H_
#define BLOCKRNN_KERNELS_SEQUENCE_UTIL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/kernel_util.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace blockrnn {

// Inputs that the kernels of every device read on the host.
inline constexpr char kLengthsInput[] = "sequence_lengths";
inline constexpr char kSeqLenMaxInput[] = "seq_len_max";

// Whether no state has a number in it: all that is not empty is zero then, and
// the engine, whose time grows with the steps, is not asked.
// projected: the size that the state is projected to, or 0.
inline bool NoState(const Bindings& bound, int64_t projected = 0) {
  return bound['B'] == 0 || (bound['H'] == 0 && projected == 0);
}

// The first seq_len_max steps of a time-major sequence. seq_len_max is input 0.
absl::Status GetFirstSteps(tensorflow::OpKernelContext* ctx,
                           const Bindings& bound, SequenceShape* shape);

// The attrs that the ops of our own have, as LSTMSequence.
struct SequenceOptions {
  bool time_major = true;
  bool go_backwards = false;
  bool is_training = true;  // of forward ops that keep gates
};

absl::Status GetSequenceOptions(tensorflow::OpKernelConstruction* ctx,
                                SequenceOptions* options);

inline SequenceShape SequenceShapeOf(const Bindings& bound,
                                     const SequenceOptions& options) {
  return {bound['T'], bound['B'],         bound['I'],
          bound['H'], options.time_major, options.go_backwards};
}

// Whether x is its products with the weights already, w_x being left out.
inline bool HasInputProducts(tensorflow::OpKernelContext* ctx, int w_x) {
  return ctx->input(w_x).dims() == 1;
}

// The lengths of the rows as an engine takes them.
class RowLengths {
 public:
  // Refuses lengths outside 0..T. lengths: the index of that input, which has
  // one of each row, or none at all, and is in host memory.
  absl::Status Make(tensorflow::OpKernelContext* ctx, int lengths,
                    int64_t steps);

  // In host memory; nullptr when all rows have all steps.
  const int64_t* data() const { return data_; }

 private:
  const int64_t* data_ = nullptr;
  tensorflow::Tensor made_;
};

// An input that may be left out: nullptr then.
template <class T>
const T* OptionalInput(tensorflow::OpKernelContext* ctx, int index) {
  return ctx->input(index).dims() == 1 && ctx->input(index).NumElements() == 0
             ? nullptr
             : Input<T>(ctx, index);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_SEQUENCE_UTIL_H_
