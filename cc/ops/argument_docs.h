// Defines the docs of arguments and attrs that all ops share, by name, and what
// is said of them in paragraphs of their own.

#ifndef BLOCKRNN_OPS_ARGUMENT_DOCS_H_
#define BLOCKRNN_OPS_ARGUMENT_DOCS_H_

#include <string_view>

#include "cc/ops/op_docs.h"

namespace blockrnn {

inline constexpr ArgumentDoc kArgumentDocs[] = {
    {"x", "The input"},
    {"h_prev", "The state before the first step"},
    {"cs_prev", "The cell state before the first step"},
    {"seq_len_max", "How many steps are computed, 0..T", "On the host."},
    {"w", "Weights", "The rows of x come first, then those of h_prev."},
    {"w_ru", "Weights of the gates r, u",
     "The rows of x come first, then those of h_prev."},
    {"w_c", "Weights of the candidate", "Rows as in w_ru."},
    {"w_x", "Weights of the input",
     "Gates in the order of the equations, or by gate_order. Left out where x "
     "is x · w_x already, of that width."},
    {"w_h", "Weights of the state", "Columns in the order of w_x."},
    {"w_p", "Weights of the projection", "P is H without one."},
    {"b", "Biases", "In the order of the weights' columns."},
    {"b_ru", "Biases of the gates r, u"},
    {"b_c", "Bias of the candidate"},
    {"b_x", "Biases added to x · w_x, or to its norm", "In the order of w_x."},
    {"b_h", "Biases added to h_prev · w_h, or to its norm",
     "In the order of w_x."},
    {"wci", "Peephole weights of the input gate"},
    {"wcf", "Peephole weights of the forget gate"},
    {"wco", "Peephole weights of the output gate"},
    {"peepholes",
     "The peephole weights wci, wcf, wco from the cell state to the gates i, "
     "f, o"},
    {"mask", "False where a step of a row is skipped"},
    {"sequence_lengths", "The length of each row, 0..T"},
    {"resets",
     "True where a new sequence begins: no state passes between that step and "
     "the one before it",
     "On the host."},
    {"recurrent_dropout",
     "Factors of the state before a step in its GEMM with each gate's weights, "
     "in their order"},
    {"zoneout_h",
     "True where a step leaves h as it was before. Without it and with "
     "zoneout_rate_h, h is the mean"},
    {"zoneout_c",
     "True where a step leaves cs as it was before. Without it and with "
     "zoneout_rate_c, cs is the mean"},
    {"zoneout_rate_h",
     "The share of the h before a step in the one after it, in 0..1, where "
     "zoneout_h is left out."},
    {"zoneout_rate_c",
     "The share of the cs before a step in the one after it, in 0..1, where "
     "zoneout_c is left out."},
    {"i", "The input gate"},
    {"f", "The forget gate"},
    {"o", "The output gate"},
    {"ci", "The cell input"},
    {"cs", "The cell state after each step"},
    {"co", "The tanh of the cell state"},
    {"r", "The reset gate"},
    {"u", "The update gate"},
    {"c", "The candidate"},
    {"hc", "What the reset gate is applied to, h_prev · w_h,c + b_h,c"},
    {"h", "The state after each step"},
    {"gamma_x", "Scale of the normalised x · w_x"},
    {"beta_x", "Offset of the normalised x · w_x"},
    {"gamma_h", "Scale of the normalised h_prev · w_h"},
    {"beta_h", "Offset of the normalised h_prev · w_h"},
    {"gamma_c", "Scale of the normalised cell state"},
    {"beta_c", "Offset of the normalised cell state"},
    {"x_hat", "x · w_x normalised, before gamma_x and beta_x"},
    {"h_hat", "h_prev · w_h normalised, before gamma_h and beta_h"},
    {"rstd",
     "The reciprocal standard deviations of the rows of x · w_x and of "
     "h_prev · w_h"},
    {"d_c_bar", "The gradient of the candidate's pre-activation"},
    {"d_r_bar_u_bar", "The gradients of the pre-activations of r, u"},
    {"dicfo", "The gradients of the pre-activations of i, ci, f, o"},
    {"h_last", "The state after the last step done"},
    {"cs_last", "The cell state after the last step done"},
    {"forget_bias", "Added to the forget gate's pre-activation."},
    {"cell_clip",
     "The bound of the cell state; no bound unless it is above 0."},
    {"use_peephole", "Whether the gates see the cell state."},
    {"epsilon", "Added to the variances, above 0."},
    {"norm_output_only",
     "Whether h alone is made of the norm of the cell state."},
    {"gate_order", "The order of the gates in the weights and biases."},
    {"activation", "The activation act."},
    {"time_major",
     "Whether the first dim of sequences is T; otherwise it is B."},
    {"go_backwards", "Whether the last step is done first."},
    {"is_training", "Whether to save what the gradient needs."},
    {"recompute",
     "0, or the least number of steps after which the state is saved for the "
     "gradient instead of the gates of all steps, which the gradient then "
     "computes again; -1 for half the square root of T."},
    {"span_states",
     "The states that are saved with recompute, in the engine's own form"},
    {"frozen",
     "Empty, or for inference the fingerprint of the weights, biases and "
     "peepholes, 32 hex digits for each of these inputs. They are then packed "
     "in the first call and the packed form is kept; inputs of another "
     "fingerprint are an error, so are is_training, recurrent_dropout and a "
     "gradient."},
    {"precision",
     "How frozen weights are packed. Another than float32 is for float alone, "
     "and for CPUs."},
    {"Tlen", "The type of sequence_lengths."},
    {"input", "The input"},
    {"input_h", "The initial state of each layer and direction"},
    {"input_c", "The initial cell state of each layer and direction"},
    {"params", "Weights and biases in one array"},
    {"output", "The output of the last layer"},
    {"output_h", "The final state of each layer and direction"},
    {"output_c", "The final cell state of each layer and direction"},
    {"reserve_space", "What the backprop op needs; empty without is_training"},
    {"host_reserved", "Always empty; only cuDNN needs it"},
    {"rnn_mode", "The cell of all layers."},
    {"input_mode",
     "Whether layer 0 has weights for its input (`linear_input`) or adds the "
     "input to each gate as it is (`skip_input`, where I = H); `auto_select` "
     "skips where I = H."},
    {"direction", "Whether each layer has a backward direction, too."},
    {"dropout", "The share that is dropped between layers, in [0, 1)."},
    {"seed", "The first half of the seed of dropout."},
    {"seed2", "The second half of the seed of dropout."},
    {"num_proj", "P of an lstm with a projection, at most H; 0 for none."},
    {"num_layers", "L, the number of layers, at least 1"},
    {"num_units", "H, the number of units of a layer"},
    {"input_size", "I, the number of inputs"},
    {"params_size", "The number of elements of params"},
    {"weights", "The matrices, each `[H, width]`, `[H, P]` or `[P, H]`"},
    {"biases", "The biases, each `[H]`"},
    {"num_params", "The number of weights, and of biases."},
    {"num_params_weights", "The number of weights."},
    {"num_params_biases", "The number of biases."},
};

// What is added for a number that the op has as text.
inline constexpr char kNumberDoc[] =
    " The op has it in decimal text, which keeps all bits of a double.";

// ------------------------------------- paragraphs that follow from the row

inline constexpr char kTypesAndSizesDoc[] =
    R"doc(half and bfloat16 are computed in float32. A sequence, batch, input or state of
size 0 is allowed.
)doc";

// What forward ops say of an input that they have, and gradient ops.
struct InputParagraphs {
  std::string_view input;
  const char* forward;
  const char* gradient;
};
inline constexpr InputParagraphs kInputParagraphs[] = {
    {"seq_len_max",
     "Steps from seq_len_max on are not computed; all outputs are zeros "
     "there.\n",
     R"doc(Nothing is read of the steps from seq_len_max on, and x_grad is zeros there.
)doc"},
    {"recurrent_dropout",
     R"doc(Recurrent dropout (Gal and Ghahramani 2016, arXiv:1512.05287) multiplies h_prev
by factors in its GEMM with the weights: other factors for each gate, the same
at all steps.
)doc",
     ""},
    {"zoneout_h",
     R"doc(Zoneout (Krueger et al. 2016, arXiv:1606.01305) then puts the h before the step
in place of the new one where zoneout_h is true; or, where zoneout_h is left
out, h = zoneout_rate_h · h_prev + (1 − zoneout_rate_h) · h, the mean over draws
of that rate.
)doc",
     R"doc(Where zoneout has left a state as it was, its gradient goes to the state before
the step; the mean passes the share zoneout_rate_h, or zoneout_rate_c, of it on.
)doc"},
    {"zoneout_c",
     R"doc(The same with zoneout_c and zoneout_rate_c for cs; h is made of the new cs, before
its zoneout. With a projection zoneout_h is that of the projected h.
)doc",
     ""},
    {"span_states", "",
     R"doc(With recompute, that of the forward op, the gates that it has not saved are
computed again from span_states, span after span of steps: the gradient has the
same bits. span_states is empty without recompute.
)doc"},
    {"mask",
     R"doc(Where mask is false, the step of that row is skipped: the state stays as it is,
h repeats it, and the saved gates are zeros. From a row's length in
sequence_lengths on there are no steps: x is not read, all outputs are zeros,
and no time is spent. With go_backwards the last step is done first; with
sequence_lengths, the last that the row has. Every output is at the position of
its input, whatever the order.
)doc",
     R"doc(A masked step passes the gradient of the state on unchanged; from a row's
length on x_grad is zeros.
)doc"},
    {"resets",
     R"doc(Where resets is true at step t of a row, a new sequence begins there: the state
before step t is zeros, or with go_backwards that before step t - 1. h_prev is
the state before the first step done, unless that begins with a reset; h_last
is that after the last step done. A masked step carries the state after the
reset.
)doc",
     R"doc(No gradient passes a reset.
)doc"},
    {"x", kTypesAndSizesDoc, ""},
    {"input", kTypesAndSizesDoc, ""},
};

}  // namespace blockrnn

#endif  // BLOCKRNN_OPS_ARGUMENT_DOCS_H_
