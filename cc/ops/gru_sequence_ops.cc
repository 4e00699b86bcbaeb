// Owns the signatures, contracts and docs of GRUSequence, GRUAfterSequence and
// their gradients.

#include <string>

#include "absl/status/status.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/sequence_attrs.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

// Both matrices of the input, or none. They stand at these places in both ops.
absl::Status CheckInputWeights(const std::string& op, const InputShapes& shapes,
                               const Bindings&) {
  constexpr int kWRuX = 2;
  constexpr int kWCX = 4;
  if (shapes.rank(kWRuX) == kUnknown || shapes.rank(kWCX) == kUnknown) {
    return absl::OkStatus();
  }
  const bool left_out = shapes.rank(kWRuX) == 1;
  if (left_out == (shapes.rank(kWCX) == 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      op + ": w_ru_x and w_c_x must be left out together, got [0] for " +
      (left_out ? "w_ru_x" : "w_c_x") + " alone");
}

// In front of the number of steps of what is saved for the backward, K stands
// for is_training: 1 or 0.
const OpContract& kGruSequence = RegisterContract({
    "BlockRNN>GRUSequence",
    "x[T,B,I|B,T,I] h_prev[B,H] w_ru_x[I,2H]?I=3H w_ru_h[H,2H] "
    "w_c_x[I,H]?I=3H w_c_h[H,H] b_ru[2H] b_c[H] mask[T,B|B,T]? "
    "sequence_lengths[B]? recurrent_dropout[3,B,H]?",
    "h[T,B,H|B,T,H] h_last[B,H] r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] "
    "c[K*T,B,H|B,K*T,H]",
    "time_major",
    &CheckInputWeights,
});

const OpContract& kGruSequenceGrad = RegisterContract({
    "BlockRNN>GRUSequenceGrad",
    "x[T,B,I|B,T,I] h_prev[B,H] w_ru_x[I,2H]?I=3H w_ru_h[H,2H] "
    "w_c_x[I,H]?I=3H w_c_h[H,H] mask[T,B|B,T]? sequence_lengths[B]? "
    "h[T,B,H|B,T,H] r[T,B,H|B,T,H] u[T,B,H|B,T,H] c[T,B,H|B,T,H] "
    "h_grad[T,B,H|B,T,H]? h_last_grad[B,H]? recurrent_dropout[3,B,H]?",
    "x_grad=x h_prev_grad[B,H] w_ru_x_grad=w_ru_x w_ru_h_grad[H,2H] "
    "w_c_x_grad=w_c_x w_c_h_grad[H,H] b_ru_grad[2H] b_c_grad[H]",
    "time_major",
    &CheckInputWeights,
});

const OpContract& kGruAfterSequence = RegisterContract({
    "BlockRNN>GRUAfterSequence",
    "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,3H]?I=3H w_h[H,3H] b_x[3H] b_h[3H] "
    "mask[T,B|B,T]? sequence_lengths[B]? recurrent_dropout[3,B,H]?",
    "h[T,B,H|B,T,H] h_last[B,H] r[K*T,B,H|B,K*T,H] u[K*T,B,H|B,K*T,H] "
    "c[K*T,B,H|B,K*T,H] hc[K*T,B,H|B,K*T,H]",
    "time_major",
});

const OpContract& kGruAfterSequenceGrad = RegisterContract({
    "BlockRNN>GRUAfterSequenceGrad",
    "x[T,B,I|B,T,I] h_prev[B,H] w_x[I,3H]?I=3H w_h[H,3H] mask[T,B|B,T]? "
    "sequence_lengths[B]? h[T,B,H|B,T,H] r[T,B,H|B,T,H] u[T,B,H|B,T,H] "
    "c[T,B,H|B,T,H] hc[T,B,H|B,T,H] h_grad[T,B,H|B,T,H]? h_last_grad[B,H]? "
    "recurrent_dropout[3,B,H]?",
    "x_grad=x h_prev_grad[B,H] w_x_grad=w_x w_h_grad[H,3H] b_x_grad[3H] "
    "b_h_grad[3H]",
    "time_major",
});

REGISTER_OP("BlockRNN>GRUSequence")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_ru_x: T")
    .Input("w_ru_h: T")
    .Input("w_c_x: T")
    .Input("w_c_h: T")
    .Input("b_ru: T")
    .Input("b_c: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("recurrent_dropout: T")
    .Output("h: T")
    .Output("h_last: T")
    .Output("r: T")
    .Output("u: T")
    .Output("c: T")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("is_training: bool = true")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kGruSequence, ctx, Saved(ctx));
    })
    .Doc(R"doc(
Computes a GRU over whole sequences, each row with a length or mask of its own.

The reset gate acts before the product. With T steps, B rows, I inputs and H
units, `∘` elementwise and σ the logistic function; h_prev is the state before
the step, and `[a, b]` columns side by side:

    [r̄ ū] = x · w_ru_x + h_prev · w_ru_h + b_ru        r = σ(r̄)   u = σ(ū)
    c      = tanh(x · w_c_x + (h_prev ∘ r) · w_c_h + b_c)
    h      = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of Cho et al. 2014 (arXiv:1406.1078).

Recurrent dropout (Gal and Ghahramani 2016, arXiv:1512.05287) multiplies h_prev
by factors in its products with weights: those of gates r, u, c, the same at all
steps.

A step of a row is skipped where mask is false: it leaves the state as it is, h
repeats it, and the saved gates are zeros. At and past a row's length in
sequence_lengths there is no step: x is not read, all outputs are zeros, and no
time is spent. With go_backwards the last step is done first, with
sequence_lengths the last that the row has; every output stands where its input
stands, whatever the order.

A sequence, batch, input or state of size 0 is allowed. half and bfloat16 are
computed in float32.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, H]`.
w_ru_x: Weights of the input to the gates r, u, `[I, 2H]`; `[0]` if x is its
  products with w_ru_x and w_c_x, for r, u, c, whose I is 3H.
w_ru_h: Weights of the state to the gates r, u, `[H, 2H]`.
w_c_x: Weights of the input to the candidate, `[I, H]`; `[0]` with w_ru_x.
w_c_h: Weights of the state to the candidate, `[H, H]`.
b_ru: Biases of the gates r, u, `[2H]`.
b_c: Bias of the candidate, `[H]`.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
recurrent_dropout: Factors of the state before a step in its product with each
  gate's weights, in their order, `[3, B, H]`; `[0]` for none.
h: The state after each step, `[T, B, H]`, or `[B, T, H]` without
  time_major.
h_last: The state after the last step done, `[B, H]`.
r: The reset gate, as h.
u: The update gate, as h.
c: The candidate, as h.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
is_training: Whether to keep what the gradient needs; else those outputs have no
  steps.
Tlen: The type of sequence_lengths.
)doc");

REGISTER_OP("BlockRNN>GRUSequenceGrad")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_ru_x: T")
    .Input("w_ru_h: T")
    .Input("w_c_x: T")
    .Input("w_c_h: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("h: T")
    .Input("r: T")
    .Input("u: T")
    .Input("c: T")
    .Input("h_grad: T")
    .Input("h_last_grad: T")
    .Input("recurrent_dropout: T")
    .Output("x_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_ru_x_grad: T")
    .Output("w_ru_h_grad: T")
    .Output("w_c_x_grad: T")
    .Output("w_c_h_grad: T")
    .Output("b_ru_grad: T")
    .Output("b_c_grad: T")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kGruSequenceGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of GRUSequence, given those of h and h_last.

The equations are those of BlockGRUGrad, from the last step done to the first.
A skipped step hands the gradient of the state on as it is; past a row's length
x_grad is zeros.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, H]`.
w_ru_x: Weights of the input to the gates r, u, `[I, 2H]`; `[0]` if x is its
  products with w_ru_x and w_c_x, for r, u, c, whose I is 3H.
w_ru_h: Weights of the state to the gates r, u, `[H, 2H]`.
w_c_x: Weights of the input to the candidate, `[I, H]`; `[0]` with w_ru_x.
w_c_h: Weights of the state to the candidate, `[H, H]`.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
h: That of the forward op.
r: That of the forward op.
u: That of the forward op.
c: That of the forward op.
h_grad: The gradient of h, of its shape; `[0]` for zeros.
h_last_grad: The gradient of h_last, of its shape; `[0]` for zeros.
recurrent_dropout: Factors of the state before a step in its product with each
  gate's weights, in their order, `[3, B, H]`; `[0]` for none.
x_grad: The gradient of x, of its shape.
h_prev_grad: The gradient of h_prev, of its shape.
w_ru_x_grad: The gradient of w_ru_x, of its shape.
w_ru_h_grad: The gradient of w_ru_h, of its shape.
w_c_x_grad: The gradient of w_c_x, of its shape.
w_c_h_grad: The gradient of w_c_h, of its shape.
b_ru_grad: The gradient of b_ru, of its shape.
b_c_grad: The gradient of b_c, of its shape.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
Tlen: The type of sequence_lengths.
)doc");

REGISTER_OP("BlockRNN>GRUAfterSequence")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_x: T")
    .Input("w_h: T")
    .Input("b_x: T")
    .Input("b_h: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("recurrent_dropout: T")
    .Output("h: T")
    .Output("h_last: T")
    .Output("r: T")
    .Output("u: T")
    .Output("c: T")
    .Output("hc: T")
    .Attr("gate_order: {'ruc', 'urc'} = 'ruc'")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("is_training: bool = true")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kGruAfterSequence, ctx, Saved(ctx));
    })
    .Doc(R"doc(
Computes a GRU over whole sequences, each row with a length or mask of its own.

The reset gate acts after the product, as in cuDNN and in Keras with
`reset_after=True`. With T steps, B rows, I inputs and H units, `∘` elementwise
and σ the logistic function; h_prev is the state before the step:

    [r̄ ū c̄]   = x · w_x + b_x
    [r̂ û hc]   = h_prev · w_h + b_h
    r = σ(r̄ + r̂)      u = σ(ū + û)      c = tanh(c̄ + r ∘ hc)
    h = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of the first version of Cho et al. 2014 (arXiv:1406.1078v1).

Recurrent dropout (Gal and Ghahramani 2016, arXiv:1512.05287) multiplies h_prev
by factors in its product with w_h: those of each gate, the same at all steps.

A step of a row is skipped where mask is false: it leaves the state as it is, h
repeats it, and the saved gates are zeros. At and past a row's length in
sequence_lengths there is no step: x is not read, all outputs are zeros, and no
time is spent. With go_backwards the last step is done first, with
sequence_lengths the last that the row has; every output stands where its input
stands, whatever the order.

A sequence, batch, input or state of size 0 is allowed. half and bfloat16 are
computed in float32.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, H]`.
w_x: Weights of the input, `[I, 3H]`; columns r, u, c, or u, r, c by gate_order;
  `[0]` if x is x · w_x itself, whose I is 3H.
w_h: Weights of the state, `[H, 3H]`, in the order of w_x.
b_x: Biases beside the input's product, `[3H]`, in the order of w_x.
b_h: Biases beside the state's product, `[3H]`, in the order of w_x.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
recurrent_dropout: Factors of the state before a step in its product with each
  gate's weights, in their order, `[3, B, H]`; `[0]` for none.
h: The state after each step, `[T, B, H]`, or `[B, T, H]` without
  time_major.
h_last: The state after the last step done, `[B, H]`.
r: The reset gate, as h.
u: The update gate, as h.
c: The candidate, as h.
hc: What the reset gate acts on, h_prev · w_h,c + b_h,c, as h.
gate_order: The order of the gates in the weights and biases.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
is_training: Whether to keep what the gradient needs; else those outputs have no
  steps.
Tlen: The type of sequence_lengths.
)doc");

REGISTER_OP("BlockRNN>GRUAfterSequenceGrad")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_x: T")
    .Input("w_h: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("h: T")
    .Input("r: T")
    .Input("u: T")
    .Input("c: T")
    .Input("hc: T")
    .Input("h_grad: T")
    .Input("h_last_grad: T")
    .Input("recurrent_dropout: T")
    .Output("x_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_x_grad: T")
    .Output("w_h_grad: T")
    .Output("b_x_grad: T")
    .Output("b_h_grad: T")
    .Attr("gate_order: {'ruc', 'urc'} = 'ruc'")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kGruAfterSequenceGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of GRUAfterSequence, given those of h and h_last.

From the last step done to the first; a bar marks a pre-activation, and d_h is
what came in for the step plus h_prev_grad of the step after it.

    d_c̄ = d_h ∘ (1 − u) ∘ (1 − c∘c)
    d_ū = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
    d_r̄ = d_c̄ ∘ hc ∘ r ∘ (1 − r)
    x_grad = [d_r̄ d_ū d_c̄] · w_xᵀ
    h_prev_grad = [d_r̄ d_ū d_c̄∘r] · w_hᵀ + d_h ∘ u

A skipped step hands the gradient of the state on as it is; past a row's length
x_grad is zeros.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, H]`.
w_x: Weights of the input, `[I, 3H]`; columns r, u, c, or u, r, c by gate_order;
  `[0]` if x is x · w_x itself, whose I is 3H.
w_h: Weights of the state, `[H, 3H]`, in the order of w_x.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
h: That of the forward op.
r: That of the forward op.
u: That of the forward op.
c: That of the forward op.
hc: That of the forward op.
h_grad: The gradient of h, of its shape; `[0]` for zeros.
h_last_grad: The gradient of h_last, of its shape; `[0]` for zeros.
recurrent_dropout: Factors of the state before a step in its product with each
  gate's weights, in their order, `[3, B, H]`; `[0]` for none.
x_grad: The gradient of x, of its shape.
h_prev_grad: The gradient of h_prev, of its shape.
w_x_grad: The gradient of w_x, of its shape.
w_h_grad: The gradient of w_h, of its shape.
b_x_grad: The gradient of b_x, of its shape.
b_h_grad: The gradient of b_h, of its shape.
gate_order: The order of the gates in the weights and biases.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
Tlen: The type of sequence_lengths.
)doc");

}  // namespace
}  // namespace blockrnn
