// Declares the rules and shape functions of the rows of the op table, and the
// size of span_states.

#ifndef BLOCKRNN_OPS_CONTRACT_RULES_H_
#define BLOCKRNN_OPS_CONTRACT_RULES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cc/ops/op_spec.h"
#include "tensorflow/core/framework/types.h"

namespace blockrnn {

// To an engine, P > 0 means a projection.
absl::Status CheckProjection(const OpContract& contract,
                             const InputShapes& shapes, const Bindings& bound);

// The attrs of our own ops that are numbers. They hold decimal text: TensorFlow
// has attrs of float32, but none of float64 (docs/adr/0034-exact-scalars.md).
enum class NumberRange {
  kAny,
  kRate,      // 0..1
  kPositive,  // finite and above 0, in the type of the op's tensors
};
struct NumberAttr {
  std::string_view name;
  NumberRange range;
};
inline constexpr NumberAttr kNumberAttrs[] = {
    {"zoneout_rate_h", NumberRange::kRate},
    {"zoneout_rate_c", NumberRange::kRate},
    {"epsilon", NumberRange::kPositive},
    {"forget_bias", NumberRange::kAny},
    {"cell_clip", NumberRange::kAny},
};
constexpr const NumberAttr& NumberAttrOf(std::string_view name) {
  for (const NumberAttr& attr : kNumberAttrs) {
    if (attr.name == name) return attr;
  }
  NoSuchName(name);
}

// The number that the text of such an attr is, correctly rounded to double, and
// from there to float unless `type`, that of the op's tensors, is double.
// Refuses numbers outside their range, and text other than decimal numbers,
// "inf", "-inf" and "nan".
absl::Status ParseNumber(const std::string& op, const NumberAttr& attr,
                         std::string_view text, tensorflow::DataType type,
                         double* number);

// The symbol of the size of span_states, the states that an op saves for
// backward with the attr recompute: those before each span of steps but the
// first.
inline constexpr char kSpanStatesSymbol = 'N';

// The least number of steps of a span by the attr: as many as it says, or half
// the square root of the number of steps where it is -1. What is saved for a
// span while it is computed again and what is saved before all spans take about
// the same memory then, for cells with four or five saved arrays.
int64_t SpanSteps(int64_t recompute, int64_t steps);

// Binds N where all that it depends on is known, 0 without recompute, or checks
// the size of the span_states that an op takes.
absl::Status BindSpanStates(const OpContract& contract, int64_t recompute,
                            int64_t element_bytes, Bindings* bound);

// The shape function of rows that name none. Checks the inputs' static shapes
// as far as they are known, and infers the outputs' from them.
absl::Status InferShapes(const OpContract& contract,
                         tensorflow::shape_inference::InferenceContext* c);

// The two halves of it, for ops that check more than their contract. bound:
// symbols that follow from attrs.
absl::Status CheckStaticShapes(const OpContract& contract,
                               tensorflow::shape_inference::InferenceContext* c,
                               Bindings* bound);
absl::Status InferOutputs(const OpContract& contract,
                          tensorflow::shape_inference::InferenceContext* c,
                          const Bindings& bound);

// Of CudnnRNN and CudnnRNNBackprop in all versions.
absl::Status CudnnRnnShapes(const OpContract& contract,
                            tensorflow::shape_inference::InferenceContext* c);
absl::Status ParamsSizeShapes(const OpContract& contract,
                              tensorflow::shape_inference::InferenceContext* c);
absl::Status ToCanonicalShapes(
    const OpContract& contract,
    tensorflow::shape_inference::InferenceContext* c);
absl::Status FromCanonicalShapes(
    const OpContract& contract,
    tensorflow::shape_inference::InferenceContext* c);

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CONTRACT_RULES_H_
