// Defines the docs of the simple RNN's ops: summaries and equations.

#ifndef BLOCKRNN_OPS_SIMPLE_RNN_DOCS_H_
#define BLOCKRNN_OPS_SIMPLE_RNN_DOCS_H_

#include "cc/ops/op_docs.h"
#include "cc/ops/shared_docs.h"

namespace blockrnn {

inline constexpr OpDoc kSimpleRnnDocs[] = {
    {"RNNSequence",
     {"Computes a simple RNN over sequences, each row with its own length or "
      "mask.\n",
      R"doc(T is the number of steps, B of rows, I of inputs, H of units; h_prev is the state
before the step:

    h = act(x · w_x + h_prev · w_h + b)

act is tanh, as in Elman 1990 (https://doi.org/10.1207/s15516709cog1402_1), or
relu, max(0, ·).
)doc",
      kRecurrentDropoutDoc, kSkippedStepsDoc,
      R"doc(A sequence, batch, input or state of size 0 is allowed. half and bfloat16 are
computed in float32, from states that are rounded.
)doc"}},
    {"RNNSequenceGrad",
     {"Computes the gradient of RNNSequence, given those of h and h_last.\n",
      R"doc(From the last step done to the first; d_h is the incoming gradient of the step
plus h_prev_grad of the next step:

    d_h̄ = d_h ∘ (1 − h∘h) for tanh,  d_h where h > 0, else 0, for relu
    x_grad = d_h̄ · w_xᵀ
    h_prev_grad = d_h̄ · w_hᵀ
)doc",
      kMaskedGradDoc}},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_SIMPLE_RNN_DOCS_H_
