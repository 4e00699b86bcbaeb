#include "cc/kernels/sequence_util.h"

#include <new>
#include <string>

#include "cc/ops/contract_rules.h"
#include "tensorflow/core/framework/attr_value.pb.h"

namespace blockrnn {
namespace {

absl::Status OutOfRange(const std::string& op, const std::string& what,
                        int64_t steps, int64_t given) {
  return absl::InvalidArgumentError(
      op + ": " + what + " must be in 0..T = 0.." + std::to_string(steps) +
      ", got " + std::to_string(given));
}

// Leaves `number` where the op has no such attr.
void GetNumber(KernelNode* node, const char* name, double* number) {
  const tensorflow::AttrValue* const attr = node->FindAttr(name);
  if (attr == nullptr) return;
  if (attr->value_case() == tensorflow::AttrValue::kF) {
    *number = attr->f();  // of one of TensorFlow's own ops
    return;
  }
  std::string text;
  tensorflow::DataType type = tensorflow::DT_FLOAT;
  node->GetAttr(name, &text);
  node->GetAttr("T", &type);
  node->Check(ParseNumber(node->op(), NumberAttrOf(name), text, type, number));
}

}  // namespace

CellAttrs GetCellAttrs(KernelNode* node) {
  CellAttrs attrs;
  std::string gate_order;
  std::string activation;
  GetNumber(node, "forget_bias", &attrs.lstm.forget_bias);
  GetNumber(node, "cell_clip", &attrs.lstm.cell_clip);
  GetNumber(node, "epsilon", &attrs.epsilon);
  node->GetAttrIfAny("use_peephole", &attrs.lstm.use_peephole);
  node->GetAttrIfAny("gate_order", &gate_order);
  node->GetAttrIfAny("activation", &activation);
  node->GetAttrIfAny("norm_output_only", &attrs.norm_output_only);
  if (gate_order == "urc") attrs.gate_order = kGruUrc;
  attrs.relu = activation == "relu";
  return attrs;
}

absl::Status GetFirstSteps(const std::string& op, const OpCall& call, int index,
                           const Bindings& bound, SequenceShape* shape) {
  const int64_t steps = *Input<int64_t>(call, index);
  if (steps < 0 || steps > bound['T']) {
    return OutOfRange(op, "seq_len_max", bound['T'], steps);
  }
  shape->steps = steps;
  shape->batch = bound['B'];
  shape->input = bound['I'];
  shape->units = bound['H'];
  return absl::OkStatus();
}

SequenceOptions GetSequenceOptions(KernelNode* node) {
  SequenceOptions options;
  node->GetAttr("time_major", &options.time_major);
  node->GetAttr("go_backwards", &options.go_backwards);
  node->GetAttrIfAny("is_training", &options.is_training);
  node->GetAttrIfAny("recompute", &options.recompute);
  if (!options.is_training) options.recompute = 0;
  GetNumber(node, "zoneout_rate_h", &options.zoneout_rate_h);
  GetNumber(node, "zoneout_rate_c", &options.zoneout_rate_c);
  node->GetAttr("Tlen", &options.lengths);
  return options;
}

absl::Status RowLengths::Make(const std::string& op, const OpCall& call,
                              int lengths, tensorflow::DataType type,
                              int64_t steps) {
  const int64_t batch = InputElements(call, lengths);
  if (batch == 0) return absl::OkStatus();
  made_.reset(new (std::nothrow) int64_t[batch]);
  if (made_ == nullptr) {
    return absl::ResourceExhaustedError(op + ": no memory for " +
                                        std::to_string(batch) + " lengths");
  }
  bool all = true;
  for (int64_t b = 0; b < batch; ++b) {
    // The copy is checked: memory that is shared, such as a NumPy array's, may
    // change meanwhile.
    made_[b] = type == tensorflow::DT_INT64 ? Input<int64_t>(call, lengths)[b]
                                            : Input<int32_t>(call, lengths)[b];
    if (made_[b] < 0 || made_[b] > steps) {
      return OutOfRange(op, "sequence_lengths[" + std::to_string(b) + "]",
                        steps, made_[b]);
    }
    all = all && made_[b] == steps;
  }
  if (!all) data_ = made_.get();
  return absl::OkStatus();
}

}  // namespace blockrnn
