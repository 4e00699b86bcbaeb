// Defines the docs of the ops with layer normalisation: summaries and
// equations.

#ifndef BLOCKRNN_OPS_LAYER_NORM_DOCS_H_
#define BLOCKRNN_OPS_LAYER_NORM_DOCS_H_

#include "cc/ops/op_docs.h"
#include "cc/ops/shared_docs.h"

namespace blockrnn {

inline constexpr OpDoc kLayerNormDocs[] = {
    {"LayerNormLSTMSequence",
     {"Computes an LSTM with layer normalisation over sequences.\n",
      R"doc(T is the number of steps of a sequence, B of rows, I of inputs, H of units; `∘` is
elementwise and σ the logistic function. cs_prev and h_prev are the states
before the step:

    [ī f̄ c̄ ō] = norm_x(x · w_x) + norm_h(h_prev · w_h) + b
    i  = σ(ī)      f = σ(f̄)      o = σ(ō)      ci = tanh(c̄)
    cs = norm_c(ci ∘ i + cs_prev ∘ f)
    h  = o ∘ tanh(cs)
    or, with norm_output_only,
    cs = ci ∘ i + cs_prev ∘ f
    h  = o ∘ tanh(norm_c(cs))
    norm(s) = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta

mean and var, that of the population, are over all elements of a row, 4H of
norm_x and norm_h.

Layer normalisation is that of Ba et al. 2016 (arXiv:1607.06450): with
norm_output_only in the form of the paper and of haste, else in that of
LayerNormLSTMCell in TensorFlow Addons.
)doc",
      kRecurrentDropoutDoc, kSkippedStepsDoc, kTypesAndSizesDoc},
     {{"w_x", "Weights of the input",
       "The gates are in the order i, f, ci, o. Left out where x is x · w_x "
       "already, of that width."}}},
    {"LayerNormLSTMSequenceGrad",
     {"Computes the gradient of LayerNormLSTMSequence, given those of h, cs "
      "and the last states.\n",
      R"doc(From the last step done to the first, the gates' equations are those of
BlockLSTMGrad with the norms between them. With d the gradient of norm(s) and
s_hat = (s − mean(s)) / √(var(s) + epsilon), and sums over steps and rows,

    gamma_grad = Σ d ∘ s_hat                 beta_grad = Σ d
    s_grad = (g − mean(g) − s_hat · mean(g ∘ s_hat)) / √(var(s) + epsilon)
    g = gamma ∘ d
)doc",
      kRecomputeGradDoc, kMaskedGradDoc}},
    {"LayerNormGRUSequence",
     {"Computes a GRU with layer normalisation over sequences.\n",
      R"doc(The reset gate is applied after the GEMM. T is the number of steps of a
sequence, B of rows, I of inputs, H of units; `∘` is elementwise, σ the logistic
function, and h_prev the state before the step:

    [r̄ ū c̄]   = norm_x(x · w_x) + b_x
    [r̂ û hc]   = norm_h(h_prev · w_h) + b_h
    r = σ(r̄ + r̂)      u = σ(ū + û)      c = tanh(c̄ + r ∘ hc)
    h = u ∘ h_prev + (1 − u) ∘ c
    norm(s) = gamma ∘ (s − mean(s)) / √(var(s) + epsilon) + beta

mean and var, that of the population, are over all 3H elements of a row. The
state itself is not normalised.

Layer normalisation is that of Ba et al. 2016 (arXiv:1607.06450), in the form of
LayerNormGRU in Haste, with betas.
)doc",
      kRecurrentDropoutDoc, kSkippedStepsDoc, kTypesAndSizesDoc},
     {{"w_x", "Weights of the input",
       "The gates are in the order r, u, c, or u, r, c by gate_order. Left out "
       "where x is x · w_x already, of that width."},
      {"b_x", "Biases added to the normalised x · w_x", "In the order of w_x."},
      {"b_h", "Biases added to the normalised h_prev · w_h",
       "In the order of w_x."}}},
    {"LayerNormGRUSequenceGrad",
     {"Computes the gradient of LayerNormGRUSequence, given those of h and "
      "h_last.\n",
      R"doc(From the last step done to the first, the gates' equations are those of
GRUAfterSequenceGrad. [d_r̄ d_ū d_c̄] is the gradient of norm_x(x · w_x) and
[d_r̄ d_ū d_c̄∘r] that of norm_h(h_prev · w_h). With d one of them and
s_hat = (s − mean(s)) / √(var(s) + epsilon), and sums over steps and rows,

    gamma_grad = Σ d ∘ s_hat                 beta_grad = Σ d
    s_grad = (g − mean(g) − s_hat · mean(g ∘ s_hat)) / √(var(s) + epsilon)
    g = gamma ∘ d
)doc",
      kRecomputeGradDoc, kMaskedGradDoc}},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_LAYER_NORM_DOCS_H_
