#include "cc/kernels/sequence_util.h"

#include <new>
#include <string>

#include "cc/ops/contract_rules.h"

namespace blockrnn {
namespace {

absl::Status OutOfRange(const std::string& op, const std::string& what,
                        int64_t steps, int64_t given) {
  return absl::InvalidArgumentError(
      op + ": " + what + " must be in 0..T = 0.." + std::to_string(steps) +
      ", got " + std::to_string(given));
}

// An attr of ops with zoneout.
void GetZoneoutRate(KernelNode* node, const char* attr, float* rate) {
  node->GetAttrIfAny(attr, rate);
  if (*rate >= 0 && *rate <= 1) return;
  node->Check(absl::InvalidArgumentError(node->op() + ": " + attr +
                                         " must be in 0..1, got " +
                                         std::to_string(*rate)));
}

}  // namespace

CellAttrs GetCellAttrs(KernelNode* node) {
  CellAttrs attrs;
  std::string gate_order;
  std::string activation;
  node->GetAttrIfAny("forget_bias", &attrs.lstm.forget_bias);
  node->GetAttrIfAny("cell_clip", &attrs.lstm.cell_clip);
  node->GetAttrIfAny("use_peephole", &attrs.lstm.use_peephole);
  node->GetAttrIfAny("gate_order", &gate_order);
  node->GetAttrIfAny("activation", &activation);
  node->GetAttrIfAny("norm_output_only", &attrs.norm_output_only);
  if (gate_order == "urc") attrs.gate_order = kGruUrc;
  attrs.relu = activation == "relu";
  if (node->FindAttr("epsilon") != nullptr) {
    node->GetAttr("epsilon", &attrs.epsilon);
    node->Check(CheckEpsilon(node->op(), attrs.epsilon));
  }
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
  GetZoneoutRate(node, "zoneout_rate_h", &options.zoneout_rate_h);
  GetZoneoutRate(node, "zoneout_rate_c", &options.zoneout_rate_c);
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
