#include "cc/ops/cudnn_rnn_params.h"

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace blockrnn {
namespace {

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

absl::Status CheckNetworkInput(const std::string& op, int input,
                               int64_t value) {
  const int64_t least = input == kNumLayers ? 1 : 0;
  if (value >= least) return absl::OkStatus();
  const std::string_view name =
      ArgumentName(ArgumentText(Row("CudnnRNNParamsSize").inputs, input));
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
