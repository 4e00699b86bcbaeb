"""`report`: which recurrent layers of a model run on the fused ops, and why the others do not."""

from __future__ import annotations

import html
import itertools
import sys
import textwrap
from collections.abc import Iterable
from typing import Any, NamedTuple

import keras

from tf_blockrnn import _enable_keras, _keras_private, _model_functions, _recurrent_parts
from tf_blockrnn._ops import xla

_WIDTH = 100
_HEADINGS = ("layer", "class", "fused")
_MOST = (53, 36, 7)  # the widths of the columns
_WORDS = {True: "yes", False: "no", None: "depends"}


class Row(NamedTuple):
    """A recurrent layer or cell of a model.

    path: the names of the layers around it and its own, joined by "/".
    layer_class: as "keras.layers.LSTM"; a subclass as "Mine(keras.layers.LSTM)".
    fused: whether it runs on the op; None where that depends on what `reason` says.
    reason: why it does not, or "".
    change: what would let it run on the op, or "" where nothing of this package would.
    """

    path: str
    layer_class: str
    fused: bool | None
    reason: str
    change: str


class Report:
    """What `report` returns: a text as `str`, a table in notebooks, and the data.

    Attributes:
      rows: a tuple of `Row`s, in the order of the model.
      enabled: whether `tf_blockrnn.enable_keras` is on, for the Keras of the model.
      traced_again: which of the model's functions, of "train", "test" and "predict", were traced
        before the last switch; the next call of `fit`, `evaluate` or `predict` traces them again.
    """

    def __init__(self, title: str, rows: Iterable[Row], enabled: bool, traced_again: Iterable[str]):
        self._title = title
        self.rows = tuple(rows)
        self.enabled = enabled
        self.traced_again = tuple(traced_again)

    def __str__(self) -> str:
        head = [line for text in self._head() for line in textwrap.wrap(text, _WIDTH)]
        return "\n".join([*head, "", *_table(self.rows)] if self.rows else head)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "<br>".join(map(html.escape, self._head()))
        cells = [("th", (*_HEADINGS, "why", "change"))]
        for row in self.rows:
            cells.append(("td", (*row[:2], _WORDS[row.fused], *row[3:])))
        lines = [
            "".join(
                f'<{tag} style="text-align: left">{html.escape(text)}</{tag}>' for text in texts
            )
            for tag, texts in cells
        ]
        table = "".join(f"<tr>{line}</tr>" for line in lines) if self.rows else ""
        return f"<p>{head}</p><table>{table}</table>"

    def _head(self) -> list[str]:
        fused = sum(row.fused is True for row in self.rows)
        count = f"{fused} of {len(self.rows)} recurrent layers and cells run on the fused ops."
        lines = [
            f"{self._title}: {count if self.rows else 'no recurrent layers or cells.'}",
            f"tf_blockrnn.enable_keras() is {'on' if self.enabled else 'off'}.",
        ]
        if self.traced_again:
            lines.append(
                f"Traced before the last switch: {', '.join(self.traced_again)}. The next call of "
                "fit, evaluate or predict traces again."
            )
        lines.append("A tf.function of your own keeps the operations with which it was traced.")
        return lines


def report(model: Any) -> Report:
    """Lists the recurrent layers of a model: which run on the fused ops, and why others do not.

    It takes any model in any state: with plain Keras layers, under `enable_keras` or not, fused by
    `fuse_model`, with the layers of this package, of Keras 3 or of tf_keras. The layers are found
    in wrappers, nested models, `keras.layers.RNN` and `StackedRNNCells`; those of a subclassed
    model once it has created them. Nothing is called or changed.

    What it says holds for the next trace. A `tf.function` of your own, or an exported model, keeps
    the operations with which it was traced.

    Args:
      model: a model, layer or cell of Keras 3 or tf_keras.

    Returns:
      An object that prints as a table. Its `rows` are tuples `(path, layer_class, fused, reason,
      change)`: `fused` is True, False, or None where it depends on what `reason` says, and `change`
      says what would let the layer run on the op. `enabled` says whether `enable_keras` is on, and
      `traced_again` which of the model's functions ("train", "test", "predict") were traced before
      the last switch and will be traced again at the next `fit`, `evaluate` or `predict`.

    Raises:
      TypeError: model is none of these.

    Example:
      >>> import keras, tf_blockrnn
      >>> both = keras.layers.Bidirectional(keras.layers.LSTM(4, name="lstm"), name="both")
      >>> model = keras.Sequential([keras.Input((None, 3)), both], name="model")
      >>> print(tf_blockrnn.report(model))
      Model 'model' of Keras 3: 0 of 2 recurrent layers and cells run on the fused ops.
      tf_blockrnn.enable_keras() is off.
      A tf.function of your own keeps the operations with which it was traced.
      <BLANKLINE>
      layer               class              fused
      both/forward_lstm   keras.layers.LSTM  no
          why: tf_blockrnn.enable_keras() is off
          change: tf_blockrnn.enable_keras(), or tf_blockrnn.fuse_model(model)
      both/backward_lstm  keras.layers.LSTM  no
          why: tf_blockrnn.enable_keras() is off
          change: tf_blockrnn.enable_keras(), or tf_blockrnn.fuse_model(model)
      >>> with tf_blockrnn.enable_keras():
      ...     [row.fused for row in tf_blockrnn.report(model).rows]
      [True, True]
    """
    if isinstance(model, keras.Layer):
        library = _recurrent_parts.Keras3(_enable_keras.keras3_enabled())
    elif "tf_keras" in sys.modules and isinstance(model, sys.modules["tf_keras"].layers.Layer):
        library = _recurrent_parts.TFKeras()
    else:
        raise TypeError(
            "report: model must be a model or layer of Keras 3 or tf_keras, got "
            f"{type(model).__name__}"
        )
    not_by_xla = xla.why_not_compiled() if _keras_private.is_compiled_by_xla(model) else None
    rows = []
    for layer, path in _recurrent_parts.recurrent(model, library):
        judged = library.judge(layer)
        if not_by_xla and judged.fused is not False:
            judged = (False, not_by_xla, "model.compile(..., jit_compile=False)")
        rows.append(Row(path, _recurrent_parts.class_name(layer), *judged))
    kind = "Model" if isinstance(model, library.model_class) else "Layer"
    title = f"{kind} {model.name!r} of {library.name}"
    return Report(title, rows, library.enabled, _model_functions.to_be_renewed(model))


def _table(rows: Iterable[Row]) -> list[str]:
    """The lines of a table with aligned columns, and the reasons below the layers."""
    texts = [_HEADINGS, *((row.path, row.layer_class, _WORDS[row.fused]) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    widths = [min(width, most) for width, most in zip(widths, _MOST, strict=True)]
    lines = _aligned(_HEADINGS, widths)
    for text, row in zip(texts[1:], rows, strict=True):
        lines += _aligned(text, widths)
        lines += _indented("why: ", row.reason) + _indented("change: ", row.change)
    return lines


def _aligned(texts: tuple[str, ...], widths: list[int]) -> list[str]:
    """One line of a table, or more where a text is longer than its column."""
    cut = [
        [text[start : start + width] for start in range(0, len(text), width)]
        for text, width in zip(texts, widths, strict=True)
    ]
    rows = itertools.zip_longest(*cut, fillvalue="")
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _indented(word: str, text: str) -> list[str]:
    options = {"initial_indent": f"    {word}", "subsequent_indent": " " * (4 + len(word))}
    return textwrap.wrap(text, _WIDTH, break_on_hyphens=False, **options)
