#include "cc/ops/cudnn_rnn_contract.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cc/core/checked_int.h"
#include "cc/core/param_layout.h"
#include "cc/core/reserve_space.h"
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

// Refuses input_h without a layer, which the text of a contract cannot do.
absl::Status NoLayer(const std::string& op, const CudnnRnnAttrs& attrs,
                     const Bindings& bound) {
  const char* const symbol = attrs.projected() ? "P" : "H";
  const std::string batch = DimText(bound['B']);
  const std::string width = DimText(bound[*symbol]);
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": input_h must have shape ",
      attrs.time_major ? absl::StrCat("[L*D, B, ", symbol, "]")
                       : absl::StrCat("[B, L*D, ", symbol, "]"),
      " with L at least 1, got ",
      attrs.time_major ? absl::StrCat("[0, ", batch, ", ", width, "]")
                       : absl::StrCat("[", batch, ", 0, ", width, "]")));
}

absl::Status CheckCount(const std::string& op, const RnnGeometry& geometry,
                        const char* attr, int64_t expected, int64_t given) {
  if (given == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", attr, " must be ", expected, ", ",
                   expected / geometry.layer_directions(),
                   " for each of L*D = ", geometry.layers, "*",
                   geometry.directions, " layers and directions, got ", given));
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

const OpContract* CudnnRnnContract(const std::string& op,
                                   const CudnnRnnAttrs& attrs) {
  return FindContract(op, !attrs.lstm()       ? Variant::kNoCellState
                          : attrs.projected() ? Variant::kAllGiven
                                              : Variant::kNoProjection);
}

Bindings CudnnRnnBindings(const CudnnRnnAttrs& attrs) {
  Bindings bound;
  bound['D'] = attrs.directions;
  if (attrs.projected()) bound['P'] = attrs.num_proj;
  if (!attrs.is_training) bound[kReserveSymbol] = 0;
  return bound;
}

absl::Status CheckCudnnRnnSizes(const std::string& op,
                                const CudnnRnnAttrs& attrs,
                                const Bindings& bound, CudnnRnnSizes* sizes) {
  sizes->layers = bound['L'];
  sizes->input = bound['I'];
  sizes->units = bound['H'];
  if (sizes->layers == 0) return NoLayer(op, attrs, bound);
  if (sizes->units != kUnknown && attrs.num_proj > sizes->units) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": num_proj must be in 0..H = 0..", sizes->units,
                     " (H is the last dim of input_c), got ", attrs.num_proj));
  }
  if (attrs.input_mode == RnnInputMode::kSkip && sizes->input != kUnknown &&
      sizes->units != kUnknown && sizes->input != sizes->units) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": with input_mode skip_input the last dims of input and input_",
        attrs.projected() ? "c" : "h", " must be the same, got ", sizes->input,
        " and ", sizes->units));
  }
  return absl::OkStatus();
}

absl::Status LargestReserveElements(const std::string& op,
                                    const CudnnRnnAttrs& attrs,
                                    const InputShapes& shapes,
                                    int64_t element_size, int64_t* elements) {
  Bindings bound = CudnnRnnBindings(attrs);
  absl::Status status = CudnnRnnContract(op, attrs)->Check(
      shapes, attrs.time_major ? 0 : 1, &bound);
  CudnnRnnSizes sizes;
  if (status.ok()) status = CheckCudnnRnnSizes(op, attrs, bound, &sizes);
  if (!status.ok()) return status;
  const std::optional<int64_t> rows =
      (CheckedInt(bound['T']) * bound['B']).value();
  const std::optional<int64_t> bytes =
      rows.has_value() ? ReserveLayout::Bytes(CudnnRnnGeometry(attrs, sizes),
                                              bound['T'], bound['B'], *rows,
                                              element_size, attrs.dropout > 0)
                       : std::nullopt;
  if (!bytes.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": the size of reserve_space overflows int64"));
  }
  *elements = *bytes / element_size;
  return absl::OkStatus();
}

absl::Status CheckNetworkInput(const std::string& op, int input,
                               int64_t value) {
  const int64_t least = input == kNumLayers ? 1 : 0;
  if (value >= least) return absl::OkStatus();
  const std::string& name =
      FindContract("CudnnRNNParamsSize")->inputs()[input].name;
  return absl::InvalidArgumentError(absl::StrCat(
      op, ": ", name, " must be at least ", least, ", got ", value));
}

absl::Status CheckNetworkSizes(const std::string& op,
                               const CudnnRnnAttrs& attrs,
                               const CudnnRnnSizes& sizes) {
  if (sizes.units == kUnknown) return absl::OkStatus();
  if (attrs.num_proj > sizes.units) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": num_proj must be in 0..num_units = 0..",
                     sizes.units, ", got ", attrs.num_proj));
  }
  if (attrs.input_mode == RnnInputMode::kSkip && sizes.input != kUnknown &&
      sizes.input != sizes.units) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": input_size must be num_units = ", sizes.units,
                     " with input_mode skip_input, got ", sizes.input));
  }
  return absl::OkStatus();
}

absl::Status GetNetwork(const std::string& op, const CudnnRnnAttrs& attrs,
                        const NetworkInputs& inputs, RnnGeometry* geometry,
                        int64_t* params) {
  for (int i = 0; i < kNetworkInputs; ++i) {
    const absl::Status status = CheckNetworkInput(op, i, inputs[i]);
    if (!status.ok()) return status;
  }
  CudnnRnnSizes sizes;
  sizes.layers = inputs[kNumLayers];
  sizes.units = inputs[kNumUnits];
  sizes.input = inputs[kInputSize];
  const absl::Status status = CheckNetworkSizes(op, attrs, sizes);
  if (!status.ok()) return status;
  *geometry = CudnnRnnGeometry(attrs, sizes);
  return CountParams(op, *geometry, params);
}

absl::Status CheckParamsSize(const std::string& op, tensorflow::DataType type,
                             int64_t params) {
  if (type != tensorflow::DT_INT32 ||
      params <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": params_size is ", params,
                   ", which is too large for int32; S must be int64"));
}

CanonicalCounts GetCanonicalCounts(FindAttr find) {
  if (const auto* both = find("num_params")) {
    return {"num_params", "num_params", both->i(), both->i()};
  }
  return {"num_params_weights", "num_params_biases",
          find("num_params_weights")->i(), find("num_params_biases")->i()};
}

absl::Status CheckCanonicalCounts(const std::string& op,
                                  const RnnGeometry& geometry,
                                  const CanonicalCounts& counts) {
  const ParamLayout layout(geometry);
  const absl::Status status = CheckCount(op, geometry, counts.weights_attr,
                                         layout.num_weights(), counts.weights);
  if (!status.ok()) return status;
  return CheckCount(op, geometry, counts.biases_attr, layout.num_biases(),
                    counts.biases);
}

std::vector<int64_t> WeightShape(const ParamLayout::Block& block) {
  return {block.rows, block.cols};
}

std::vector<int64_t> BiasShape(const ParamLayout::Block& block) {
  return {block.rows};
}

absl::Status CanonicalShapeError(const std::string& op, const char* name,
                                 int64_t index,
                                 const std::vector<int64_t>& expected,
                                 const std::string& given) {
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", name, "[", index, "] must have shape [",
                   absl::StrJoin(expected, ", "), "], got ", given));
}

}  // namespace blockrnn
