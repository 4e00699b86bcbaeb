// Defines the docs of the cells' ops, of one step and of sequences: summaries
// and equations.

#ifndef BLOCKRNN_OPS_CELL_DOCS_H_
#define BLOCKRNN_OPS_CELL_DOCS_H_

#include "cc/ops/op_docs.h"

namespace blockrnn {

// ------------------------------------------- paragraphs that several ops have

inline constexpr char kNotationDoc[] =
    R"doc(T is the number of steps of a sequence, B of rows, I of inputs, H of units; `∘` is
elementwise, σ the logistic function, and `[a, b]` concatenates columns. h_prev
and cs_prev are the states before the step.
)doc";

inline constexpr char kStockDoc[] =
    "The signature is that of TensorFlow's op of the same name, with more "
    "types.\n";

inline constexpr char kGruStepDoc[] =
    R"doc(    [r̄ ū] = [x, h_prev] · w_ru + b_ru        r = σ(r̄)   u = σ(ū)
    c      = tanh([x, h_prev ∘ r] · w_c + b_c)
    h      = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of Cho et al. 2014 (arXiv:1406.1078). In that of cuDNN, and of
Keras with `reset_after=True`, the reset gate is applied after the GEMM instead.
)doc";

inline constexpr char kGruStepGradDoc[] =
    R"doc(A bar marks a pre-activation. The gradients of r, u and c, as outputs, are taken
as zeros.

    d_c_bar = d_h ∘ (1 − u) ∘ (1 − c∘c)
    d_u_bar = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
    [dx₂, d_hr] = d_c_bar · w_cᵀ
    d_r_bar = d_hr ∘ h_prev ∘ r ∘ (1 − r)
    [dx₁, dh₁] = [d_r_bar d_u_bar] · w_ruᵀ
    d_x = dx₁ + dx₂
    d_h_prev = dh₁ + d_hr ∘ r + d_h ∘ u
)doc";

inline constexpr char kLstmWordsDoc[] =
    R"doc(The terms in brackets after a + are added only with peepholes, and cs is clipped
only where cell_clip is above 0.
)doc";

inline constexpr char kLstmStepDoc[] =
    R"doc(    [ī c̄ f̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co

This is the LSTM of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000.
)doc";

inline constexpr char kLstmStepGradDoc[] =
    R"doc(d_o, d_ci, d_f and d_i are gradients of pre-activations. The clip is
straight-through: its derivative is taken as 1. The gradients of the other
outputs are taken as zeros.

    d_o  = o(1−o) ∘ h_grad ∘ co
    dcs  = (1−co²) ∘ h_grad ∘ o + cs_grad [+ d_o ∘ wco]
    d_ci = (1−ci²) ∘ dcs ∘ i
    d_f  = f(1−f) ∘ dcs ∘ cs_prev
    d_i  = i(1−i) ∘ dcs ∘ ci
    cs_prev_grad = dcs ∘ f [+ d_i ∘ wci + d_f ∘ wcf]
)doc";

inline constexpr char kNormDoc[] =
    R"doc(    norm(s) = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta

mean and var, that of the population, are over all elements of a row: of all
gates in norm_x and norm_h. Layer normalisation is that of Ba et al. 2016
(arXiv:1607.06450).
)doc";

inline constexpr char kNormGradDoc[] =
    R"doc(With d the gradient of norm(s) and s_hat = (s − mean(s)) / √(var(s) + epsilon),
and sums over steps and rows,

    gamma_grad = Σ d ∘ s_hat                 beta_grad = Σ d
    s_grad = (g − mean(g) − s_hat · mean(g ∘ s_hat)) / √(var(s) + epsilon)
    g = gamma ∘ d
)doc";

// -------------------------------------------------------------------- the ops

inline constexpr OpDoc kCellDocs[] = {
    {"GRUBlockCell",
     {"Computes one step of a GRU whose reset gate is applied before the "
      "GEMM.\n",
      kNotationDoc, kGruStepDoc, kStockDoc}},
    {"GRUBlockCellGrad",
     {kGruStepGradDoc,
      R"doc(The gradients of the weights and biases follow from the outputs:

    d_w_ru = [x, h_prev]ᵀ · d_r_bar_u_bar         d_b_ru = Σ_batch d_r_bar_u_bar
    d_w_c  = [x, h_prev ∘ r]ᵀ · d_c_bar           d_b_c  = Σ_batch d_c_bar
)doc"}},
    {"BlockGRU",
     {"Computes a GRU over a sequence, its reset gate applied before the "
      "GEMM.\n",
      kNotationDoc, kGruStepDoc}},
    {"BlockGRUGrad",
     {R"doc(The equations are those of one step, from the last step computed to the first;
d_h is the incoming gradient of the step plus d_h_prev of the next step.
)doc",
      kGruStepGradDoc,
      R"doc(Summed over steps and rows:

    w_ru_grad = Σ [x, h_prev]ᵀ · [d_r_bar d_u_bar]
    w_c_grad  = Σ [x, h_prev ∘ r]ᵀ · d_c_bar
    b_ru_grad = Σ [d_r_bar d_u_bar]            b_c_grad = Σ d_c_bar
)doc"}},
    {"GRUSequence",
     {"Computes a GRU over sequences, each row with its own length or mask.\n",
      "The reset gate is applied before the GEMM.\n", kNotationDoc,
      R"doc(    [r̄ ū c̄] = x · w_x + b
    r = σ(r̄ + h_prev · w_h,r)      u = σ(ū + h_prev · w_h,u)
    c = tanh(c̄ + (h_prev ∘ r) · w_h,c)
    h = u ∘ h_prev + (1 − u) ∘ c

w_h,r are the columns of w_h for the gate r, and so on.

This is the GRU of Cho et al. 2014 (arXiv:1406.1078).
)doc"}},
    {"GRUSequenceGrad",
     {"The equations are those of BlockGRUGrad, from the last step done to the "
      "first.\n"}},
    {"GRUAfterSequence",
     {"Computes a GRU over sequences, each row with its own length or mask.\n",
      R"doc(The reset gate is applied after the GEMM, as in cuDNN and in Keras with
`reset_after=True`.
)doc",
      kNotationDoc,
      R"doc(    [r̄ ū c̄]   = x · w_x + b_x
    [r̂ û hc]   = h_prev · w_h + b_h
    r = σ(r̄ + r̂)      u = σ(ū + û)      c = tanh(c̄ + r ∘ hc)
    h = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of the first version of Cho et al. 2014 (arXiv:1406.1078v1).
)doc"}},
    {"GRUAfterSequenceGrad",
     {R"doc(From the last step done to the first; a bar marks a pre-activation, and d_h is
the incoming gradient of the step plus h_prev_grad of the next step.

    d_c̄ = d_h ∘ (1 − u) ∘ (1 − c∘c)
    d_ū = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
    d_r̄ = d_c̄ ∘ hc ∘ r ∘ (1 − r)
    x_grad = [d_r̄ d_ū d_c̄] · w_xᵀ
    h_prev_grad = [d_r̄ d_ū d_c̄∘r] · w_hᵀ + d_h ∘ u
)doc"}},

    {"LSTMBlockCell",
     {"Computes one step of an LSTM, with optional peepholes and a clipped "
      "cell.\n",
      kNotationDoc, kLstmWordsDoc, kLstmStepDoc, kStockDoc}},
    {"LSTMBlockCellGrad",
     {kLstmStepGradDoc,
      R"doc(    dicfo = [d_i d_ci d_f d_o]
    wci_grad = Σ_batch d_i∘cs_prev
    wcf_grad = Σ_batch d_f∘cs_prev
    wco_grad = Σ_batch d_o∘cs

The other gradients follow from the outputs:

    [d_x, d_h_prev] = dicfo · wᵀ
    d_w = [x, h_prev]ᵀ · dicfo                    d_b = Σ_batch dicfo

The gradients of peephole weights are zeros without use_peephole.
)doc"}},
    {"BlockLSTM",
     {"Computes an LSTM over a sequence, gates in the order i, ci, f, o.\n",
      kNotationDoc, kLstmWordsDoc, kLstmStepDoc, kStockDoc}},
    {"BlockLSTMGrad",
     {R"doc(From the last step computed to the first; cs_grad and h_grad are the incoming
gradients of the step, plus cs_prev_grad and h_prev_grad of the next step.
)doc",
      kLstmStepGradDoc,
      R"doc(    d    = [d_i d_ci d_f d_o]
    [x_grad, h_prev_grad] = d · wᵀ

Summed over steps and rows, w_grad = Σ [x, h_prev]ᵀ · d, b_grad = Σ d,
wci_grad = Σ d_i∘cs_prev, wcf_grad = Σ d_f∘cs_prev, wco_grad = Σ d_o∘cs. The
last three are zeros without use_peephole.
)doc"}},
    {"BlockLSTMV2",
     {"Computes an LSTM over a sequence, gates in the order i, f, ci, o.\n",
      R"doc(This is BlockLSTM with another order of the gates in w and b, that of Keras and
cuDNN; without a forget bias and, by default, without a clip:

    [ī f̄ c̄ ō] = [x, h_prev] · w + b           f  = σ(f̄ [+ cs_prev ∘ wcf])
)doc",
      kNotationDoc, kStockDoc}},
    {"BlockLSTMGradV2",
     {R"doc(The equations are those of BlockLSTMGrad, with the gates in the order i, f, ci,
o in w_grad and b_grad.
)doc"}},
    {"LSTMSequence",
     {"Computes an LSTM over sequences, each row with its own length or "
      "mask.\n",
      kNotationDoc, kLstmWordsDoc,
      R"doc(    [ī f̄ c̄ ō] = x · w_x + h_prev · w_h + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    h  = o ∘ tanh(cs),  or with a projection  h = (o ∘ tanh(cs)) · w_pᵀ

This is the LSTM of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000 and the
projection of Sak et al. 2014 (arXiv:1402.1128).
)doc"}},
    {"LSTMSequenceGrad",
     {R"doc(The equations are those of BlockLSTMGrad, with the gates in the order i, f, ci, o,
from the last step done to the first. With a projection, where d_h is the
gradient of the projected state, h_grad in them is d_h · w_p, and w_p_grad is
Σ d_hᵀ · (o ∘ tanh(cs)). The clip is straight-through: its derivative is taken
as 1.
)doc"}},

    {"LayerNormLSTMSequence",
     {"Computes an LSTM with layer normalisation over sequences.\n",
      kNotationDoc,
      R"doc(    [ī f̄ c̄ ō] = norm_x(x · w_x) + norm_h(h_prev · w_h) + b
    i  = σ(ī)      f = σ(f̄)      o = σ(ō)      ci = tanh(c̄)
    cs = norm_c(ci ∘ i + cs_prev ∘ f)
    h  = o ∘ tanh(cs)

This is the form of LayerNormLSTMCell in TensorFlow Addons. With
norm_output_only it is that of Ba et al. and of haste:

    cs = ci ∘ i + cs_prev ∘ f
    h  = o ∘ tanh(norm_c(cs))
)doc",
      kNormDoc}},
    {"LayerNormLSTMSequenceGrad",
     {R"doc(From the last step done to the first, the gates' equations are those of
BlockLSTMGrad with the norms between them.
)doc",
      kNormGradDoc}},
    {"LayerNormGRUSequence",
     {"Computes a GRU with layer normalisation over sequences.\n",
      "The reset gate is applied after the GEMM.\n", kNotationDoc,
      R"doc(    [r̄ ū c̄]   = norm_x(x · w_x) + b_x
    [r̂ û hc]   = norm_h(h_prev · w_h) + b_h
    r = σ(r̄ + r̂)      u = σ(ū + û)      c = tanh(c̄ + r ∘ hc)
    h = u ∘ h_prev + (1 − u) ∘ c

This is the form of LayerNormGRU in Haste, with betas. The state itself is not
normalised.
)doc",
      kNormDoc}},
    {"LayerNormGRUSequenceGrad",
     {R"doc(From the last step done to the first, the gates' equations are those of
GRUAfterSequenceGrad. [d_r̄ d_ū d_c̄] is the gradient of norm_x(x · w_x) and
[d_r̄ d_ū d_c̄∘r] that of norm_h(h_prev · w_h).
)doc",
      kNormGradDoc}},

    {"RNNSequence",
     {"Computes a simple RNN over sequences, each row with its own length or "
      "mask.\n",
      kNotationDoc,
      R"doc(    h = act(x · w_x + h_prev · w_h + b)

act is tanh, as in Elman 1990 (https://doi.org/10.1207/s15516709cog1402_1), or
relu, max(0, ·). In half and bfloat16 it is computed from states that are
rounded.
)doc"}},
    {"RNNSequenceGrad",
     {R"doc(From the last step done to the first; d_h is the incoming gradient of the step
plus h_prev_grad of the next step:

    d_h̄ = d_h ∘ (1 − h∘h) for tanh,  d_h where h > 0, else 0, for relu
    x_grad = d_h̄ · w_xᵀ
    h_prev_grad = d_h̄ · w_hᵀ
)doc"}},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_CELL_DOCS_H_
