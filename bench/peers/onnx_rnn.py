"""ONNX Runtime's LSTM and GRU nodes (inference only), the model built here."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import data
from bench.peers import base
from bench.shapes import Case

_LSTM = (0, 3, 1, 2)  # ONNX: i, o, f, c
_GRU = (1, 0, 2)  # ONNX: z (update), r, h
_OPSET, _IR_VERSION = 14, 8  # old enough for every ONNX Runtime of the last years


class Peer:
    """`option` "after" is GRU with linear_before_reset=1, "before" with 0."""

    def __init__(self, option: str, threads: int) -> None:
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise base.Absent("onnx or onnxruntime is not installed") from error
        self._onnx, self._runtime = onnx, onnxruntime
        self._linear_before_reset = int(option == "after")
        self._threads = threads

    def _model(self, case: Case, arrays: data.Arrays) -> bytes:
        helper, numpy_helper = self._onnx.helper, self._onnx.numpy_helper
        order = _LSTM if case.cell == "lstm" else _GRU
        bias = data.bias(arrays.b, order)
        constants = {
            "W": data.gates_below(arrays.w, order)[None],
            "R": data.gates_below(arrays.r, order)[None],
            "B": np.concatenate([bias, np.zeros_like(bias)])[None],
        }
        attributes: dict[str, Any] = {"hidden_size": case.units}
        if case.cell == "gru":
            attributes["linear_before_reset"] = self._linear_before_reset
        node = helper.make_node(case.cell.upper(), ["X", "W", "R", "B"], ["Y"], **attributes)
        real = self._onnx.TensorProto.FLOAT
        steps, batch = case.steps, case.batch
        graph = helper.make_graph(
            [node],
            "one_layer",
            [helper.make_tensor_value_info("X", real, [steps, batch, case.inputs])],
            [helper.make_tensor_value_info("Y", real, [steps, 1, batch, case.units])],
            [numpy_helper.from_array(value, name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
        model.ir_version = _IR_VERSION
        return model.SerializeToString()

    def prepare(self, case: Case, arrays: data.Arrays) -> base.Prepared:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        session = self._runtime.InferenceSession(
            self._model(case, arrays), options, providers=["CPUExecutionProvider"]
        )
        # Bound once: no copy of the input or output is charged to it.
        value = self._runtime.OrtValue
        x = value.ortvalue_from_numpy(arrays.x)
        y = value.ortvalue_from_shape_and_type(
            [case.steps, 1, case.batch, case.units], np.float32, "cpu"
        )
        binding = session.io_binding()
        binding.bind_ortvalue_input("X", x)
        binding.bind_ortvalue_output("Y", y)

        def infer() -> None:
            session.run_with_iobinding(binding)

        def outcome() -> base.Outcome:
            infer()
            return base.Outcome(y.numpy()[:, 0])

        return base.Prepared(infer, outcome)
