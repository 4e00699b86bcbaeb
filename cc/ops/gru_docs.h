// Defines the docs of the GRU ops: summaries and equations.

#ifndef BLOCKRNN_OPS_GRU_DOCS_H_
#define BLOCKRNN_OPS_GRU_DOCS_H_

#include "cc/ops/op_docs.h"
#include "cc/ops/shared_docs.h"

namespace blockrnn {

inline constexpr char kGruStepDoc[] =
    R"doc(T is the number of steps of a sequence, B of rows, I of inputs, H of units; `∘` is
elementwise, σ the logistic function, and `[a, b]` concatenates columns.
h_prev is the state before the step:

    [r̄ ū] = [x, h_prev] · w_ru + b_ru        r = σ(r̄)   u = σ(ū)
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

inline constexpr OpDoc kGruDocs[] = {
    {"GRUBlockCell",
     {"Computes one step of a GRU whose reset gate is applied before the "
      "GEMM.\n",
      kGruStepDoc, kStockDoc},
     {{"h_prev", "The state before the step"},
      {"h", "The state after the step"}}},
    {"GRUBlockCellGrad",
     {"Computes the gradient of one GRUBlockCell step, given that of h.\n",
      kGruStepGradDoc,
      R"doc(The gradients of the weights and biases follow from the outputs:

    d_w_ru = [x, h_prev]ᵀ · d_r_bar_u_bar         d_b_ru = Σ_batch d_r_bar_u_bar
    d_w_c  = [x, h_prev ∘ r]ᵀ · d_c_bar           d_b_c  = Σ_batch d_c_bar
)doc"},
     {{"h_prev", "The state before the step"},
      {"d_c_bar", "The gradient of the candidate's pre-activation"},
      {"d_r_bar_u_bar", "The gradients of the pre-activations of r, u"}}},
    {"BlockGRU",
     {"Computes a GRU over a sequence, its reset gate applied before the "
      "GEMM.\n",
      kGruStepDoc, kSeqLenMaxDoc, kTypesAndSizesDoc}},
    {"BlockGRUGrad",
     {"Computes the gradient of BlockGRU, given that of h.\n",
      R"doc(The equations are those of one step, from the last step computed to the first;
d_h is the incoming gradient of the step plus d_h_prev of the next step.
)doc",
      kGruStepGradDoc,
      R"doc(Summed over steps and rows:

    w_ru_grad = Σ [x, h_prev]ᵀ · [d_r_bar d_u_bar]
    w_c_grad  = Σ [x, h_prev ∘ r]ᵀ · d_c_bar
    b_ru_grad = Σ [d_r_bar d_u_bar]            b_c_grad = Σ d_c_bar
)doc",
      kSeqLenMaxGradDoc}},
    {"GRUSequence",
     {"Computes a GRU over sequences, each row with its own length or mask.\n",
      R"doc(The reset gate is applied before the GEMM. T is the number of steps, B of rows, I
of inputs, H of units; `∘` is elementwise, σ the logistic function, and h_prev
the state before the step:

    [r̄ ū] = x · w_ru_x + h_prev · w_ru_h + b_ru        r = σ(r̄)   u = σ(ū)
    c      = tanh(x · w_c_x + (h_prev ∘ r) · w_c_h + b_c)
    h      = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of Cho et al. 2014 (arXiv:1406.1078).
)doc",
      kRecurrentDropoutDoc, kZoneoutDoc, kSkippedStepsDoc, kTypesAndSizesDoc}},
    {"GRUSequenceGrad",
     {"Computes the gradient of GRUSequence, given those of h and h_last.\n",
      "The equations are those of BlockGRUGrad, from the last step done to the "
      "first.\n",
      kZoneoutGradDoc, kRecomputeGradDoc, kMaskedGradDoc}},
    {"GRUAfterSequence",
     {"Computes a GRU over sequences, each row with its own length or mask.\n",
      R"doc(The reset gate is applied after the GEMM, as in cuDNN and in Keras with
`reset_after=True`. T is the number of steps, B of rows, I of inputs, H of
units; `∘` is elementwise, σ the logistic function, and h_prev the state before
the step:

    [r̄ ū c̄]   = x · w_x + b_x
    [r̂ û hc]   = h_prev · w_h + b_h
    r = σ(r̄ + r̂)      u = σ(ū + û)      c = tanh(c̄ + r ∘ hc)
    h = u ∘ h_prev + (1 − u) ∘ c

This is the GRU of the first version of Cho et al. 2014 (arXiv:1406.1078v1).
)doc",
      kRecurrentDropoutDoc, kZoneoutDoc, kSkippedStepsDoc, kTypesAndSizesDoc},
     {{"w_x", "Weights of the input",
       "The gates are in the order r, u, c, or u, r, c by gate_order. Left out "
       "where x is x · w_x already, of that width."}}},
    {"GRUAfterSequenceGrad",
     {"Computes the gradient of GRUAfterSequence, given those of h and "
      "h_last.\n",
      R"doc(From the last step done to the first; a bar marks a pre-activation, and d_h is
the incoming gradient of the step plus h_prev_grad of the next step.

    d_c̄ = d_h ∘ (1 − u) ∘ (1 − c∘c)
    d_ū = d_h ∘ (h_prev − c) ∘ u ∘ (1 − u)
    d_r̄ = d_c̄ ∘ hc ∘ r ∘ (1 − r)
    x_grad = [d_r̄ d_ū d_c̄] · w_xᵀ
    h_prev_grad = [d_r̄ d_ū d_c̄∘r] · w_hᵀ + d_h ∘ u
)doc",
      kZoneoutGradDoc, kRecomputeGradDoc, kMaskedGradDoc}},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_GRU_DOCS_H_
