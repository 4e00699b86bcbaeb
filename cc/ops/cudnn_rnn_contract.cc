#include "cc/ops/cudnn_rnn_contract.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "cc/core/checked_int.h"
#include "cc/core/reserve_space.h"

namespace blockrnn {
namespace {

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

}  // namespace

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

}  // namespace blockrnn
