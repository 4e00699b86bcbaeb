"""ONNX models as files: nodes that feed one another, as the layers of a stack do.

Exporters move the outputs [T, D, B, H] of a node to the inputs [T, B, D·H] of the next one by
Transpose, Reshape, Squeeze and the like. Whether such nodes in between change anything is tested
with distinct numbers in place of the outputs: all that arrives must be these numbers, each in its
place.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tf_blockrnn.weights._bounds import allow, check_expansion
from tf_blockrnn.weights._checks import UnsupportedError, same_bits
from tf_blockrnn.weights._file_format import (
    FileContents,
    Job,
    ReadOptions,
    UsageError,
    Written,
    select,
    stacked,
)
from tf_blockrnn.weights._onnx_model import NamedNode, named_nodes, no_recurrent_node
from tf_blockrnn.weights._onnx_nodes import read_node, sizes_of
from tf_blockrnn.weights._onnx_values import (
    MOVES,
    NotConstant,
    Scope,
    Shared,
    attributes_of,
    check_tensor,
    named,
    tensors_of,
)
from tf_blockrnn.weights.layer import DirectionWeights
from tf_blockrnn.weights.onnx import from_onnx, to_onnx_model

if TYPE_CHECKING:
    import onnx

_STEPS, _BATCH = 3, 2  # where nothing is known of them
_MOST_NUMBERS = 1 << 27
_MOST_COMPARED = 100  # nodes, for a message


class _Path(Scope):
    """The values between the outputs of one recurrent node and the inputs of another.

    Outputs, and values that are moved from there, are data, which must arrive unchanged; shapes and
    other constants may be computed.
    """

    def __init__(self, below: NamedNode, dims: Sequence[int]):
        # With sizes of its own for what the graph does not fix.
        vars(self).update(vars(next(below.scope.trials(), below.scope)))
        self._below = below
        self._shared = Shared(self._shared.model, _MOST_NUMBERS)
        self._shared.take(math.prod(dims))
        self._data = {below.node.output[0]}
        self._known[below.node.output[0]] = np.arange(math.prod(dims), dtype=np.int32).reshape(dims)

    def _find(self, name: str) -> bool:
        if name in self._below.node.output[1:]:
            raise NotConstant(f"its last state {name!r} arrives, not its outputs of all steps")
        if name in self._inputs and name not in self._constants:
            raise NotConstant(f"the value {name!r}, an input of the graph, arrives instead")
        return super()._find(name)

    def _needs(self, node: onnx.NodeProto) -> Sequence[str]:
        try:
            return super()._needs(node)
        except NotConstant:
            raise NotConstant(f"the node {named(node)} is between them") from None

    def _run(self, node: onnx.NodeProto) -> Sequence[np.ndarray]:
        if node.op_type == "Shape" or self._data.isdisjoint(node.input):
            return super()._run(node)
        others = () if node.op_type == "Concat" else node.input[1:]
        if node.op_type not in MOVES | {"Cast", "Dropout"} or self._data.intersection(others):
            raise NotConstant(f"the node {named(node)} is between them")
        self._data.update(node.output)
        if node.op_type in ("Cast", "Dropout"):
            return [self._unchanged(node)]
        return super()._run(node)

    def _unchanged(self, node: onnx.NodeProto) -> np.ndarray:
        """The input of a Dropout or Cast, after checking that it returns it unchanged."""
        from onnx import helper

        value, *others = self._given(node)
        if node.op_type == "Cast":
            weights = read_node(self._below).arrays["W"].dtype
            if helper.tensor_dtype_to_np_dtype(attributes_of(node)["to"]) != weights:
                raise NotConstant(f"the node {named(node)} is between them and changes the type")
        elif len(others) > 1 and np.any(others[1]):
            raise NotConstant(f"the node {named(node)} is between them and may be in training mode")
        return value


def _layout(node: onnx.NodeProto) -> int:
    return attributes_of(node).get("layout", 0)


def _check_pair(below: NamedNode, above: NamedNode) -> None:
    what = f"{above.name} does not take the outputs of {below.name} unchanged: "
    if below.graph is not above.graph:
        raise UnsupportedError(f"{what}they are in different graphs of the model")
    layer = read_node(below)
    directions, units = sizes_of(layer, below.name)
    batch_first = _layout(below.node)
    known = below.scope.trial_dims().get(below.node.input[0], ())
    steps, batch = (
        (known[1::-1] if batch_first else known[:2]) if len(known) == 3 else (_STEPS, _BATCH)
    )
    dims = [batch, steps, directions, units] if batch_first else [steps, directions, batch, units]
    if not below.node.output or not below.node.output[0]:
        raise UnsupportedError(f"{what}{below.name} has no outputs of all steps, only a last state")
    try:
        path = _Path(below, dims)
        found = path.value(above.node.input[0])
    except NotConstant as error:
        raise UnsupportedError(what + str(error)) from None
    sent = path.value(below.node.output[0])
    sent = sent if batch_first else sent.transpose(2, 0, 1, 3)
    expected = sent.reshape(batch, steps, directions * units)
    if not _layout(above.node):
        expected = expected.swapaxes(0, 1)
    if found.shape != expected.shape or not np.array_equal(found, expected):
        raise UnsupportedError(f"{what}nodes between them reorder or repeat the outputs")


def check_stack(nodes: Sequence[NamedNode]) -> None:
    """Refuses nodes that are not a stack, from the input up, and reports what is between them."""
    for below, above in itertools.pairwise(nodes):
        _check_pair(below, above)


# ---- files


def is_onnx(path: str) -> bool:
    """Whether a file is a model by its content; false where the package onnx is missing."""
    try:
        import onnx
    except ModuleNotFoundError:
        return False
    from google.protobuf.message import DecodeError

    try:
        return onnx.load(path, format="protobuf", load_external_data=False).HasField("graph")
    except DecodeError:
        return False


def read_onnx(path: str, options: ReadOptions) -> FileContents:
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ValueError(f"the file is not an ONNX model: {error}") from error
    folder = os.path.dirname(os.path.abspath(path))
    _check_external(model, folder, os.path.getsize(path))
    onnx.external_data_helper.load_external_data_for_model(model, folder)
    return read_model(model, options)


def _check_external(model: onnx.ModelProto, folder: str, size: int) -> None:
    """Refuses tensors in files that are not in the folder, or that take more of them than is there.

    Each of them is loaded, and several may be the same part of a file.
    """
    files: dict[str, int] = {}
    declared, inside = 0, os.path.join(os.path.realpath(folder), "")
    for tensor in tensors_of(model):
        check_tensor(tensor)  # what it has in a file would take the place of other elements
        place = {one.key: one.value for one in tensor.external_data}
        if len(place) < len(tensor.external_data):
            raise ValueError(f"the tensor {tensor.name!r} has two places in files")
        if not place:
            continue
        path = os.path.realpath(os.path.join(folder, place.get("location", "")))
        if not path.startswith(inside):
            raise ValueError(f"the tensor {tensor.name!r} is in a file outside of that folder")
        if path not in files:
            if not os.path.isfile(path):
                raise ValueError(
                    f"the tensor {tensor.name!r} is in the file {place.get('location')!r}, which "
                    "is not there"
                )
            files[path] = os.path.getsize(path)
        offset = int(place.get("offset") or 0)
        length = int(place.get("length") or files[path] - offset)
        if offset < 0 or not 0 <= length <= files[path] - offset:
            raise ValueError(f"the tensor {tensor.name!r} is not in its file")
        declared += length
    check_expansion(declared, size + sum(files.values()))
    allow(sum(files.values()))


def read_model(model: onnx.ModelProto, options: ReadOptions) -> FileContents:
    """Reads the selected nodes of a model, one or a stack."""
    found = named_nodes(model)
    if not found:
        raise UsageError(f"the model has {no_recurrent_node(model)}")
    if options.layers or not _is_stack(found):
        try:
            found = select(found, options.layers, "node", "the model")
        except UsageError as error:
            raise UsageError(f"{error}{_equal_nodes(found)}") from None
        check_stack(list(found.values()))
    chosen = found
    nodes = {name: read_node(one) for name, one in chosen.items()}
    reverse = {node.direction == "reverse" for node in nodes.values()}
    if len(reverse) > 1:
        raise UnsupportedError("the nodes of a stack must all be reverse or all forward")
    parts = [from_onnx(node, reverse=True) for node in nodes.values()]
    notes = [note for node in nodes.values() for note in node.notes]
    return FileContents(stacked(parts), tuple(nodes), reverse.pop(), tuple(notes))


def _is_stack(nodes: Mapping[str, NamedNode]) -> bool:
    """Whether all nodes of a model are of one op and feed one another, in their order."""
    if len({one.node.op_type for one in nodes.values()}) > 1:
        return False
    try:
        check_stack(list(nodes.values()))
    except ValueError:
        return False
    return True


def _equal_nodes(found: Mapping[str, NamedNode]) -> str:
    """For messages: which of the nodes have equal weights, as those in the bodies of an If may."""
    layers = {}
    for name, one in itertools.islice(found.items(), _MOST_COMPARED):
        try:
            layers[name] = read_node(one)
        except ValueError:  # reported if the node is selected
            continue
    groups: list[list[str]] = []
    for name, layer in layers.items():
        for group in groups:
            other = layers[group[0]]
            if (
                (layer.op_type, layer.attributes) == (other.op_type, other.attributes)
                and layer.arrays.keys() == other.arrays.keys()
                and all(same_bits(array, other.arrays[n]) for n, array in layer.arrays.items())
            ):
                group.append(name)
                break
        else:
            groups.append([name])
    equal = [" and ".join(group) for group in groups if len(group) > 1]
    return f". With equal weights: {'; '.join(equal)}" if equal else ""


def write_onnx(job: Job) -> Written:
    """Writes a model with one node for each layer, for inputs [T, B, I]."""
    import onnx

    onnx.save(to_onnx_model(job.weights, reverse=job.reverse), job.path)

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        half = one.gates * one.units
        node, direction = f"{job.weights.cell}_{number}", int(direction_name == "backward")
        within = {
            "w_x": f"W[{direction}]",
            "w_h": f"R[{direction}]",
            "b_x": f"B[{direction}, :{half}]",
            "b_h": f"B[{direction}, {half}:]",
            "peepholes": f"P[{direction}]",
            "h0": f"initial_h[{direction}]",
            "c0": f"initial_c[{direction}]",
        }
        return f"{node}.{within[array]}"

    return Written(place)
