// Owns the attrs of whole sequences that shapes depend on.

#ifndef BLOCKRNN_OPS_SEQUENCE_ATTRS_H_
#define BLOCKRNN_OPS_SEQUENCE_ATTRS_H_

#include "cc/ops/op_contract.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace blockrnn {

// K of a contract is 1 with is_training, else 0.
inline constexpr char kSavedSymbol = 'K';

inline Bindings BoundByIsTraining(bool is_training) {
  Bindings bound;
  bound[kSavedSymbol] = is_training ? 1 : 0;
  return bound;
}

inline Bindings Saved(tensorflow::shape_inference::InferenceContext* ctx) {
  bool is_training = true;
  // There is such an attr: TensorFlow has checked the node against the op.
  ctx->GetAttr("is_training", &is_training).IgnoreError();
  return BoundByIsTraining(is_training);
}

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_SEQUENCE_ATTRS_H_
