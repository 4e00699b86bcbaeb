#include "cc/kernels/frozen_call.h"

#include <string_view>

#include "cc/kernels/fingerprint.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {
namespace {

// Inputs of the type T that differ from call to call.
bool IsWeights(std::string_view argument) {
  const std::string_view name = ArgumentName(argument);
  if (argument[name.size()] == ':') return false;
  for (const char* other : {"x", "h_prev", "cs_prev", "recurrent_dropout"}) {
    if (name == other) return false;
  }
  return true;
}

absl::Status CheckFrozenAttrs(const FrozenAttrs& attrs, KernelNode* node) {
  const auto refused = [&attrs](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(attrs.op, ": ", text...));
  };
  tensorflow::DataType type = tensorflow::DT_FLOAT;
  node->GetAttr("T", &type);
  if (attrs.precision != Precision::kStorage && attrs.frozen.empty()) {
    return refused("precision must be float32 unless frozen is set");
  }
  if (attrs.precision != Precision::kStorage && type != tensorflow::DT_FLOAT) {
    return refused("precision must be float32 for T other than float, T is ",
                   tensorflow::DataTypeString(type));
  }
  if (attrs.frozen.empty()) return absl::OkStatus();
  const size_t digits = attrs.weights.size() * kFingerprintDigits;
  if (attrs.frozen.size() != digits ||
      attrs.frozen.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return refused("frozen must be empty or ", digits, " hex digits, got \"",
                   attrs.frozen, "\"");
  }
  bool is_training = false;
  node->GetAttrIfAny("is_training", &is_training);
  if (is_training) {
    return refused("is_training must be false where frozen is set, got true");
  }
  return absl::OkStatus();
}

}  // namespace

FrozenAttrs GetFrozenAttrs(KernelNode* node, const OpSpec& row,
                           int64_t element_bytes) {
  FrozenAttrs attrs;
  attrs.op = node->op();
  std::string precision = "float32";
  node->GetAttrIfAny("frozen", &attrs.frozen);
  node->GetAttrIfAny("precision", &precision);
  if (precision == "bfloat16") attrs.precision = Precision::kBFloat16;
  if (precision == "int8") attrs.precision = Precision::kInt8;
  attrs.dropout = IndexIn(row.inputs, "recurrent_dropout");
  int index = 0;
  for (std::string_view argument : row.inputs) {
    if (IsWeights(argument)) {
      const std::string name(ArgumentName(argument));
      attrs.weights.push_back({index, name, element_bytes, ""});
    }
    ++index;
  }
  const absl::Status status = CheckFrozenAttrs(attrs, node);
  node->Check(status);
  if (!status.ok() || attrs.frozen.empty()) return attrs;
  for (size_t k = 0; k < attrs.weights.size(); ++k) {
    attrs.weights[k].fingerprint =
        attrs.frozen.substr(k * kFingerprintDigits, kFingerprintDigits);
  }
  attrs.key = absl::StrCat(attrs.op, ";", attrs.frozen, ";", precision);
  // Those that packing may depend on.
  for (const char* attr : {"T", "gate_order", "activation", "forget_bias"}) {
    const tensorflow::AttrValue* const value = node->FindAttr(attr);
    if (value != nullptr)
      absl::StrAppend(&attrs.key, ";", value->DebugString());
  }
  return attrs;
}

}  // namespace blockrnn
