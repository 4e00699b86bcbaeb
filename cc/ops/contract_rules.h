// Declares the rules and shape functions that rows of the op table refer to in
// addition to their contract.

#ifndef BLOCKRNN_OPS_CONTRACT_RULES_H_
#define BLOCKRNN_OPS_CONTRACT_RULES_H_

#include <string>

#include "absl/status/status.h"
#include "cc/ops/op_spec.h"

namespace blockrnn {

// To an engine, P > 0 means a projection. w_p: the index of that input.
absl::Status CheckProjection(const OpContract& contract,
                             const InputShapes& shapes, const Bindings& bound,
                             int w_p);

template <int kWP>
absl::Status ProjectionAt(const OpContract& contract, const InputShapes& shapes,
                          const Bindings& bound) {
  return CheckProjection(contract, shapes, bound, kWP);
}

// The two matrices of the input are left out both or not at all.
absl::Status CheckLeftOutTogether(const OpContract& contract,
                                  const InputShapes& shapes, int first,
                                  int second);

template <int kFirst, int kSecond>
absl::Status LeftOutTogether(const OpContract& contract,
                             const InputShapes& shapes, const Bindings&) {
  return CheckLeftOutTogether(contract, shapes, kFirst, kSecond);
}

// Of ops with layer normalisation: a finite number above 0.
absl::Status CheckEpsilon(const std::string& op, float epsilon);

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
