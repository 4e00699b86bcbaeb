// Owns the signatures, contracts and docs of GRUBlockCell and GRUBlockCellGrad.

#include "cc/ops/op_contract.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

const OpContract& kGruBlockCell = RegisterContract({
    "BlockRNN>GRUBlockCell",
    "x[B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] b_c[H]",
    "r[B,H] u[B,H] c[B,H] h[B,H]",
});

const OpContract& kGruBlockCellGrad = RegisterContract({
    "BlockRNN>GRUBlockCellGrad",
    "x[B,I] h_prev[B,H] w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] b_c[H] "
    "r[B,H] u[B,H] c[B,H] d_h[B,H]",
    "d_x[B,I] d_h_prev[B,H] d_c_bar[B,H] d_r_bar_u_bar[B,2H]",
});

REGISTER_OP("BlockRNN>GRUBlockCell")
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
      return InferShapes(kGruBlockCell, ctx);
    })
    .Doc(R"doc(
Computes one step of a GRU whose reset gate acts before the product.

With B rows, I inputs and H units, `∘` elementwise, σ the logistic function and
`[a, b]` columns side by side:

    [r̄ ū] = [x, h_prev] · w_ru + b_ru        r = σ(r̄)   u = σ(ū)
    c      = tanh([x, h_prev ∘ r] · w_c + b_c)
    h      = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of Cho et al. 2014 (arXiv:1406.1078). It differs from the one of
cuDNN and of Keras with `reset_after=True`, where the reset gate acts after the
product. half and bfloat16 are computed in float32.

The signature is that of TensorFlow's op of the same name, for more types.
A batch, input or state of size 0 is allowed.

x: The input, `[B, I]`.
h_prev: The state before this step, `[B, H]`.
w_ru: Weights of the reset and the update gate, `[I+H, 2H]`. Rows: those of x,
  then those of h_prev. Columns: r, then u.
w_c: Weights of the candidate, `[I+H, H]`. Rows as in w_ru.
b_ru: Biases of the reset and the update gate, `[2H]`.
b_c: Bias of the candidate, `[H]`.
r: The reset gate, `[B, H]`.
u: The update gate, `[B, H]`.
c: The candidate, `[B, H]`.
h: The state after this step, `[B, H]`.
)doc");

REGISTER_OP("BlockRNN>GRUBlockCellGrad")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("w_ru: T")
    .Input("w_c: T")
    .Input("b_ru: T")
    .Input("b_c: T")
    .Input("r: T")
    .Input("u: T")
    .Input("c: T")
    .Input("d_h: T")
    .Output("d_x: T")
    .Output("d_h_prev: T")
    .Output("d_c_bar: T")
    .Output("d_r_bar_u_bar: T")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kGruBlockCellGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of one GRUBlockCell step, given that of its state.

A bar marks a pre-activation. The cotangents of r, u and c are taken as zero.

    d_c_bar = d_h ∘ (1 − u) ∘ (1 − c∘c)
    d_u_bar = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
    [dx₂, d_hr] = d_c_bar · w_cᵀ
    d_r_bar = d_hr ∘ h_prev ∘ r ∘ (1 − r)
    [dx₁, dh₁] = [d_r_bar d_u_bar] · w_ruᵀ
    d_x = dx₁ + dx₂
    d_h_prev = dh₁ + d_hr ∘ r + d_h ∘ u

The gradients of the weights and biases follow from the outputs:

    d_w_ru = [x, h_prev]ᵀ · d_r_bar_u_bar         d_b_ru = Σ_batch d_r_bar_u_bar
    d_w_c  = [x, h_prev ∘ r]ᵀ · d_c_bar           d_b_c  = Σ_batch d_c_bar

x: The input of the step, `[B, I]`.
h_prev: The state before the step, `[B, H]`.
w_ru: Weights of the gates r, u, `[I+H, 2H]`.
w_c: Weights of the candidate, `[I+H, H]`.
b_ru: Biases of the gates r, u, `[2H]`.
b_c: Bias of the candidate, `[H]`.
r: The reset gate that the step gave, `[B, H]`.
u: The update gate that the step gave, `[B, H]`.
c: The candidate that the step gave, `[B, H]`.
d_h: The gradient of the state after the step, `[B, H]`.
d_x: The gradient of x, `[B, I]`.
d_h_prev: The gradient of h_prev, `[B, H]`.
d_c_bar: The gradient of the candidate's pre-activation, `[B, H]`.
d_r_bar_u_bar: The gradients of the gates' pre-activations, r then u, `[B, 2H]`.
)doc");

}  // namespace
}  // namespace blockrnn
