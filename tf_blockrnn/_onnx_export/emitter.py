"""Emits ONNX nodes in place of a node of a tf2onnx graph."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_blockrnn._ops import number_attrs


class Unsupported(Exception):
    """The reason why a node has no equivalent in ONNX.

    keras_has_it: whether Keras' own layers compute the same.
    """

    def __init__(self, reason: str, keras_has_it: bool = True) -> None:
        super().__init__(reason)
        self.keras_has_it = keras_has_it


class Emitter:
    """The ONNX nodes that replace one node.

    Tensors are names, as in ONNX. The methods that are called like ONNX ops differ in what their
    opsets changed: axes and sizes that were attributes and became inputs.
    """

    def __init__(self, graph: Any, node: Any):
        self._graph = graph
        self._node = node
        self._inputs = list(node.input)
        self._outputs = list(node.output)
        self._make_name = importlib.import_module("tf2onnx.utils").make_name

    # ---- the node that is replaced

    def input(self, index: int) -> str:
        return self._inputs[index]

    @property
    def inputs(self) -> list[str]:
        return list(self._inputs)

    def has_attr(self, name: str) -> bool:
        return self._node.get_attr(name) is not None

    def attr(self, name: str) -> Any:
        """The value of an attribute; text as str, or as the number that it is."""
        value = self._node.get_attr_value(name)
        if not isinstance(value, bytes):
            return value
        return float(value) if name in number_attrs.NAMES else value.decode()

    def shape(self, tensor: str) -> list[int] | None:
        """Dims, -1 where unknown; None for an unknown rank."""
        return self._graph.get_shape(tensor)

    def known_dim(self, tensor: str, axis: int, what: str) -> int:
        shape = self.shape(tensor)
        if shape is None or len(shape) <= axis or shape[axis] is None or shape[axis] < 0:
            raise Unsupported(f"the size of {what} is unknown")
        return int(shape[axis])

    def is_given(self, tensor: str) -> bool:
        """Whether an optional input is there; the ops take a shape of [0] for none."""
        return self.shape(tensor) != [0]

    def is_used(self, output: int) -> bool:
        name = self._outputs[output]
        return name in self._graph.outputs or bool(self._graph.find_output_consumers(name))

    def numpy_dtype(self, tensor: str) -> np.dtype:
        """float16 or float32.

        Raises:
          Unsupported: it is of another type.
        """
        onnx = importlib.import_module("onnx")
        found = self._graph.get_dtype(tensor)
        name = onnx.TensorProto.DataType.Name(found)
        # tf2onnx takes bfloat16 for float16, but not in constants: any input that is left out.
        constants = [self.constant_or_none(each) for each in self._inputs]
        if any(value is not None and value.dtype.name == "bfloat16" for value in constants):
            name = "BFLOAT16"
        if name not in ("FLOAT", "FLOAT16"):
            raise Unsupported(
                f"it computes in {name.lower()}, and ONNX Runtime in float and float16 only"
            )
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(found))

    def constant_or_none(self, tensor: str) -> np.ndarray | None:
        """The value of an input that is a constant."""
        if not self._graph.is_const(tensor):
            return None
        return self._graph.get_tensor_value(tensor, as_list=False)

    def replace(self, outputs: dict[int, str]) -> None:
        """Puts tensors in place of the node's outputs.

        Raises:
          Unsupported: another output is used.
        """
        missing = [n for n in range(len(self._outputs)) if n not in outputs and self.is_used(n)]
        if missing:
            raise Unsupported(
                f"its output {missing[0]} is used, a value within a step that ONNX does not return"
            )
        described = {
            n: (self._graph.get_shape(self._outputs[n]), self._graph.get_dtype(self._outputs[n]))
            for n in outputs
        }
        self._graph.remove_node(self._node.name)
        for n, tensor in outputs.items():
            shape, dtype = described[n]
            self._graph.make_node(
                "Identity", [tensor], outputs=[self._outputs[n]], shapes=[shape], dtypes=[dtype]
            )

    # ---- ONNX nodes

    def op(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        return self.ops(op_type, inputs, 1, **attrs)[0]

    def ops(self, op_type: str, inputs: Sequence[str], outputs: int, **attrs: Any) -> list[str]:
        name = self._make_name(f"{self._node.name}_{op_type}")
        made = self._graph.make_node(
            op_type, list(inputs), attr=attrs, output_count=outputs, name=name
        )
        return list(made.output)

    def const(self, value: Any, dtype: Any = None) -> str:
        array = np.asarray(value, dtype)
        return self._graph.make_const(self._make_name(f"{self._node.name}_const"), array).output[0]

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    def cast(self, tensor: str, dtype: Any) -> str:
        helper = importlib.import_module("onnx").helper
        return self.op("Cast", tensor, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _with_axes(self, op_type: str, tensor: str, axes: Sequence[int], **attrs: Any) -> str:
        if self._graph.opset >= 13:
            return self.op(op_type, tensor, self.ints(*axes), **attrs)
        return self.op(op_type, tensor, axes=list(axes), **attrs)

    def squeeze(self, tensor: str, *axes: int) -> str:
        return self._with_axes("Squeeze", tensor, axes)

    def unsqueeze(self, tensor: str, *axes: int) -> str:
        return self._with_axes("Unsqueeze", tensor, axes)

    def reduce_sum(self, tensor: str, axis: int) -> str:
        return self._with_axes("ReduceSum", tensor, [axis], keepdims=0)

    def split(self, tensor: str, axis: int, sizes: Sequence[int]) -> list[str]:
        if len(sizes) == 1:
            return [tensor]
        if self._graph.opset >= 13:
            return self.ops("Split", [tensor, self.ints(*sizes)], len(sizes), axis=axis)
        return self.ops("Split", [tensor], len(sizes), axis=axis, split=list(sizes))

    def concat(self, tensors: Sequence[str], axis: int) -> str:
        return tensors[0] if len(tensors) == 1 else self.op("Concat", *tensors, axis=axis)

    def transpose(self, tensor: str, *perm: int) -> str:
        return self.op("Transpose", tensor, perm=list(perm))

    def slice(self, tensor: str, axis: int, start: int, end: int) -> str:
        bounds = (self.ints(start), self.ints(end), self.ints(axis))
        return self.op("Slice", tensor, *bounds)

    def dim(self, tensor: str, axis: int) -> str:
        """A dim as an int64 tensor [1]."""
        return self.slice(self.op("Shape", tensor), 0, axis, axis + 1)

    def take_blocks(self, tensor: str, axis: int, size: int, order: Sequence[int]) -> str:
        """The blocks of `size` along an axis, in another order."""
        if list(order) == list(range(len(order))):
            return tensor
        blocks = self.split(tensor, axis, [size] * len(order))
        return self.concat([blocks[n] for n in order], axis)
