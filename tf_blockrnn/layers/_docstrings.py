"""Parts of docstrings that several layers and cells share.

A docstring names a part in braces, on a line of its own; `like_keras` puts the part there when the
class is defined. In the parts, {keras} is the name of Keras' class, {output} the width of h,
{inputs} the first argument of a cell's call, and {training} what depends on `training`.
"""

from __future__ import annotations

import inspect
import re
import textwrap

_PARTS = {
    "layer_of_keras": """\
Constructor and call arguments, defaults, weights (names, shapes, order), config and results are
those of `keras.layers.{keras}`, and each loads the other's weights. A step is""",
    "cell_of_keras": """\
Constructor arguments, defaults, weights (names, shapes, order) and config are those of
`keras.layers.{keras}`, so weights and configs are interchangeable. A step is""",
    # Equations.
    "gru": """\
(with z, r, h for Keras' gates and `reset_after=True`)

    z = sigmoid(x W_z + b_z + h_prev R_z + d_z)
    r = sigmoid(x W_r + b_r + h_prev R_r + d_r)
    c = tanh(x W_h + b_h + r * (h_prev R_h + d_h))
    h = z * h_prev + (1 - z) * c

(Cho et al. 2014, https://arxiv.org/abs/1406.1078v1), and with `reset_after=False`
`c = tanh(x W_h + b_h + (r * h_prev) R_h)` and no d (version 3 of the paper).""",
    "lstm": """\
    i = sigmoid(x W_i + h_prev R_i + b_i [+ c_prev * wci])
    f = sigmoid(x W_f + h_prev R_f + b_f [+ c_prev * wcf])
    c = f * c_prev + i * tanh(x W_c + h_prev R_c + b_c), clipped to +-cell_clip
    o = sigmoid(x W_o + h_prev R_o + b_o [+ c * wco])
    h = o * tanh(c), or with a projection w_p (o * tanh(c))

(Gers, Schraudolph, Schmidhuber 2002,
https://www.jmlr.org/papers/volume3/gers02a/gers02a.pdf; the projection is that of Sak, Senior,
Beaufays 2014, https://arxiv.org/abs/1402.1128). As in Keras, the forget bias of 1 is part of
the bias (`unit_forget_bias`). With peepholes there are three more weights `wci`, `wcf`, `wco`, each
`[units]`, after Keras' own; they are initially zero. The derivative of the clip is taken
as 1. With a projection there is one more weight `w_p`, `[projection, units]`, and h has the
width `projection`.""",
    "simple_rnn": """\
    h = activation(x W + h_prev R + b)

(Elman 1990, https://doi.org/10.1207/s15516709cog1402_1).""",
    "layer_norm_gru": """\
    [x_z x_r x_h] = kernel_norm(x W) + b
    [h_z h_r h_h] = recurrent_norm(h_prev R) + d
    z = sigmoid(x_z + h_z)      r = sigmoid(x_r + h_r)
    h = z * h_prev + (1 - z) * tanh(x_h + r * h_h)""",
    "layer_norm_lstm": """\
    z = kernel_norm(x W) + recurrent_norm(h_prev R) + b
    c = state_norm(sigmoid(z_f) * c_prev + sigmoid(z_i) * tanh(z_c))
    h = sigmoid(z_o) * tanh(c)""",
    # What the op supports.
    "layer_support": """\
Any mask, `dropout`, `recurrent_dropout`, zoneout, `go_backwards`, `stateful`, `unroll` (which
changes no speed) and `Bidirectional` are supported by the op too. Activations other than tanh and
sigmoid, a custom cell, `use_cudnn=True`, or a GPU where this build has no CUDA are not: the
layer then falls back to Keras' own operations and warns once; `layer.fused` and
`layer.why_not_fused` report it. XLA compiles the op too (`jit_compile=True`).""",
    "cell_support": """\
`keras.layers.RNN` over this cell, or over a stack of such cells, computes a sequence in one op for
each cell. `dropout` and `recurrent_dropout` are supported by the op too. Activations other than
tanh and sigmoid, or a GPU where this build has no CUDA are not: the cell then falls back to Keras'
own operations and warns once; `cell.fused` and `cell.why_not_fused` report it.""",
    # Arguments of constructors.
    "peephole_arguments": """\
use_peephole: whether the gates read the cell state through peepholes.
cell_clip: bound of the cell state, above 0; None for no bound.
projection: size of the projected output; None for no projection.""",
    "zoneout_h": """\
zoneout_h: rate of zoneout of h (Krueger et al. 2016, https://arxiv.org/abs/1606.01305),
  0..1: in training the probability that a unit of h keeps its previous value, drawn for every
  step, row and unit; at inference h is the mean, rate * h_prev + (1 - rate) * h.""",
    "zoneout_c": """\
zoneout_c: the same for the cell state; h is computed from the new cell state before its
  zoneout.""",
    "norm_arguments": """\
norm_gamma_initializer, norm_beta_initializer: initializers of the norms' weights.
norm_epsilon: added to the variances, above 0.""",
    "norm_output_only": """\
norm_output_only: False: the next step uses the normalised c, as above. True: only the output uses
  it, and the next step uses c before its norm, as in the paper.""",
    "recompute": """\
recompute: for long sequences: whether training recomputes the gates of all steps in the backward
  pass instead of saving them, in a fraction of the memory; or the minimum number of steps that
  are recomputed together. See `tf_blockrnn.lstm`.""",
    # Arguments of calls, and results.
    "layer_call": """\
Call arguments:
  sequences: `[batch, steps, features]`.
  initial_state: `[batch, units]`, or a list of this one tensor; zeros when None.
  mask: `[batch, steps]`, False where a step is skipped; None skips no step.
  training: whether to apply {training}.
  resets: bool, `[batch, steps]`, True where a new sequence begins: the state before that step is
    zero, or with `go_backwards` that before the step which precedes it in time. See
    `tf_blockrnn.pack_sequences`. None: rows are whole sequences. Another type is a TypeError.

Returns:
  The output after the last step, `[batch, units]`, or with `return_sequences` the outputs of
  all steps, `[batch, steps, units]`; with `return_state` a tuple of this and the last state,
  `[batch, units]`. All have the layer's compute dtype: float16, bfloat16, float32 or float64.""",
    "lstm_layer_call": """\
Call arguments:
  sequences: `[batch, steps, features]`.
  initial_state: a list of h, `[batch, {output}]`, and c, `[batch, units]`; zeros
    when None.
  mask: `[batch, steps]`, False where a step is skipped; None skips no step.
  training: whether to apply {training}.
  resets: bool, `[batch, steps]`, True where a new sequence begins: the state before that step is
    zero, or with `go_backwards` that before the step which precedes it in time. See
    `tf_blockrnn.pack_sequences`. None: rows are whole sequences. Another type is a TypeError.

Returns:
  The output after the last step, `[batch, {output}]`, or with `return_sequences`
  the outputs of all steps, `[batch, steps, {output}]`; with `return_state` a tuple
  of this and the last states h and c. All have the layer's compute dtype: float16, bfloat16,
  float32 or float64.""",
    "cell_call": """\
Call arguments:
  {inputs}: `[batch, features]`.
  states: `[batch, units]`, or a list of this one tensor.
  training: whether to apply {training}.

Returns:
  The output h, `[batch, units]`, and the new state, in a list if `states` is one. Both
  have the cell's compute dtype: float16, bfloat16, float32 or float64.""",
    "lstm_cell_call": """\
Call arguments:
  {inputs}: `[batch, features]`.
  states: h, `[batch, {output}]`, and c, `[batch, units]`.
  training: whether to apply {training}.

Returns:
  The output h, `[batch, {output}]`, and the new states `[h, c]`, in the cell's compute dtype:
  float16, bfloat16, float32 or float64.""",
}


def filled(docstring: str, **words: str) -> str:
    """The docstring with the parts that it names, and the words that these name.

    Example:
      >>> from tf_blockrnn.layers import _docstrings
      >>> print(_docstrings.filled("Args:\\n  {zoneout_c}"))
      Args:
        zoneout_c: the same for the cell state; h is computed from the new cell state before its
          zoneout.
    """

    def part(found: re.Match[str]) -> str:
        return textwrap.indent(_PARTS[found["name"]], found["indent"])

    text = inspect.cleandoc(docstring)
    text = re.sub(r"^(?P<indent> *)\{(?P<name>\w+)\}$", part, text, flags=re.MULTILINE)
    for name, word in words.items():
        text = text.replace(f"{{{name}}}", word)
    return text
