"""Conversion of the ops to ONNX by tf2onnx, and so by `model.export(path, format="onnx")`.

tf2onnx converts a TensorFlow graph op by op with the handlers in its registry. The handlers here
write ONNX's own LSTM, GRU and RNN nodes. tf2onnx catches and logs the exceptions of handlers, then
writes a file that holds the op as it is, which ONNX Runtime refuses. Therefore a refusal of ours is
no `Exception` while it passes through tf2onnx; `register` wraps the caller of the handlers, which
turns it into one.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tf_blockrnn import _loader, raw_ops
from tf_blockrnn._onnx_export import cells, cudnn, sequences, states
from tf_blockrnn._onnx_export.emitter import Emitter, Unsupported

_NAMESPACE = "BlockRNN>"
# The first opset with TopK of integers, GatherElements and CumSum; tf2onnx's default is 15.
_MIN_OPSET = 11

_LOWERINGS: dict[str, Callable[[Emitter], None]] = {
    **sequences.LOWERINGS,
    **cells.LOWERINGS,
    **cudnn.LOWERINGS,
}


class _Refusal(BaseException):
    """Passes through tf2onnx, which catches every Exception of a handler and only logs it."""


def _handle(graph: Any, node: Any, **_: Any) -> None:
    """A handler as tf2onnx calls it."""
    op = node.type.removeprefix(_NAMESPACE)
    kind, name = node.type, node.name
    try:
        if graph.opset < _MIN_OPSET:
            raise Unsupported(f"it needs opset {_MIN_OPSET} at least, this is {graph.opset}")
        if op not in _LOWERINGS:
            raise Unsupported("ONNX has no such op")
        _LOWERINGS[op](Emitter(graph, node))
    except Exception as error:
        reason = error if isinstance(error, Unsupported) else f"{type(error).__name__}: {error}"
        advice = (
            " tf_blockrnn.unfuse_model(model) puts Keras' own layers in place of the fused ones, "
            "where Keras has such layers, and its result can be exported instead."
        )
        advised = kind.startswith(_NAMESPACE) and getattr(error, "keras_has_it", True)
        raise _Refusal(
            f"{kind} (node {name}) cannot be exported to ONNX: {reason}.{advice if advised else ''}"
        ) from error


def register(tfonnx: ModuleType) -> None:
    """Adds the handlers to tf2onnx; `tfonnx` is the module `tf2onnx.tfonnx`.

    An export that cannot be done then raises NotImplementedError, before a file is written.
    """
    handler = importlib.import_module("tf2onnx.handler")
    names = [f"{_NAMESPACE}{name}" for name in raw_ops.__all__]
    cudnn_names = list(cudnn.LOWERINGS) if _loader.extends_tensorflow() else []  # TensorFlow's own
    # Opset 1, the least: the handler itself reports one that is too low.
    handler.tf_op(names + cudnn_names).register_compat_handler(_handle, 1)
    # tf2onnx has handlers of its own for later opsets, of CudnnRNN with GRUs alone.
    for version, known in enumerate(handler.tf_op.get_opsets()[""]):
        theirs = [name for name in cudnn_names if name in known]
        handler.tf_op(theirs).register_compat_handler(_handle, version)
    states.refuse_in(importlib.import_module("tf2onnx.tf_loader"), {*names, *cudnn_names})

    convert = tfonnx.tensorflow_onnx_mapping

    @functools.wraps(convert)
    def convert_or_refuse(*args: Any, **kwargs: Any) -> Any:
        try:
            return convert(*args, **kwargs)
        except _Refusal as refusal:
            raise NotImplementedError(str(refusal)) from refusal.__cause__

    tfonnx.tensorflow_onnx_mapping = convert_or_refuse
