// Defines the docs of the cuDNN RNN family: summaries and equations.

#ifndef BLOCKRNN_OPS_CUDNN_RNN_DOCS_H_
#define BLOCKRNN_OPS_CUDNN_RNN_DOCS_H_

#include "cc/ops/op_docs.h"

namespace blockrnn {

inline constexpr char kStackDoc[] =
    R"doc(Computes a stack of recurrent layers as cuDNN does.

T is the number of steps, B of rows, I of inputs, H of units, L of layers, D of
directions (1 or 2). A state has P elements, num_proj with a projection, else H.
`∘` is elementwise, σ the logistic function; c and h on the right are those of
the previous step:

    lstm       i = σ(W_i x + bW_i + R_i h + bR_i), so f, o; g with tanh for σ
               c = f ∘ c + i ∘ g      h = o ∘ tanh(c), or proj · (o ∘ tanh(c))
    gru        r = σ(W_r x + bW_r + R_r h + bR_r), so u
               h̃ = tanh(W_h x + bW_h + r ∘ (R_h h + bR_h))
               h = (1 − u) ∘ h̃ + u ∘ h
    rnn_relu   h = max(0, W x + bW + R h + bR)
    rnn_tanh   h = tanh(W x + bW + R h + bR)

The output of a layer is h of the forward direction beside h of the backward
one, and the input of the next layer. Without lstm, input_c is ignored, whatever
its shape, and output_c is a scalar 0.
)doc";

inline constexpr char kLengthsDoc[] =
    R"doc(A row ends at its length in sequence_lengths. From there on output is 0; the final
state is that of the row's last step, and the backward direction begins at that
step. A row of length 0 keeps its initial state.
)doc";

inline constexpr char kParamsDoc[] =
    R"doc(params are flat. For each layer and direction they have the matrices W of the
gates, then R, then the projection, where there is one; after those of all
layers, for each layer and direction the biases bW of the gates, then bR. A
layer's forward direction comes before its backward one. The gate order is i, f,
g, o for lstm, and r, u, h̃ for gru. A matrix is row-major; W is [H, I] in layer 0
(and left out with skip_input) and [H, D·P] above it, R is [H, P], the
projection is [P, H].
)doc";

inline constexpr char kReserveDoc[] =
    R"doc(Between layers, with is_training, dropout sets that share of the elements to 0 and
divides the others by 1 − dropout. The mask is drawn with Philox from seed and
seed2, anew in each call; if both are 0, the seeds differ from run to run.

reserve_space begins with a header that identifies its call, which the backprop
op compares: the reserve space of another call, or of a GPU, is an error there.
On a GPU only another size is one; the header is compared there without waiting
for it, and the gradients are NaN if it is that of another op's call. Its size in
bytes, each term rounded up to 64, is

    128 + L·D·k·(N·H·e) + (L−1)·(T·B·D·P·e) + (L−1)·(T·B·D·P/8, with dropout)

where k is 5 for lstm, 4 for gru and 0 for rnn, N the sum of the rows' lengths and
e the bytes of an element.
)doc";

inline constexpr char kStackGradDoc[] =
    R"doc(The forward call must have had is_training and the same attrs. The gradients from
a row's length on are 0. Without lstm, output_c_backprop is ignored, and
input_c_backprop is zeros.
)doc";

inline constexpr char kCanonicalDoc[] =
    R"doc(For each layer and direction, weights has the gates' W, then their R, 8 in all for
lstm, 6 for gru and 2 for rnn_relu and rnn_tanh, then the projection, if there is
one; biases has as many, the gates' bW, then their bR. PyTorch's weight_ih_l0 is
the W of layer 0 below one another, weight_hh_l0 the R, and bias_ih_l0 the bW.
dropout, seed and seed2 are not used.
)doc";

inline constexpr OpDoc kCudnnRnnDocs[] = {
    {"CudnnRNN", {kStackDoc, kParamsDoc, kReserveDoc}},
    {"CudnnRNNV3", {kStackDoc, kLengthsDoc, kParamsDoc, kReserveDoc}},
    {"CudnnRNNBackprop", {kStackGradDoc}},
    {"CudnnRNNParamsSize",
     {"Computes params_size, the number of elements of a CudnnRNN's params.\n",
      kParamsDoc,
      "The number does not depend on T. dropout, seed and seed2 are not "
      "used.\n"}},
    {"CudnnRNNParamsToCanonical",
     {"Splits the params of a CudnnRNN into matrices and biases.\n", kParamsDoc,
      kCanonicalDoc}},
    {"CudnnRNNCanonicalToParams",
     {"Joins matrices and biases to the params of a CudnnRNN.\n", kParamsDoc,
      kCanonicalDoc}},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CUDNN_RNN_DOCS_H_
