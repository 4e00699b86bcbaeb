// Owns the signatures, contracts and docs of RNNSequence and RNNSequenceGrad.

#include "cc/ops/op_contract.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

const OpContract& kRnnSequence = RegisterContract({
    "BlockRNN>RNNSequence",
    "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,H]?I=H w_h[H,H] b[H] mask[T,B|B,T]? "
    "sequence_lengths[B]? recurrent_dropout[1,B,H]?",
    "h[T,B,H|B,T,H] h_last[B,H]",
    "time_major",
});

const OpContract& kRnnSequenceGrad = RegisterContract({
    "BlockRNN>RNNSequenceGrad",
    "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,H]?I=H w_h[H,H] mask[T,B|B,T]? "
    "sequence_lengths[B]? h[T,B,H|B,T,H] h_grad[T,B,H|B,T,H]? "
    "h_last_grad[B,H]? recurrent_dropout[1,B,H]?",
    "x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,H] b_grad[H]",
    "time_major",
});

REGISTER_OP("BlockRNN>RNNSequence")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_x: T")
    .Input("w_h: T")
    .Input("b: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("recurrent_dropout: T")
    .Output("h: T")
    .Output("h_last: T")
    .Attr("activation: {'tanh', 'relu'} = 'tanh'")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kRnnSequence, ctx);
    })
    .Doc(R"doc(
Computes a simple RNN over whole sequences, each row with a length or mask.

With T steps, B rows, I inputs and H units; h_prev is the state before the step:

    h = act(x · w_x + h_prev · w_h + b)

act is tanh, as in Elman 1990 (https://doi.org/10.1207/s15516709cog1402_1), or
relu, max(0, ·).

Recurrent dropout (Gal and Ghahramani 2016, arXiv:1512.05287) multiplies h_prev
by factors in its product with w_h, the same at all steps.

A step of a row is skipped where mask is false: it leaves the state as it is,
and h repeats it. Nothing is done at and past a row's length in
sequence_lengths; x is not read, all outputs are zeros, and no time is spent.
With go_backwards the last step is done first, with sequence_lengths the last
that the row has; every output stands where its input stands, whatever the
order.

A sequence, batch, input or state of size 0 is allowed. half and bfloat16 are
computed in float32, from states that are rounded.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, H]`.
w_x: Weights of the input, `[I, H]`; `[0]` if x is x · w_x itself, whose I is H.
w_h: Weights of the state, `[H, H]`.
b: Biases, `[H]`.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
recurrent_dropout: Factors of the state before a step in its product with w_h,
  `[1, B, H]`; `[0]` for none.
h: The state after each step, `[T, B, H]`, or `[B, T, H]` without
  time_major.
h_last: The state after the last step done, `[B, H]`.
activation: What act is.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
Tlen: The type of sequence_lengths.
)doc");

REGISTER_OP("BlockRNN>RNNSequenceGrad")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_x: T")
    .Input("w_h: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("h: T")
    .Input("h_grad: T")
    .Input("h_last_grad: T")
    .Input("recurrent_dropout: T")
    .Output("x_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_x_grad: T")
    .Output("w_h_grad: T")
    .Output("b_grad: T")
    .Attr("activation: {'tanh', 'relu'} = 'tanh'")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kRnnSequenceGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of RNNSequence, given those of h and h_last.

From the last step done to the first; d_h is what came in for the step plus
h_prev_grad of the step after it:

    d_h̄ = d_h ∘ (1 − h∘h) for tanh,  d_h where h > 0, else 0, for relu
    x_grad = d_h̄ · w_xᵀ
    h_prev_grad = d_h̄ · w_hᵀ

A skipped step hands the gradient of the state on as it is; past a row's length
x_grad is zeros.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, H]`.
w_x: Weights of the input, `[I, H]`; `[0]` if x is x · w_x itself, whose I is H.
w_h: Weights of the state, `[H, H]`.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
h: That of the forward op.
h_grad: The gradient of h, of its shape; `[0]` for zeros.
h_last_grad: The gradient of h_last, of its shape; `[0]` for zeros.
recurrent_dropout: Factors of the state before a step in its product with w_h,
  `[1, B, H]`; `[0]` for none.
x_grad: The gradient of x, of its shape.
h_prev_grad: The gradient of h_prev, of its shape.
w_x_grad: The gradient of w_x, of its shape.
w_h_grad: The gradient of w_h, of its shape.
b_grad: The gradient of b, of its shape.
activation: What act is.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
Tlen: The type of sequence_lengths.
)doc");

}  // namespace
}  // namespace blockrnn
