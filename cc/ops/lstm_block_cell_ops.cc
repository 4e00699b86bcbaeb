// Owns the signatures, contracts and docs of LSTMBlockCell and
// LSTMBlockCellGrad.

#include "cc/ops/op_contract.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

// Peepholes that are not in use may have any length, as in TensorFlow; their
// gradients are zeros of that length.
const OpContract& kLstmBlockCell = RegisterContract({
    "BlockRNN>LSTMBlockCell",
    "x[B,I] cs_prev[B,H] h_prev[B,H] w[I+H,4H] wci[H|?] wcf[H|?] wco[H|?] "
    "b[4H]",
    "i[B,H] cs[B,H] f[B,H] o[B,H] ci[B,H] co[B,H] h[B,H]",
    "use_peephole",
});

const OpContract& kLstmBlockCellGrad = RegisterContract({
    "BlockRNN>LSTMBlockCellGrad",
    "x[B,I] cs_prev[B,H] h_prev[B,H] w[I+H,4H] wci[H|?] wcf[H|?] wco[H|?] "
    "b[4H] i[B,H] cs[B,H] f[B,H] o[B,H] ci[B,H] co[B,H] cs_grad[B,H] "
    "h_grad[B,H]",
    "cs_prev_grad[B,H] dicfo[B,4H] wci_grad=wci wcf_grad=wcf wco_grad=wco",
    "use_peephole",
});

REGISTER_OP("BlockRNN>LSTMBlockCell")
    .Input("x: T")
    .Input("cs_prev: T")
    .Input("h_prev: T")
    .Input("w: T")
    .Input("wci: T")
    .Input("wcf: T")
    .Input("wco: T")
    .Input("b: T")
    .Output("i: T")
    .Output("cs: T")
    .Output("f: T")
    .Output("o: T")
    .Output("ci: T")
    .Output("co: T")
    .Output("h: T")
    .Attr("forget_bias: float = 1.0")
    .Attr("cell_clip: float = 3.0")
    .Attr("use_peephole: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kLstmBlockCell, ctx);
    })
    .Doc(R"doc(
Computes one step of an LSTM, with optional peepholes and a clipped cell.

With B rows, I inputs and H units, `∘` elementwise, σ the logistic function and
`[a, b]` columns side by side. What stands in brackets after a + is there only
with use_peephole, and the clip only when cell_clip is above 0:

    [ī c̄ f̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co

This is the LSTM of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000. half and
bfloat16 are computed in float32.

The signature is that of TensorFlow's op of the same name, for more types.
A batch, input or state of size 0 is allowed.

x: The input, `[B, I]`.
cs_prev: The cell state before this step, `[B, H]`.
h_prev: The output of the step before, `[B, H]`.
w: Weights, `[I+H, 4H]`. Rows: those of x, then those of h_prev. Columns: i, ci,
  f, o.
wci: Peephole weights of the input gate, `[H]`; not read and of any length
  without use_peephole.
wcf: Peephole weights of the forget gate, like wci.
wco: Peephole weights of the output gate, like wci.
b: Biases, `[4H]`, in the order of w.
i: The input gate, `[B, H]`.
cs: The cell state after this step, `[B, H]`.
f: The forget gate, `[B, H]`.
o: The output gate, `[B, H]`.
ci: The cell input, `[B, H]`.
co: The cell state after its tanh, `[B, H]`.
h: The output, `[B, H]`.
forget_bias: Added to the forget gate's pre-activation.
cell_clip: The bound of the cell state; no bound unless it is above 0.
use_peephole: Whether the gates see the cell state.
)doc");

REGISTER_OP("BlockRNN>LSTMBlockCellGrad")
    .Input("x: T")
    .Input("cs_prev: T")
    .Input("h_prev: T")
    .Input("w: T")
    .Input("wci: T")
    .Input("wcf: T")
    .Input("wco: T")
    .Input("b: T")
    .Input("i: T")
    .Input("cs: T")
    .Input("f: T")
    .Input("o: T")
    .Input("ci: T")
    .Input("co: T")
    .Input("cs_grad: T")
    .Input("h_grad: T")
    .Output("cs_prev_grad: T")
    .Output("dicfo: T")
    .Output("wci_grad: T")
    .Output("wcf_grad: T")
    .Output("wco_grad: T")
    .Attr("use_peephole: bool")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kLstmBlockCellGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of one LSTMBlockCell step, given those of cs and h.

do, dci, df and di are gradients of pre-activations. The clip is
straight-through: its derivative is taken as 1. The cotangents of the other
outputs are taken as zero.

    do  = o(1−o) ∘ h_grad ∘ co
    dcs = (1−co²) ∘ h_grad ∘ o + cs_grad [+ do ∘ wco]
    dci = (1−ci²) ∘ dcs ∘ i
    df  = f(1−f) ∘ dcs ∘ cs_prev
    di  = i(1−i) ∘ dcs ∘ ci
    dicfo = [di dci df do]
    cs_prev_grad = dcs ∘ f [+ di ∘ wci + df ∘ wcf]
    wci_grad = Σ_batch di∘cs_prev
    wcf_grad = Σ_batch df∘cs_prev
    wco_grad = Σ_batch do∘cs

The other gradients follow from the outputs:

    [d_x, d_h_prev] = dicfo · wᵀ
    d_w = [x, h_prev]ᵀ · dicfo                    d_b = Σ_batch dicfo

x: The input of the step, `[B, I]`.
cs_prev: The cell state before the step, `[B, H]`.
h_prev: The output of the step before, `[B, H]`.
w: Weights, columns i, ci, f, o, `[I+H, 4H]`.
wci: Peephole weights of the input gate, `[H]`; not read and of any length
  without use_peephole.
wcf: Peephole weights of the forget gate, like wci.
wco: Peephole weights of the output gate, like wci.
b: Biases, `[4H]`.
i: The input gate that the step gave, `[B, H]`.
cs: The cell state that the step gave, `[B, H]`.
f: The forget gate that the step gave, `[B, H]`.
o: The output gate that the step gave, `[B, H]`.
ci: The cell input that the step gave, `[B, H]`.
co: The tanh of the cell state that the step gave, `[B, H]`.
cs_grad: The gradient of cs, `[B, H]`.
h_grad: The gradient of h, `[B, H]`.
cs_prev_grad: The gradient of cs_prev, `[B, H]`.
dicfo: The gradients of the pre-activations i, ci, f, o, `[B, 4H]`.
wci_grad: The gradient of wci, of its length; zeros without use_peephole.
wcf_grad: The gradient of wcf, of its length; zeros without use_peephole.
wco_grad: The gradient of wco, of its length; zeros without use_peephole.
use_peephole: Whether the gates see the cell state.
)doc");

}  // namespace
}  // namespace blockrnn
