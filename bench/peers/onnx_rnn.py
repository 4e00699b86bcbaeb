"""ONNX Runtime's LSTM, GRU and RNN nodes (inference only), the model built here."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import data, machine
from bench.peers import base
from bench.shapes import Case

# ONNX: i, o, f, c; z (update), r, h
_ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}
_OPSET, _IR_VERSION = 14, 8  # old enough for every ONNX Runtime of the last years


class Peer:
    """`option` "after" is GRU with linear_before_reset=1, "before" with 0.

    Then, or nothing: ",call" for whole calls, NumPy in and NumPy out; ",one" for one thread;
    ",int8" for weights in int8.
    """

    def __init__(self, option: str, threads: int) -> None:
        import onnx
        import onnxruntime

        self._onnx, self._runtime = onnx, onnxruntime
        form, *more = option.split(",")
        self._linear_before_reset = int(form == "after")
        self._threads = 1 if "one" in more else threads
        self._calls, self._int8 = "call" in more, "int8" in more

    def _model(self, case: Case, arrays: data.Arrays) -> bytes:
        helper, numpy_helper = self._onnx.helper, self._onnx.numpy_helper
        real, whole = self._onnx.TensorProto.FLOAT, self._onnx.TensorProto.INT32
        attributes: dict[str, Any] = {"hidden_size": case.units}
        if case.directions == 2:
            attributes["direction"] = "bidirectional"
        if case.cell == "gru":
            attributes["linear_before_reset"] = self._linear_before_reset
        constants = {"width": np.array([0, 0, -1], np.int64)} if case.layers > 1 else {}
        inputs = [helper.make_tensor_value_info("X", real, [case.steps, case.batch, case.inputs])]
        lengths = ""
        if case.lengths != "full":
            lengths = "lengths"
            inputs.append(helper.make_tensor_value_info(lengths, whole, [case.batch]))
        nodes, below = [], "X"
        for layer in range(case.layers):
            names = [f"{name}{layer}" for name in "WRBY"]
            constants |= self._constants(case, arrays, layer, names)
            nodes.append(
                helper.make_node(
                    case.cell.upper(), [below, *names[:3], lengths], [names[3]], **attributes
                )
            )
            if layer + 1 < case.layers:  # [T, D, B, H] to [T, B, D * H]
                transposed, below = f"transposed{layer}", f"H{layer}"
                nodes.append(
                    helper.make_node("Transpose", names[3:], [transposed], perm=[0, 2, 1, 3])
                )
                nodes.append(helper.make_node("Reshape", [transposed, "width"], [below]))
        graph = helper.make_graph(
            nodes,
            "stack",
            inputs,
            [helper.make_tensor_value_info(nodes[-1].output[0], real, self._output(case))],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR_VERSION
        return model.SerializeToString()

    @staticmethod
    def _output(case: Case) -> list[int]:
        return [case.steps, case.directions, case.batch, case.units]

    def _constants(
        self, case: Case, arrays: data.Arrays, layer: int, names: Sequence[str]
    ) -> dict[str, np.ndarray]:
        """The weights and biases of a layer, direction by direction."""
        first = layer * case.directions
        order = _ORDERS[case.cell]
        parts = []
        for weights in arrays.weights[first : first + case.directions]:
            w, r, bias = weights.below(order)
            parts.append((w, r, np.concatenate([bias, np.zeros_like(bias)])))
        stacked = map(np.stack, zip(*parts, strict=True))
        return dict(zip(names[:3], stacked, strict=True))

    def _quantised(self, model: bytes) -> bytes:
        """The model with weights in int8 and inputs quantised at each call."""
        from onnxruntime import quantization

        with tempfile.TemporaryDirectory() as folder:
            before, after = (pathlib.Path(folder) / f"{name}.onnx" for name in ("before", "after"))
            before.write_bytes(model)
            quantization.quantize_dynamic(
                before, after, weight_type=quantization.QuantType.QInt8,
                # Weights of 7 bits where its kernels would overflow.
                reduce_range=not machine.has_int8_dot_products(),
            )  # fmt: skip
            return after.read_bytes()

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        model = self._model(case, arrays)
        if self._int8:
            model = self._quantised(model)
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        session = self._runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        if self._calls:
            return self._whole_calls(session, arrays)
        # Bound once, so that no copy of the input or output is measured.
        value = self._runtime.OrtValue
        y = value.ortvalue_from_shape_and_type(self._output(case), np.float32, "cpu")
        given = {"X": arrays.x, "lengths": np.array(case.row_lengths(), np.int32)}
        binding = session.io_binding()
        for argument in session.get_inputs():
            binding.bind_ortvalue_input(
                argument.name, value.ortvalue_from_numpy(given[argument.name])
            )
        binding.bind_ortvalue_output(session.get_outputs()[0].name, y)

        def infer() -> None:
            session.run_with_iobinding(binding)

        def outcome() -> base.Outcome:
            infer()
            return base.Outcome(y.numpy().swapaxes(1, 2).reshape(arrays.cotangent.shape))

        return base.Prepared(infer, outcome)

    @staticmethod
    def _whole_calls(session: Any, arrays: data.Arrays) -> base.Prepared:
        def call() -> np.ndarray:
            return session.run(None, {"X": arrays.x})[0]

        def outcome() -> base.Outcome:
            return base.Outcome(call().swapaxes(1, 2).reshape(arrays.cotangent.shape))

        return base.Prepared(call, outcome)
