// Owns the signatures, contracts and docs of LSTMSequence and LSTMSequenceGrad.

#include <string>

#include "absl/status/status.h"
#include "cc/ops/op_contract.h"
#include "cc/ops/sequence_attrs.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

// An engine knows a projection by a P above 0.
template <int kWP>
absl::Status CheckProjection(const std::string& op, const InputShapes& shapes,
                             const Bindings& bound) {
  if (shapes.rank(kWP) != 2 || bound['P'] != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      op + ": w_p must have shape [P, H] with P above 0, got [0, " +
      DimText(bound['H']) + "]");
}

// In front of the number of steps of what is saved for the backward, K stands
// for is_training: 1 or 0.
const OpContract& kLstmSequence = RegisterContract({
    "BlockRNN>LSTMSequence",
    "x[T,B,I|B,T,I] h_prev[B,P] cs_prev[B,H] w_x[I,4H]?I=4H w_h[P,4H] b[4H] "
    "peepholes[3,H]? mask[T,B|B,T]? sequence_lengths[B]? w_p[P,H]?P=H "
    "recurrent_dropout[4,B,P]?",
    "h[T,B,P|B,T,P] h_last[B,P] cs_last[B,H] i[K*T,B,H|B,K*T,H] "
    "cs[K*T,B,H|B,K*T,H] f[K*T,B,H|B,K*T,H] o[K*T,B,H|B,K*T,H] "
    "ci[K*T,B,H|B,K*T,H]",
    "time_major",
    &CheckProjection<9>,
});

const OpContract& kLstmSequenceGrad = RegisterContract({
    "BlockRNN>LSTMSequenceGrad",
    "x[T,B,I|B,T,I] h_prev[B,P] cs_prev[B,H] w_x[I,4H]?I=4H w_h[P,4H] "
    "peepholes[3,H]? mask[T,B|B,T]? sequence_lengths[B]? h[T,B,P|B,T,P] "
    "i[T,B,H|B,T,H] cs[T,B,H|B,T,H] f[T,B,H|B,T,H] o[T,B,H|B,T,H] "
    "ci[T,B,H|B,T,H] h_grad[T,B,P|B,T,P]? h_last_grad[B,P]? "
    "cs_last_grad[B,H]? cs_grad[T,B,H|B,T,H]? w_p[P,H]?P=H "
    "recurrent_dropout[4,B,P]?",
    "x_grad=x h_prev_grad[B,P] cs_prev_grad[B,H] w_x_grad=w_x "
    "w_h_grad[P,4H] b_grad[4H] peepholes_grad=peepholes w_p_grad=w_p",
    "time_major",
    &CheckProjection<18>,
});

REGISTER_OP("BlockRNN>LSTMSequence")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("cs_prev: T")
    .Input("w_x: T")
    .Input("w_h: T")
    .Input("b: T")
    .Input("peepholes: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("w_p: T")
    .Input("recurrent_dropout: T")
    .Output("h: T")
    .Output("h_last: T")
    .Output("cs_last: T")
    .Output("i: T")
    .Output("cs: T")
    .Output("f: T")
    .Output("o: T")
    .Output("ci: T")
    .Attr("forget_bias: float = 0.0")
    .Attr("cell_clip: float = 0.0")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("is_training: bool = true")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kLstmSequence, ctx, Saved(ctx));
    })
    .Doc(R"doc(
Computes an LSTM over whole sequences, each row with a length or mask of its own.

With T steps, B rows, I inputs and H units, `∘` elementwise and σ the logistic
function; cs_prev and h_prev are those of the step before. What stands in
brackets after a + is there only with peepholes, and the clip only when
cell_clip is above 0:

    [ī f̄ c̄ ō] = x · w_x + h_prev · w_h + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    h  = o ∘ tanh(cs),  or with a projection  h = (o ∘ tanh(cs)) · w_pᵀ

This is the LSTM of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000 and the
projection of Sak et al. 2014 (arXiv:1402.1128).

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
h_prev: The state before the first step, `[B, P]`; P is H without a projection.
cs_prev: The cell state before the first step, `[B, H]`.
w_x: Weights of the input, `[I, 4H]`; columns i, f, ci, o; `[0]` if x is
  x · w_x itself, whose I is 4H.
w_h: Weights of the state, `[P, 4H]`, in the order of w_x.
b: Biases, `[4H]`, in the order of w_x.
peepholes: The weights wci, wcf, wco from the cell state to the gates i, f, o,
  `[3, H]`; `[0]` for none.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
w_p: Weights of the projection, `[P, H]`; `[0]` for none, and P is H then.
recurrent_dropout: Factors of the state before a step in its product with each
  gate's weights, in their order, `[4, B, P]`; `[0]` for none.
h: The state after each step, `[T, B, P]`, or `[B, T, P]` without
  time_major.
h_last: The state after the last step done, `[B, P]`.
cs_last: The cell state after the last step done, `[B, H]`.
i: The input gate, `[T, B, H]` or `[B, T, H]`.
cs: The cell state after each step, as i.
f: The forget gate, as i.
o: The output gate, as i.
ci: The cell input, as i.
forget_bias: Added to the forget gate's pre-activation.
cell_clip: The bound of the cell state; no bound unless it is above 0.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
is_training: Whether to keep what the gradient needs; else those outputs have no
  steps.
Tlen: The type of sequence_lengths.
)doc");

REGISTER_OP("BlockRNN>LSTMSequenceGrad")
    .Input("x: T")
    .Input("h_prev: T")
    .Input("cs_prev: T")
    .Input("w_x: T")
    .Input("w_h: T")
    .Input("peepholes: T")
    .Input("mask: bool")
    .Input("sequence_lengths: Tlen")
    .Input("h: T")
    .Input("i: T")
    .Input("cs: T")
    .Input("f: T")
    .Input("o: T")
    .Input("ci: T")
    .Input("h_grad: T")
    .Input("h_last_grad: T")
    .Input("cs_last_grad: T")
    .Input("cs_grad: T")
    .Input("w_p: T")
    .Input("recurrent_dropout: T")
    .Output("x_grad: T")
    .Output("h_prev_grad: T")
    .Output("cs_prev_grad: T")
    .Output("w_x_grad: T")
    .Output("w_h_grad: T")
    .Output("b_grad: T")
    .Output("peepholes_grad: T")
    .Output("w_p_grad: T")
    .Attr("time_major: bool = true")
    .Attr("go_backwards: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .Attr("Tlen: {int32, int64} = DT_INT32")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kLstmSequenceGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of LSTMSequence, given those of h, cs and the last states.

The equations are those of BlockLSTMGrad, with gates in the order i, f, ci, o,
from the last step done to the first. With a projection, where d_h is the
gradient of the projected state, h_grad in them is d_h · w_p, and w_p_grad is
Σ d_hᵀ · (o ∘ tanh(cs)). The clip is straight-through: its derivative is taken
as 1. A skipped step hands the gradients of the state on as they are; past a
row's length x_grad is zeros.

x: The input, `[T, B, I]`, or `[B, T, I]` without time_major.
h_prev: The state before the first step, `[B, P]`; P is H without a projection.
cs_prev: The cell state before the first step, `[B, H]`.
w_x: Weights of the input, `[I, 4H]`; columns i, f, ci, o; `[0]` if x is
  x · w_x itself, whose I is 4H.
w_h: Weights of the state, `[P, 4H]`, in the order of w_x.
peepholes: The weights wci, wcf, wco from the cell state to the gates i, f, o,
  `[3, H]`; `[0]` for none.
mask: False where a step of a row is skipped, `[T, B]`, or `[B, T]` without
  time_major; `[0]` for none.
sequence_lengths: The length of each row, `[B]`, each in 0..T; `[0]` for none.
h: That of the forward op.
i: That of the forward op.
cs: That of the forward op.
f: That of the forward op.
o: That of the forward op.
ci: That of the forward op.
h_grad: The gradient of h, of its shape; `[0]` for zeros.
h_last_grad: The gradient of h_last, of its shape; `[0]` for zeros.
cs_last_grad: The gradient of cs_last, of its shape; `[0]` for zeros.
cs_grad: The gradient of cs, of its shape; `[0]` for zeros.
w_p: Weights of the projection, `[P, H]`; `[0]` for none, and P is H then.
recurrent_dropout: Factors of the state before a step in its product with each
  gate's weights, in their order, `[4, B, P]`; `[0]` for none.
x_grad: The gradient of x, of its shape.
h_prev_grad: The gradient of h_prev, of its shape.
cs_prev_grad: The gradient of cs_prev, of its shape.
w_x_grad: The gradient of w_x, of its shape.
w_h_grad: The gradient of w_h, of its shape.
b_grad: The gradient of b, of its shape.
peepholes_grad: The gradient of peepholes, of its shape.
w_p_grad: The gradient of w_p, of its shape.
time_major: Whether the first dim of sequences is T; else it is B.
go_backwards: Whether the last step is done first.
Tlen: The type of sequence_lengths.
)doc");

}  // namespace
}  // namespace blockrnn
