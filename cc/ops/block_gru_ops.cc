// Owns the signatures, contracts and docs of BlockGRU and BlockGRUGrad.

#include "cc/ops/op_contract.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

const OpContract& kBlockGru = RegisterContract({
    "BlockRNN>BlockGRU",
    "seq_len_max[] x[T,B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] "
    "b_c[H]",
    "r[T,B,H] u[T,B,H] c[T,B,H] h[T,B,H]",
});

const OpContract& kBlockGruGrad = RegisterContract({
    "BlockRNN>BlockGRUGrad",
    "seq_len_max[] x[T,B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] "
    "b_c[H] r[T,B,H] u[T,B,H] c[T,B,H] h[T,B,H] h_grad[T,B,H]",
    "x_grad[T,B,I] h_prev_grad[B,H] w_ru_grad[I+H,2H] w_c_grad[I+H,H] "
    "b_ru_grad[2H] b_c_grad[H]",
});

REGISTER_OP("BlockRNN>BlockGRU")
    .Input("seq_len_max: int64")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_ru: T")
    .Input("w_c: T")
    .Input("b_ru: T")
    .Input("b_c: T")
    .Output("r: T")
    .Output("u: T")
    .Output("c: T")
    .Output("h: T")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kBlockGru, ctx);
    })
    .Doc(R"doc(
Computes a GRU whose reset gate acts before the product, over a whole sequence.

With T steps, B rows, I inputs and H units, `∘` elementwise, σ the logistic
function and `[a, b]` columns side by side; h_prev is the state before the step:

    [r̄ ū] = [x, h_prev] · w_ru + b_ru        r = σ(r̄)   u = σ(ū)
    c      = tanh([x, h_prev ∘ r] · w_c + b_c)
    h      = u ∘ h_prev + (1 − u) ∘ c

Steps at and past seq_len_max are not computed; all outputs are zeros there.

This is the GRU of Cho et al. 2014 (arXiv:1406.1078), GRUBlockCell step after
step. It differs from the one of cuDNN and of Keras with `reset_after=True`,
where the reset gate acts after the product. half and bfloat16 are computed in
float32. A sequence, batch, input or state of size 0 is allowed.

seq_len_max: How many steps count, 0..T; an int64 scalar.
x: The input, `[T, B, I]`.
h_prev: The state before the first step, `[B, H]`.
w_ru: Weights of the reset and the update gate, `[I+H, 2H]`. Rows: those of x,
  then those of h_prev. Columns: r, then u.
w_c: Weights of the candidate, `[I+H, H]`. Rows as in w_ru.
b_ru: Biases of the reset and the update gate, `[2H]`.
b_c: Bias of the candidate, `[H]`.
r: The reset gate, `[T, B, H]`.
u: The update gate, `[T, B, H]`.
c: The candidate, `[T, B, H]`.
h: The state after each step, `[T, B, H]`.
)doc");

REGISTER_OP("BlockRNN>BlockGRUGrad")
    .Input("seq_len_max: int64")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_ru: T")
    .Input("w_c: T")
    .Input("b_ru: T")
    .Input("b_c: T")
    .Input("r: T")
    .Input("u: T")
    .Input("c: T")
    .Input("h: T")
    .Input("h_grad: T")
    .Output("x_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_ru_grad: T")
    .Output("w_c_grad: T")
    .Output("b_ru_grad: T")
    .Output("b_c_grad: T")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kBlockGruGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of BlockGRU, given that of h.

From the last step that counts to the first; a bar marks a pre-activation. d_h
is what came in for the step, plus h_prev_grad of the step after it. The
cotangents of r, u and c are taken as zero.

    d_c_bar = d_h ∘ (1 − u) ∘ (1 − c∘c)
    d_u_bar = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
    [dx₂, d_hr] = d_c_bar · w_cᵀ
    d_r_bar = d_hr ∘ h_prev ∘ r ∘ (1 − r)
    [dx₁, dh₁] = [d_r_bar d_u_bar] · w_ruᵀ
    x_grad = dx₁ + dx₂
    h_prev_grad = dh₁ + d_hr ∘ r + d_h ∘ u

Summed over steps and rows:

    w_ru_grad = Σ [x, h_prev]ᵀ · [d_r_bar d_u_bar]
    w_c_grad  = Σ [x, h_prev ∘ r]ᵀ · d_c_bar
    b_ru_grad = Σ [d_r_bar d_u_bar]            b_c_grad = Σ d_c_bar

Of steps at and past seq_len_max nothing is read, and x_grad is zeros there.

seq_len_max: How many steps count, 0..T; an int64 scalar.
x: The input, `[T, B, I]`.
h_prev: The state before the first step, `[B, H]`.
w_ru: Weights of the reset and the update gate, `[I+H, 2H]`. Rows: those of x,
  then those of h_prev. Columns: r, then u.
w_c: Weights of the candidate, `[I+H, H]`. Rows as in w_ru.
b_ru: Biases of the reset and the update gate, `[2H]`.
b_c: Bias of the candidate, `[H]`.
r: The reset gate that BlockGRU gave, `[T, B, H]`.
u: The update gate that BlockGRU gave, `[T, B, H]`.
c: The candidate that BlockGRU gave, `[T, B, H]`.
h: The state after each step that BlockGRU gave, `[T, B, H]`.
h_grad: The gradient of h, `[T, B, H]`.
x_grad: The gradient of x, `[T, B, I]`.
h_prev_grad: The gradient of h_prev, `[B, H]`.
w_ru_grad: The gradient of w_ru, `[I+H, 2H]`.
w_c_grad: The gradient of w_c, `[I+H, H]`.
b_ru_grad: The gradient of b_ru, `[2H]`.
b_c_grad: The gradient of b_c, `[H]`.
)doc");

}  // namespace
}  // namespace blockrnn
