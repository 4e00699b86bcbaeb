// Declares what the kernels of cells and sequences share: their attrs and the
// checks of seq_len_max and sequence_lengths.

#ifndef BLOCKRNN_KERNELS_SEQUENCE_UTIL_H_
#define BLOCKRNN_KERNELS_SEQUENCE_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cc/core/gate_layout.h"
#include "cc/core/lstm_cell.h"
#include "cc/core/sequence_args.h"
#include "cc/kernels/kernel.h"
#include "cc/kernels/op_call.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {

// The options of cells; an op has those of its attrs.
struct CellAttrs {
  LstmOptions lstm;  // forget_bias, cell_clip, use_peephole
  GruGateLayout gate_order = kGruRuc;
  bool relu = false;  // activation
  double epsilon = 0;
  bool norm_output_only = false;
};

CellAttrs GetCellAttrs(KernelNode* node);

// The first seq_len_max steps of a time-major sequence. index: of that input.
absl::Status GetFirstSteps(const std::string& op, const OpCall& call, int index,
                           const Bindings& bound, SequenceShape* shape);

// The attrs of our own ops, such as LSTMSequence.
struct SequenceOptions {
  bool time_major = true;
  bool go_backwards = false;
  bool is_training = true;    // of forward ops that save gates
  int64_t recompute = 0;      // of ops with span_states
  double zoneout_rate_h = 0;  // of ops with zoneout
  double zoneout_rate_c = 0;
  tensorflow::DataType lengths = tensorflow::DT_INT32;  // of sequence_lengths

  bool SavesGates() const { return is_training && recompute == 0; }
};

SequenceOptions GetSequenceOptions(KernelNode* node);

inline SequenceShape SequenceShapeOf(const Bindings& bound,
                                     const SequenceOptions& options) {
  return {bound['T'], bound['B'],         bound['I'],
          bound['H'], options.time_major, options.go_backwards};
}

// The lengths of the rows in the engine's form.
class RowLengths {
 public:
  // Refuses lengths outside 0..T. lengths: the index of that input, which has a
  // length for each row or is empty, and is in host memory.
  absl::Status Make(const std::string& op, const OpCall& call, int lengths,
                    tensorflow::DataType type, int64_t steps);

  // In host memory; nullptr if all rows have all steps.
  const int64_t* data() const { return data_; }

 private:
  const int64_t* data_ = nullptr;
  std::unique_ptr<int64_t[]> made_;
};

}  // namespace blockrnn

#endif  // BLOCKRNN_KERNELS_SEQUENCE_UTIL_H_
