#include "cc/ops/cudnn_rnn_attrs.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/core/param_layout.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

// The op's allowed values exclude all others.
RnnMode ModeOf(const std::string& name) {
  if (name == "rnn_relu") return RnnMode::kRelu;
  if (name == "rnn_tanh") return RnnMode::kTanh;
  if (name == "gru") return RnnMode::kGru;
  return RnnMode::kLstm;
}

RnnInputMode InputModeOf(const std::string& name) {
  if (name == "skip_input") return RnnInputMode::kSkip;
  if (name == "auto_select") return RnnInputMode::kAuto;
  return RnnInputMode::kLinear;
}

// "for each of L*D = 2*1 layers and directions 4 matrices [H, width] of the
// input, …": the parts of params.
std::string PartsText(const RnnGeometry& g) {
  const int gates = g.gates();
  std::string text = absl::StrCat(
      "for each of L*D = ", g.layers, "*", g.directions,
      " layers and directions ", gates, " matrices [H, width] of the input, ",
      gates, " [H, ", g.projected ? "P" : "H", "] of the state, ");
  if (g.projected) absl::StrAppend(&text, "a projection [P, H] ");
  absl::StrAppend(&text, "and ", 2 * gates, " biases [H], with H = ", g.units);
  if (g.projected) absl::StrAppend(&text, ", P = ", g.proj);
  if (g.skip_input) {
    absl::StrAppend(&text, ", no matrices of the input in layer 0");
  } else {
    absl::StrAppend(&text, ", width = I = ", g.input, " in layer 0");
  }
  if (g.layers > 1) {
    absl::StrAppend(&text, ", width = ", g.projected ? "D*P" : "D*H", " = ",
                    g.OutputWidth(), " above");
  }
  return text;
}

}  // namespace

absl::Status ReadCudnnRnnAttrs(const std::string& op, FindAttr find,
                               CudnnRnnAttrs* attrs) {
  // TensorFlow has validated the node against the op, so these four exist.
  const std::string& mode = find("rnn_mode")->s();
  attrs->mode = ModeOf(mode);
  attrs->input_mode = InputModeOf(find("input_mode")->s());
  attrs->directions = find("direction")->s() == "bidirectional" ? 2 : 1;
  attrs->dropout = find("dropout")->f();
  if (const auto* attr = find("num_proj")) attrs->num_proj = attr->i();
  if (const auto* attr = find("is_training")) attrs->is_training = attr->b();
  if (const auto* attr = find("time_major")) attrs->time_major = attr->b();
  if (!(attrs->dropout >= 0.0f && attrs->dropout < 1.0f)) {  // NaN too
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": dropout must be in [0, 1), got ", attrs->dropout));
  }
  if (attrs->num_proj < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": num_proj must be at least 0, got ", attrs->num_proj));
  }
  if (attrs->num_proj > 0 && !attrs->lstm()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": num_proj with rnn_mode ", mode, " must be 0, got ",
                     attrs->num_proj));
  }
  return absl::OkStatus();
}

RnnGeometry CudnnRnnGeometry(const CudnnRnnAttrs& attrs,
                             const CudnnRnnSizes& sizes) {
  RnnGeometry geometry;
  geometry.mode = attrs.mode;
  geometry.layers = sizes.layers;
  geometry.directions = attrs.directions;
  geometry.input = sizes.input;
  geometry.units = sizes.units;
  geometry.projected = attrs.projected();
  geometry.proj = attrs.projected() ? attrs.num_proj : sizes.units;
  geometry.skip_input =
      attrs.input_mode == RnnInputMode::kSkip ||
      (attrs.input_mode == RnnInputMode::kAuto && sizes.input == sizes.units);
  return geometry;
}

absl::Status CountParams(const std::string& op, const RnnGeometry& geometry,
                         int64_t* count) {
  const std::optional<int64_t> counted = ParamLayout::Count(geometry);
  if (!counted.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": the size of params overflows int64: ", PartsText(geometry)));
  }
  *count = *counted;
  return absl::OkStatus();
}

absl::Status CheckParams(const std::string& op, const RnnGeometry& geometry,
                         int64_t given) {
  int64_t count = 0;
  TF_RETURN_IF_ERROR(CountParams(op, geometry, &count));
  if (given == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": params must have shape [", count, "], got [", given,
                   "]; they are ", PartsText(geometry)));
}

}  // namespace blockrnn
