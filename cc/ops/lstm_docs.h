// Defines the docs of the LSTM ops: summaries and equations.

#ifndef BLOCKRNN_OPS_LSTM_DOCS_H_
#define BLOCKRNN_OPS_LSTM_DOCS_H_

#include "cc/ops/op_docs.h"
#include "cc/ops/shared_docs.h"

namespace blockrnn {

inline constexpr char kLstmWordsDoc[] =
    R"doc(T is the number of steps of a sequence, B of rows, I of inputs, H of units; `∘` is
elementwise, σ the logistic function, and `[a, b]` concatenates columns.
cs_prev and h_prev are the states before the step. The terms in brackets after a
+ are added only with peepholes, and cs is clipped only where cell_clip is above
0:
)doc";

inline constexpr char kLstmSourcesDoc[] =
    R"doc(This is the LSTM of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000.
)doc";

inline constexpr char kLstmStepDoc[] =
    R"doc(    [ī c̄ f̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co
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

inline constexpr char kLstmStepsGradDoc[] =
    R"doc(From the last step computed to the first; cs_grad and h_grad are the incoming
gradients of the step, plus cs_prev_grad and h_prev_grad of the next step.
)doc";

inline constexpr OpDoc kLstmDocs[] = {
    {"LSTMBlockCell",
     {"Computes one step of an LSTM, with optional peepholes and a clipped "
      "cell.\n",
      kLstmWordsDoc, kLstmStepDoc, kLstmSourcesDoc, kStockDoc},
     {{"cs_prev", "The cell state before the step"},
      {"h_prev", "The output of the previous step"},
      {"cs", "The cell state after the step"},
      {"h", "The output"}}},
    {"LSTMBlockCellGrad",
     {"Computes the gradient of one LSTMBlockCell step, given those of cs and "
      "h.\n",
      kLstmStepGradDoc,
      R"doc(    dicfo = [d_i d_ci d_f d_o]
    wci_grad = Σ_batch d_i∘cs_prev
    wcf_grad = Σ_batch d_f∘cs_prev
    wco_grad = Σ_batch d_o∘cs

The other gradients follow from the outputs:

    [d_x, d_h_prev] = dicfo · wᵀ
    d_w = [x, h_prev]ᵀ · dicfo                    d_b = Σ_batch dicfo

The gradients of peephole weights are zeros without use_peephole.
)doc"},
     {{"cs_prev", "The cell state before the step"},
      {"h_prev", "The output of the previous step"},
      {"dicfo", "The gradients of the pre-activations of i, ci, f, o"}}},
    {"BlockLSTM",
     {"Computes an LSTM over a sequence, gates in the order i, ci, f, o.\n",
      kLstmWordsDoc, kLstmStepDoc, kLstmSourcesDoc, kSeqLenMaxDoc, kStockDoc},
     {{"h", "The output of each step"}}},
    {"BlockLSTMGrad",
     {"Computes the gradient of BlockLSTM, given those of cs and h.\n",
      kLstmStepsGradDoc, kLstmStepGradDoc,
      R"doc(    d    = [d_i d_ci d_f d_o]
    [x_grad, h_prev_grad] = d · wᵀ

Summed over steps and rows, w_grad = Σ [x, h_prev]ᵀ · d, b_grad = Σ d,
wci_grad = Σ d_i∘cs_prev, wcf_grad = Σ d_f∘cs_prev, wco_grad = Σ d_o∘cs. The
last three are zeros without use_peephole.
)doc",
      kSeqLenMaxGradDoc}},
    {"BlockLSTMV2",
     {"Computes an LSTM over a sequence, gates in the order i, f, ci, o.\n",
      R"doc(This is BlockLSTM with another order of the gates in w and b, that of Keras and
cuDNN; without a forget bias and, by default, without a clip.
)doc",
      kLstmWordsDoc,
      R"doc(    [ī f̄ c̄ ō] = [x, h_prev] · w + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    co = tanh(cs)                      h = o ∘ co
)doc",
      kSeqLenMaxDoc, kStockDoc},
     {{"h", "The output of each step"}}},
    {"BlockLSTMGradV2",
     {"Computes the gradient of BlockLSTMV2, given those of cs and h.\n",
      R"doc(The equations are those of BlockLSTMGrad, with the gates in the order i, f, ci,
o in w_grad and b_grad.
)doc",
      kSeqLenMaxGradDoc}},
    {"LSTMSequence",
     {"Computes an LSTM over sequences, each row with its own length or "
      "mask.\n",
      kLstmWordsDoc,
      R"doc(    [ī f̄ c̄ ō] = x · w_x + h_prev · w_h + b
    i  = σ(ī [+ cs_prev ∘ wci])        ci = tanh(c̄)
    f  = σ(f̄ + forget_bias [+ cs_prev ∘ wcf])
    cs = ci ∘ i + cs_prev ∘ f,  clipped to [−cell_clip, cell_clip]
    o  = σ(ō [+ cs ∘ wco])              (the new, clipped cs)
    h  = o ∘ tanh(cs),  or with a projection  h = (o ∘ tanh(cs)) · w_pᵀ

This is the LSTM of Hochreiter and Schmidhuber 1997 as in Zaremba et al. 2014
(arXiv:1409.2329), with the peepholes of Gers and Schmidhuber 2000 and the
projection of Sak et al. 2014 (arXiv:1402.1128).
)doc",
      kRecurrentDropoutDoc, kZoneoutOfStatesDoc, kSkippedStepsDoc,
      kTypesAndSizesDoc},
     {{"w_x", "Weights of the input",
       "The gates are in the order i, f, ci, o. Left out where x is x · w_x "
       "already, of that width."}}},
    {"LSTMSequenceGrad",
     {"Computes the gradient of LSTMSequence, given those of h, cs and the "
      "last states.\n",
      R"doc(The equations are those of BlockLSTMGrad, with the gates in the order i, f, ci, o,
from the last step done to the first. With a projection, where d_h is the
gradient of the projected state, h_grad in them is d_h · w_p, and w_p_grad is
Σ d_hᵀ · (o ∘ tanh(cs)). The clip is straight-through: its derivative is taken
as 1.
)doc",
      kZoneoutGradDoc, kRecomputeGradDoc, kMaskedGradDoc}},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_LSTM_DOCS_H_
