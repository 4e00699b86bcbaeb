// Owns what the helps of the cuDNN RNN family have in common.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_DOCS_H_
#define BLOCKRNN_OPS_CUDNN_RNN_DOCS_H_

#include <string>

namespace blockrnn {

// The attrs that all ops of the family have, in TensorFlow's words.
inline constexpr char kModeAttr[] =
    "rnn_mode: {'rnn_relu', 'rnn_tanh', 'lstm', 'gru'} = 'lstm'";
inline constexpr char kInputModeAttr[] =
    "input_mode: {'linear_input', 'skip_input', 'auto_select'} = "
    "'linear_input'";
inline constexpr char kDirectionAttr[] =
    "direction: {'unidirectional', 'bidirectional'} = 'unidirectional'";

inline constexpr char kParamsDoc[] = R"doc(
params are flat. For each layer and direction they have the matrices W of the
gates, then R, then the projection, where there is one; after those of all layers,
for each layer and direction the biases bW of the gates, then bR. A layer's
forward direction comes before its backward one. Gate order: lstm i, f, g, o; gru
r, u, h̃. A matrix is row-major: W is [H, I] in layer 0 (and not there with
skip_input) and [H, D·P] above it, R is [H, P], the projection is [P, H].
)doc";

inline constexpr char kSharedAttrsDoc[] = R"doc(
rnn_mode: The cell of all layers.
input_mode: Whether layer 0 has matrices for its input (`linear_input`) or adds
  it to the gates as it is (`skip_input`, for I = H); `auto_select` skips where
  I = H.
direction: Whether each layer has a backward direction beside the forward one.
)doc";

// A text whose first line is empty, without it.
inline const char* Trimmed(const char* text) { return text + (*text == '\n'); }

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CUDNN_RNN_DOCS_H_
