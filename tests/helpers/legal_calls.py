"""Which calls are legal by the op table, and what they mean: their sizes, and a cuDNN network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from helpers import cudnn_ops, op_table
from helpers.malformed import LENGTHS, OF_PARAMS, SIZES_OF_NETWORKS, UNKNOWN, Call
from helpers.reference.stack import Network


def meaning(call: Call, for_graph: bool = False) -> dict | None:
    """The sizes of a legal call, and its network where it has one; None of a malformed call.

    for_graph: as far as a graph of known shapes can tell. It knows no numbers, but for those of the
    ops on parameters, which are constants, and not of which call a reserve space is.
    """
    if call.refused_by_tensorflow():
        return None
    op, attrs = call.op, call.attrs
    recompute = attrs.get("recompute", 0)
    sizes = {"K": int(recompute == 0)}
    if "direction" in op.attrs:
        sizes["D"] = 2 if attrs["direction"] == "bidirectional" else 1
    if not _fits(call, sizes):
        return None
    for name in () if for_graph else LENGTHS:
        numbers = call.numbers.get(name, ())
        if call.shapes.get(name) != (0,) and not all(0 <= n <= sizes["T"] for n in numbers):
            return None
    if op.name in OF_PARAMS:
        return _network_of_params(call, for_graph)
    if op.name.startswith("Cudnn"):
        return _network_of_call(call, sizes, for_graph)
    if "recompute" in op.attrs:
        states = op_table.size_of_span_states(op, sizes, recompute)
        if sizes.setdefault("N", states) != states:
            return None
    projects_to_nothing = call.shapes.get("w_p", (0,)) != (0,) and sizes["P"] == 0
    return None if projects_to_nothing else sizes


def _fits(call: Call, sizes: dict[str, int]) -> bool:
    """Whether all shapes are those of the op table, for sizes that are found on the way."""
    op, attrs = call.op, call.attrs
    num_proj, left_out = attrs.get("num_proj", 0), []
    if num_proj and attrs["rnn_mode"] != "lstm":
        return False
    for name, argument in op.inputs.items():
        given, dims = call.shapes[name], op.dims(argument, attrs)
        if argument.optional and given == (0,):
            left_out.append(argument)
            continue
        if dims is None or (argument.cell_state and attrs["rnn_mode"] != "lstm"):
            continue
        if len(given) != len(dims):
            return False
        for dim, size in zip(dims, given, strict=True):
            if "rnn_mode" in op.attrs and not num_proj:
                dim = dim.replace("P", "H")
            if dim != "?" and not op_table.bind(dim, size, sizes):
                return False
    conditions = (argument.left_out_if for argument in left_out if argument.left_out_if)
    return all(op_table.evaluate(a, sizes) == op_table.evaluate(b, sizes) for a, b in conditions)


def _network(attrs: Mapping, layers: int, directions: int, inputs: int, units: int):
    """The network of these sizes and attrs, or None."""
    num_proj = attrs.get("num_proj", 0)
    if not (layers > 0 and 0 <= attrs["dropout"] < 1 and 0 <= num_proj <= units):
        return None
    if attrs["input_mode"] == "skip_input" and inputs != units:
        return None
    skip = attrs["input_mode"] != "linear_input" and inputs == units
    return Network(attrs["rnn_mode"], layers, directions, inputs, units, num_proj, skip)


def _network_of_call(call: Call, sizes: dict, for_graph: bool) -> dict | None:
    attrs, shapes, base = call.attrs, call.shapes, call.base.cudnn
    num_proj = attrs.get("num_proj", 0)
    if num_proj and sizes["P"] != num_proj:
        return None
    net = _network(attrs, sizes["L"], sizes["D"], sizes["I"], sizes["H"])
    if net is None or shapes["params"] != (net.params_size(),):
        return None
    cudnn = cudnn_ops.Call(
        net, sizes["T"], sizes["B"], call.numbers.get("sequence_lengths"),
        attrs.get("time_major", True), base.version, attrs["dropout"],
    )  # fmt: skip
    if for_graph:
        return {**sizes, "cudnn": cudnn} if len(shapes.get("reserve_space", UNKNOWN)) == 1 else None
    if cudnn.lengths is not None and len(cudnn.lengths) != sizes["B"]:
        cudnn = dataclasses.replace(cudnn, lengths=(1,) * sizes["B"])
        if sizes["B"] and sizes["T"] < 1:
            return None
    # A reserve space is that of the base, so everything else must be, too.
    if call.backward and (cudnn != base or shapes["reserve_space"] != UNKNOWN):
        return None
    return {**sizes, "cudnn": cudnn}


def _network_of_params(call: Call, for_graph: bool) -> dict | None:
    attrs, shapes = call.attrs, call.shapes
    layers, units, inputs = (call.numbers[name][0] for name in SIZES_OF_NETWORKS)
    if units < 0 or inputs < 0:
        return None
    directions = 2 if attrs["direction"] == "bidirectional" else 1
    net = _network(attrs, layers, directions, inputs, units)
    if net is None:
        return None
    found = {"network": net, "size": params_size(net)}
    if "S" in attrs:
        bits = 31 if attrs["S"] == "int32" and not for_graph else 63
        return found if found["size"] < 2**bits else None
    if layers > 100 or found["size"] >= 2**63:
        return None  # no call here has that many
    weights, biases = net.canonical_shapes()
    if "weights" in shapes:
        given = (list(shapes["weights"]), list(shapes["biases"]))
        return found if given == (weights, biases) else None
    count = attrs.get("num_params")
    counts = (attrs.get("num_params_weights", count), attrs.get("num_params_biases", count))
    right = counts == (len(weights), len(biases)) and shapes["params"] == (found["size"],)
    return found if right else None


def params_size(net: Network) -> int:
    """Without a list as long as the network is deep."""
    first, second = (dataclasses.replace(net, layers=n).params_size() for n in (1, 2))
    return first + (net.layers - 1) * (second - first)
