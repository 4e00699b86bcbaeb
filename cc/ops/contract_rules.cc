#include "cc/ops/contract_rules.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"

namespace blockrnn {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

class StaticShapes : public InputShapes {
 public:
  explicit StaticShapes(InferenceContext* c) : c_(c) {}
  int rank(int input) const override {
    const ShapeHandle shape = c_->input(input);
    return c_->RankKnown(shape) ? c_->Rank(shape) : static_cast<int>(kUnknown);
  }
  int64_t dim(int input, int index) const override {
    const DimensionHandle dim = c_->Dim(c_->input(input), index);
    return c_->ValueKnown(dim) ? c_->Value(dim) : kUnknown;
  }

 private:
  InferenceContext* c_;
};

// An input's dim with exactly this pattern, so that TensorFlow knows that, for
// example, an unknown batch is the same one; else a new unknown.
DimensionHandle UnknownLike(const OpContract& contract, int alternative,
                            const DimPattern& pattern, InferenceContext* c) {
  for (int i = 0; i < c->num_inputs(); ++i) {
    const ShapePattern& shape = contract.inputs()[i].shape(alternative);
    if (contract.inputs()[i].optional) continue;
    if (shape.any || !c->RankKnown(c->input(i))) continue;
    for (size_t d = 0; d < shape.dims.size(); ++d) {
      if (!shape.dims[d].any && shape.dims[d].text == pattern.text) {
        return c->Dim(c->input(i), static_cast<int>(d));
      }
    }
  }
  return c->UnknownDim();
}

absl::Status GetAlternative(const OpContract& contract, InferenceContext* c,
                            int* alternative) {
  *alternative = 0;
  const char* const attr = contract.row().alternative_attr;
  if (attr == nullptr) return absl::OkStatus();
  bool first = false;
  TF_RETURN_IF_ERROR(c->GetAttr(attr, &first));
  *alternative = first ? 0 : 1;
  return absl::OkStatus();
}

absl::Status CheckNumbers(const OpContract& contract, InferenceContext* c) {
  for (const NumberAttr& attr : kNumberAttrs) {
    const tensorflow::AttrValue* const given = c->GetAttr(attr.name);
    // TensorFlow's own ops have attrs of float.
    if (given == nullptr || given->value_case() != tensorflow::AttrValue::kS) {
      continue;
    }
    double number = 0;
    TF_RETURN_IF_ERROR(ParseNumber(contract.op(), attr, given->s(),
                                   c->GetAttr("T")->type(), &number));
  }
  return absl::OkStatus();
}

// Of what absl::SimpleAtod reads, the decimal numbers without a sign "+" or
// spaces before them, and the only names of what is no finite number.
bool IsDecimal(std::string_view text) {
  if (text == "inf" || text == "-inf" || text == "nan") return true;
  constexpr std::string_view kCharacters = "0123456789.e+-";
  return text.find_first_not_of(kCharacters) == std::string_view::npos &&
         text.substr(0, 1) != "+";
}

}  // namespace

absl::Status CheckProjection(const OpContract& contract,
                             const InputShapes& shapes, const Bindings& bound) {
  const int w_p = contract.InputAt("w_p");
  if (shapes.rank(w_p) != 2 || bound['P'] != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      contract.op(), ": w_p must have shape [P, H] with P above 0, got [0, ",
      DimText(bound['H']), "]"));
}

absl::Status ParseNumber(const std::string& op, const NumberAttr& attr,
                         std::string_view text, tensorflow::DataType type,
                         double* number) {
  const auto refused = [&](std::string_view expected, const auto&... given) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": ", attr.name, " must be ", expected, ", got ", given...));
  };
  double exact = 0;
  if (!IsDecimal(text) || !absl::SimpleAtod(text, &exact)) {
    return refused("a number in decimal text", "\"", absl::CEscape(text), "\"");
  }
  const double rounded =
      type == tensorflow::DT_DOUBLE ? exact : static_cast<float>(exact);
  if (attr.range == NumberRange::kPositive &&
      !(std::isfinite(rounded) && rounded > 0)) {
    const bool fits = std::isfinite(exact) && exact > 0;
    return refused("a finite number above 0", text,
                   fits ? absl::StrCat(", ", rounded, " in float32") : "");
  }
  if (attr.range == NumberRange::kRate && !(exact >= 0 && exact <= 1)) {
    return refused("in 0..1", text);
  }
  *number = rounded;
  return absl::OkStatus();
}

int64_t SpanSteps(int64_t recompute, int64_t steps) {
  if (recompute >= 0) return recompute;
  const auto root = std::sqrt(static_cast<double>(steps));
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(root / 2)));
}

absl::Status BindSpanStates(const OpContract& contract, int64_t recompute,
                            int64_t element_bytes, Bindings* bound) {
  const OpSpec& row = contract.row();
  const bool has_cell_state = HasInput(row, "cs_prev");
  const int64_t steps = (*bound)['T'];
  const int64_t batch = (*bound)['B'];
  const int64_t units = (*bound)['H'];
  // P is a symbol of ops with a projection alone.
  const int64_t width = HasInput(row, "w_p") ? (*bound)['P'] : units;
  const int64_t state = has_cell_state ? width : 0;
  int64_t size = 0;
  if (recompute != 0) {
    for (int64_t dim : {steps, batch, units, state}) {
      if (dim == kUnknown) return absl::OkStatus();
    }
    const int64_t span = SpanSteps(recompute, steps);
    const int64_t spans = steps / span + (steps % span > 0 ? 1 : 0);
    // In the compute type, float for 16-bit types.
    const int64_t elements = std::max<int64_t>(4 / element_bytes, 1);
    int64_t values;
    if (__builtin_add_overflow(units, state, &values) ||
        __builtin_mul_overflow(values, batch, &values) ||
        __builtin_mul_overflow(values, elements, &values) ||
        __builtin_mul_overflow(values, std::max<int64_t>(spans - 1, 0),
                               &size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          contract.op(), ": the size of span_states with T = ", steps,
          ", B = ", batch, ", H = ", units, " overflows int64"));
    }
  }
  int64_t& bound_size = (*bound)[kSpanStatesSymbol];
  if (bound_size != kUnknown && bound_size != size) {
    return absl::InvalidArgumentError(
        absl::StrCat(contract.op(), ": span_states must have shape [N] = [",
                     size, "], got [", bound_size, "]"));
  }
  bound_size = size;
  return absl::OkStatus();
}

absl::Status InferShapes(const OpContract& contract, InferenceContext* c) {
  Bindings bound;
  const auto* const recompute = c->GetAttr("recompute");
  const auto* const is_training = c->GetAttr("is_training");
  const bool trains = is_training == nullptr || is_training->b();
  const int64_t spans = recompute == nullptr || !trains ? 0 : recompute->i();
  bound[kSavedSymbol] = trains && spans == 0 ? 1 : 0;
  TF_RETURN_IF_ERROR(CheckNumbers(contract, c));
  TF_RETURN_IF_ERROR(CheckStaticShapes(contract, c, &bound));
  if (recompute != nullptr) {
    const int bytes = tensorflow::DataTypeSize(c->GetAttr("T")->type());
    TF_RETURN_IF_ERROR(BindSpanStates(contract, spans, bytes, &bound));
  }
  return InferOutputs(contract, c, bound);
}

absl::Status CheckStaticShapes(const OpContract& contract, InferenceContext* c,
                               Bindings* bound) {
  int alternative;
  TF_RETURN_IF_ERROR(GetAlternative(contract, c, &alternative));
  return contract.Check(StaticShapes(c), alternative, bound);
}

absl::Status InferOutputs(const OpContract& contract, InferenceContext* c,
                          const Bindings& bound) {
  int alternative;
  TF_RETURN_IF_ERROR(GetAlternative(contract, c, &alternative));
  for (int i = 0; i < c->num_outputs(); ++i) {
    const ArgumentPattern& output = contract.outputs()[i];
    const ShapePattern* shape = &output.shape(alternative);
    bool unknown = false;
    if (shape->same_as >= 0) {
      const ShapeHandle input = c->input(shape->same_as);
      if (c->RankKnown(input)) {
        c->set_output(i, input);
        continue;
      }
      const ArgumentPattern& same = contract.inputs()[shape->same_as];
      shape = &same.shape(alternative);
      unknown = same.optional;
    }
    if (shape->any || unknown) {
      c->set_output(i, c->UnknownShape());
      continue;
    }
    std::vector<DimensionHandle> dims;
    for (const DimPattern& pattern : shape->dims) {
      int64_t value = kUnknown;
      TF_RETURN_IF_ERROR(
          contract.OutputDim(output, alternative, pattern, bound, &value));
      dims.push_back(value == kUnknown
                         ? UnknownLike(contract, alternative, pattern, c)
                         : c->MakeDim(value));
    }
    c->set_output(i, c->MakeShape(dims));
  }
  return absl::OkStatus();
}

}  // namespace blockrnn
