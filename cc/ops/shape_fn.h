// Declares the derivation of an op's shape function from its contract.

#ifndef BLOCKRNN_OPS_SHAPE_FN_H_
#define BLOCKRNN_OPS_SHAPE_FN_H_

#include "absl/status/status.h"
#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace blockrnn {

// Checks the inputs' static shapes as far as they are known, and infers the
// outputs' from them.
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

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_SHAPE_FN_H_
