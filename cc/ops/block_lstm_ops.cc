// Owns the signatures, contracts and docs of BlockLSTM, BlockLSTMV2 and
// their gradients.

#include "cc/ops/op_contract.h"
#include "cc/ops/shape_fn.h"
#include "tensorflow/core/framework/op.h"

namespace blockrnn {
namespace {

// Of both versions, which differ in the order of gates. Peepholes that are not
// in use may have any length, as in TensorFlow; their gradients are zeros of
// that length.
constexpr char kInputs[] =
    "seq_len_max[] x[T,B,I] cs_prev[B,H] h_prev[B,H] w[I+H,4H] wci[H|?] "
    "wcf[H|?] wco[H|?] b[4H]";
constexpr char kOutputs[] =
    "i[T,B,H] cs[T,B,H] f[T,B,H] o[T,B,H] ci[T,B,H] co[T,B,H] h[T,B,H]";
constexpr char kGradInputs[] =
    "seq_len_max[] x[T,B,I] cs_prev[B,H] h_prev[B,H] w[I+H,4H] wci[H|?] "
    "wcf[H|?] wco[H|?] b[4H] i[T,B,H] cs[T,B,H] f[T,B,H] o[T,B,H] ci[T,B,H] "
    "co[T,B,H] h[T,B,H] cs_grad[T,B,H] h_grad[T,B,H]";
constexpr char kGradOutputs[] =
    "x_grad[T,B,I] cs_prev_grad[B,H] h_prev_grad[B,H] w_grad[I+H,4H] "
    "wci_grad=wci wcf_grad=wcf wco_grad=wco b_grad[4H]";

const OpContract& kBlockLstm =
    RegisterContract({"BlockRNN>BlockLSTM", kInputs, kOutputs, "use_peephole"});
const OpContract& kBlockLstmV2 = RegisterContract(
    {"BlockRNN>BlockLSTMV2", kInputs, kOutputs, "use_peephole"});
const OpContract& kBlockLstmGrad = RegisterContract(
    {"BlockRNN>BlockLSTMGrad", kGradInputs, kGradOutputs, "use_peephole"});
const OpContract& kBlockLstmGradV2 = RegisterContract(
    {"BlockRNN>BlockLSTMGradV2", kGradInputs, kGradOutputs, "use_peephole"});

REGISTER_OP("BlockRNN>BlockLSTM")
    .Input("seq_len_max: int64")
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
      return InferShapes(kBlockLstm, ctx);
    })
    .Doc(R"doc(
Computes an LSTM over a whole sequence, gates in the order i, ci, f, o.

With T steps, B rows, I inputs and H units, `∘` elementwise, σ the logistic
function and `[a, b]` columns side by side; cs_prev and h_prev are those of the
step before. What stands in brackets after a + is there only with use_peephole,
and the clip only when cell_clip is above 0:

    [ī c̄ f̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co

Steps at and past seq_len_max are not computed; all outputs are zeros there.

The LSTM is that of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000. half and
bfloat16 are computed in float32. The signature is that of TensorFlow's op of
the same name, for more types. A sequence, batch, input or state of size 0 is
allowed.

seq_len_max: How many steps count, 0..T; an int64 scalar.
x: The input, `[T, B, I]`.
cs_prev: The cell state before the first step, `[B, H]`.
h_prev: The output before the first step, `[B, H]`.
w: Weights, `[I+H, 4H]`. Rows: those of x, then those of h_prev. Columns: i,
  ci, f, o.
wci: Peephole weights of the input gate, `[H]`; not read and of any length
  without use_peephole.
wcf: Peephole weights of the forget gate, like wci.
wco: Peephole weights of the output gate, like wci.
b: Biases, `[4H]`, in the order of w.
i: The input gate, `[T, B, H]`.
cs: The cell state after each step, `[T, B, H]`.
f: The forget gate, `[T, B, H]`.
o: The output gate, `[T, B, H]`.
ci: The cell input, `[T, B, H]`.
co: The cell state after its tanh, `[T, B, H]`.
h: The output of each step, `[T, B, H]`.
forget_bias: Added to the forget gate's pre-activation.
cell_clip: The bound of the cell state; no bound unless it is above 0.
use_peephole: Whether the gates see the cell state.
)doc");

REGISTER_OP("BlockRNN>BlockLSTMGrad")
    .Input("seq_len_max: int64")
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
    .Input("h: T")
    .Input("cs_grad: T")
    .Input("h_grad: T")
    .Output("x_grad: T")
    .Output("cs_prev_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_grad: T")
    .Output("wci_grad: T")
    .Output("wcf_grad: T")
    .Output("wco_grad: T")
    .Output("b_grad: T")
    .Attr("use_peephole: bool")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kBlockLstmGrad, ctx);
    })
    .Doc(R"doc(
Computes the gradient of BlockLSTM, given those of cs and h.

From the last step that counts to the first; d_ marks the gradients of the
pre-activations. cs_grad and h_grad in them are what came in for the step, plus
cs_prev_grad and h_prev_grad of the step after it. The clip is straight-through:
its derivative is taken as 1. The cotangents of the other outputs are taken as
zero.

    d_o  = o(1−o) ∘ h_grad ∘ co
    dcs  = (1−co²) ∘ h_grad ∘ o + cs_grad [+ d_o ∘ wco]
    d_ci = (1−ci²) ∘ dcs ∘ i
    d_f  = f(1−f) ∘ dcs ∘ cs_prev
    d_i  = i(1−i) ∘ dcs ∘ ci
    d    = [d_i d_ci d_f d_o]
    cs_prev_grad = dcs ∘ f [+ d_i ∘ wci + d_f ∘ wcf]
    [x_grad, h_prev_grad] = d · wᵀ

Summed over steps and rows: w_grad = Σ [x, h_prev]ᵀ · d, b_grad = Σ d,
wci_grad = Σ d_i∘cs_prev, wcf_grad = Σ d_f∘cs_prev, wco_grad = Σ d_o∘cs.

Of steps at and past seq_len_max nothing is read, and x_grad is zeros there.

seq_len_max: How many steps count, 0..T; an int64 scalar.
x: The input, `[T, B, I]`.
cs_prev: The cell state before the first step, `[B, H]`.
h_prev: The output before the first step, `[B, H]`.
w: Weights, `[I+H, 4H]`. Rows: those of x, then those of h_prev. Columns: i,
  ci, f, o.
wci: Peephole weights of the input gate, `[H]`; not read and of any length
  without use_peephole.
wcf: Peephole weights of the forget gate, like wci.
wco: Peephole weights of the output gate, like wci.
b: Biases, `[4H]`, in the order of w.
i: The input gate that BlockLSTM gave, `[T, B, H]`.
cs: The cell state after each step that BlockLSTM gave, `[T, B, H]`.
f: The forget gate that BlockLSTM gave, `[T, B, H]`.
o: The output gate that BlockLSTM gave, `[T, B, H]`.
ci: The cell input that BlockLSTM gave, `[T, B, H]`.
co: The cell state after its tanh that BlockLSTM gave, `[T, B, H]`.
h: The output of each step that BlockLSTM gave, `[T, B, H]`.
cs_grad: The gradient of cs, `[T, B, H]`.
h_grad: The gradient of h, `[T, B, H]`.
x_grad: The gradient of x, `[T, B, I]`.
cs_prev_grad: The gradient of cs_prev, `[B, H]`.
h_prev_grad: The gradient of h_prev, `[B, H]`.
w_grad: The gradient of w, `[I+H, 4H]`.
wci_grad: The gradient of wci, of its length; zeros without use_peephole.
wcf_grad: The gradient of wcf, of its length; zeros without use_peephole.
wco_grad: The gradient of wco, of its length; zeros without use_peephole.
b_grad: The gradient of b, `[4H]`.
use_peephole: Whether the gates see the cell state.
)doc");

REGISTER_OP("BlockRNN>BlockLSTMV2")
    .Input("seq_len_max: int64")
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
    .Attr("cell_clip: float = 0.0")
    .Attr("use_peephole: bool = false")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kBlockLstmV2, ctx);
    })
    .Doc(R"doc(
Computes an LSTM over a whole sequence, gates in the order i, f, ci, o.

This is BlockLSTM with another order of the gates in w and b, without a forget
bias and, unless asked for, without a clip; that is how Keras and cuDNN keep
weights. With T steps, B rows, I inputs and H units; what stands in brackets
after a + is there only with use_peephole, and the clip only when cell_clip is
above 0; cs_prev and h_prev are those of the step before:

    [ī f̄ c̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co

Steps at and past seq_len_max are not computed; all outputs are zeros there.

The LSTM is that of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000. half and
bfloat16 are computed in float32. The signature is that of TensorFlow's op of
the same name, for more types. A sequence, batch, input or state of size 0 is
allowed.

seq_len_max: How many steps count, 0..T; an int64 scalar.
x: The input, `[T, B, I]`.
cs_prev: The cell state before the first step, `[B, H]`.
h_prev: The output before the first step, `[B, H]`.
w: Weights, `[I+H, 4H]`. Rows: those of x, then those of h_prev. Columns: i,
  f, ci, o.
wci: Peephole weights of the input gate, `[H]`; not read and of any length
  without use_peephole.
wcf: Peephole weights of the forget gate, like wci.
wco: Peephole weights of the output gate, like wci.
b: Biases, `[4H]`, in the order of w.
i: The input gate, `[T, B, H]`.
cs: The cell state after each step, `[T, B, H]`.
f: The forget gate, `[T, B, H]`.
o: The output gate, `[T, B, H]`.
ci: The cell input, `[T, B, H]`.
co: The cell state after its tanh, `[T, B, H]`.
h: The output of each step, `[T, B, H]`.
cell_clip: The bound of the cell state; no bound unless it is above 0.
use_peephole: Whether the gates see the cell state.
)doc");

REGISTER_OP("BlockRNN>BlockLSTMGradV2")
    .Input("seq_len_max: int64")
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
    .Input("h: T")
    .Input("cs_grad: T")
    .Input("h_grad: T")
    .Output("x_grad: T")
    .Output("cs_prev_grad: T")
    .Output("h_prev_grad: T")
    .Output("w_grad: T")
    .Output("wci_grad: T")
    .Output("wcf_grad: T")
    .Output("wco_grad: T")
    .Output("b_grad: T")
    .Attr("use_peephole: bool")
    .Attr("T: {half, bfloat16, float, double}")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* ctx) {
      return InferShapes(kBlockLstmGradV2, ctx);
    })
    .Doc(R"doc(
Computes the gradient of BlockLSTMV2, given those of cs and h.

From the last step that counts to the first; d_ marks the gradients of the
pre-activations. cs_grad and h_grad in them are what came in for the step, plus
cs_prev_grad and h_prev_grad of the step after it. The clip is straight-through:
its derivative is taken as 1. The cotangents of the other outputs are taken as
zero.

    d_o  = o(1−o) ∘ h_grad ∘ co
    dcs  = (1−co²) ∘ h_grad ∘ o + cs_grad [+ d_o ∘ wco]
    d_ci = (1−ci²) ∘ dcs ∘ i
    d_f  = f(1−f) ∘ dcs ∘ cs_prev
    d_i  = i(1−i) ∘ dcs ∘ ci
    d    = [d_i d_f d_ci d_o]
    cs_prev_grad = dcs ∘ f [+ d_i ∘ wci + d_f ∘ wcf]
    [x_grad, h_prev_grad] = d · wᵀ

Summed over steps and rows: w_grad = Σ [x, h_prev]ᵀ · d, b_grad = Σ d,
wci_grad = Σ d_i∘cs_prev, wcf_grad = Σ d_f∘cs_prev, wco_grad = Σ d_o∘cs.

Of steps at and past seq_len_max nothing is read, and x_grad is zeros there.

seq_len_max: How many steps count, 0..T; an int64 scalar.
x: The input, `[T, B, I]`.
cs_prev: The cell state before the first step, `[B, H]`.
h_prev: The output before the first step, `[B, H]`.
w: Weights, `[I+H, 4H]`. Rows: those of x, then those of h_prev. Columns: i,
  f, ci, o.
wci: Peephole weights of the input gate, `[H]`; not read and of any length
  without use_peephole.
wcf: Peephole weights of the forget gate, like wci.
wco: Peephole weights of the output gate, like wci.
b: Biases, `[4H]`, in the order of w.
i: The input gate that BlockLSTMV2 gave, `[T, B, H]`.
cs: The cell state after each step that BlockLSTMV2 gave, `[T, B, H]`.
f: The forget gate that BlockLSTMV2 gave, `[T, B, H]`.
o: The output gate that BlockLSTMV2 gave, `[T, B, H]`.
ci: The cell input that BlockLSTMV2 gave, `[T, B, H]`.
co: The cell state after its tanh that BlockLSTMV2 gave, `[T, B, H]`.
h: The output of each step that BlockLSTMV2 gave, `[T, B, H]`.
cs_grad: The gradient of cs, `[T, B, H]`.
h_grad: The gradient of h, `[T, B, H]`.
x_grad: The gradient of x, `[T, B, I]`.
cs_prev_grad: The gradient of cs_prev, `[B, H]`.
h_prev_grad: The gradient of h_prev, `[B, H]`.
w_grad: The gradient of w, `[I+H, 4H]`.
wci_grad: The gradient of wci, of its length; zeros without use_peephole.
wcf_grad: The gradient of wcf, of its length; zeros without use_peephole.
wco_grad: The gradient of wco, of its length; zeros without use_peephole.
b_grad: The gradient of b, `[4H]`.
use_peephole: Whether the gates see the cell state.
)doc");

}  // namespace
}  // namespace blockrnn
