"""What the docstrings of the public functions have in common, written once."""

from __future__ import annotations

import re
import textwrap

# By name; {0} and {1} are what a docstring gives with the name.
_FRAGMENTS = {
    "x": """
        x: input, [B, T, I], or [T, B, I] with time_major; half, bfloat16, float32 or float64, the
          same type as weights and states. Numbers and NumPy arrays are converted to it.
    """,
    "block_x": """
        x: input, [T, B, I]; half, bfloat16, float32 or float64, as all other tensors.
    """,
    "dropout": """
        recurrent_dropout_factors: [{0}, B, {1}], factors of the state in its GEMM with w_h, for
          each gate in the order of w_x, the same at all steps: 0, or 1 / (1 - rate)
          (arXiv:1512.05287). They have no gradient.
    """,
    "zoneout": """
        zoneout_h: zoneout of h (Krueger et al. 2016, arXiv:1606.01305): for training bool draws,
          [B, T, {0}], or [T, B, {0}] with time_major, True where h keeps its previous value h'; for
          inference the rate of the draws, 0..1: h is then their mean, rate · h' + (1 − rate) · h.
    """,
    "steps": """
        lengths: length of each row, int32 or int64 [B], in 0..T. Later outputs are zeros, and the
          state is that of the row's last step.
        mask: bool, or integers, of which 0 is False, [B, T], or [T, B] with time_major. Where it is
          False the step is skipped: the state does not change, and the output repeats it. On a CPU,
          padding at either end of a row takes no time.
        resets: bool, [B, T], or [T, B] with time_major. True where a new sequence begins: the state
          before that step is zeros, or with go_backwards the state before the step that precedes
          it in time, and no gradient passes. The initial state is that of the piece that is
          processed first, unless a row that is processed forwards begins with a reset; the state
          returned is that after the piece processed last. A masked step keeps the state after the
          reset. On a GPU, resets is read on the host. See `pack_sequences`.
        time_major: whether the first dim of x, mask, resets and the outputs is T; it makes no call
          faster.
        go_backwards: whether steps are processed from the last to the first, with lengths from the
          last within them. Each output is at the position of its input.
    """,
    "recompute": """
        recompute: for long sequences: True trains in a fraction of the memory. The gates are then
          not saved for backward, but recomputed span by span from saved states: the same gradients
          to the bit, for about a third more time. A number is the minimum number of steps of a
          span; True is half the square root of T.
    """,
    "norms": """
        kernel_norm: (gamma, beta) of the norm of x · w_x, each [{0}H].
        recurrent_norm: (gamma, beta) of the norm of h · w_h, each [{0}H].
    """,
    "name": """
        name: name of the op in a graph.
    """,
    "length": """
        seq_len_max: number of steps to compute, 0..T; None: all. Later outputs are zeros.
    """,
    "cell_clip": """
        cell_clip: bound of the cell state{0}; None, 0 or less: no bound. The gradient ignores
          the clip.
    """,
    "block_state": """
        initial_state: LSTMState or a tuple (h, cs): output and cell state before the first step,
          each [B, H]; zeros when None.
        peepholes: (wci, wcf, wco), each [H]; None: no peepholes.
    """,
    "block_gru_weights": """
        w_ru: weights of the gates r, u, [I+H, 2H]; the rows of x first, then those of the state.
        w_c: weights of the candidate, [I+H, H].
        b_ru: biases of the gates r, u, [2H].
        b_c: bias of the candidate, [H].
    """,
    "gru_weights": """
        w_x: weights of the input, [I, 3H]; columns r, u, c (reset, update, candidate). None: x is
          already x · w_x, of width 3H.
        w_h: weights of the state, [H, 3H], in the order of w_x.
    """,
    "outputs": """
        (outputs, state): the outputs of all steps, [B, T, H], or [T, B, H] with time_major, and the
        state after the last step, [B, H].
    """,
    "block_lstm_outputs": """
        LSTMOutputs(i, cs, f, o, ci, co, h), each {0}: input gate, cell state, forget gate, output
        gate, cell input, tanh of the cell state, output.
    """,
    "wrong": """
        tf.errors.InvalidArgumentError: a shape does not match{0} (ValueError if detected while a
          graph is built).
        TypeError: an argument has the wrong type.
    """,
}
_LINE = re.compile(r"^( *)\{(\w+)(?:: (.*))?\}$", re.MULTILINE)


def completed(docstring: str | None) -> str | None:
    """A docstring with the fragments in place of lines such as `{steps}` and `{dropout: 4 | H}`.

    Example:
      >>> from tf_blockrnn._ops import docstrings
      >>> print(docstrings.completed("Args:\\n  {norms: 4}"))
      Args:
        kernel_norm: (gamma, beta) of the norm of x · w_x, each [4H].
        recurrent_norm: (gamma, beta) of the norm of h · w_h, each [4H].
    """

    def fragment(line: re.Match[str]) -> str:
        text = textwrap.dedent(_FRAGMENTS[line[2]]).strip()
        return textwrap.indent(text.format(*(line[3] or "").split(" | ")), line[1])

    return docstring and _LINE.sub(fragment, docstring)
