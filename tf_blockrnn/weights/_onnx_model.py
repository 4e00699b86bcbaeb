"""The recurrent nodes in an ONNX model, also those in bodies of control flow and in functions."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tf_blockrnn.weights._checks import UnsupportedError, first_line
from tf_blockrnn.weights._onnx_values import (
    DOMAINS,
    Scope,
    bodies_of,
    check_node,
    constants_of,
)

if TYPE_CHECKING:
    import onnx

# The number of gates of each op.
GATES_OF = {"LSTM": 4, "GRU": 3, "RNN": 1}
# ONNX Runtime's LSTM with integer weights.
QUANTIZED = ("com.microsoft", "DynamicQuantizeLSTM")
# Ops of other names and domains are likely to be recurrent, too.
_LOOKS_RECURRENT = re.compile("LSTM|GRU|RNN|Lstm|Gru|Rnn")


class NamedNode(NamedTuple):
    """A recurrent node, the graph that has it and the values that are constants there."""

    name: str
    node: onnx.NodeProto
    graph: onnx.GraphProto | None
    scope: Scope


def _op(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in DOMAINS else node.op_type


def is_read(node: onnx.NodeProto) -> bool:
    plain = node.op_type in GATES_OF and node.domain in DOMAINS
    return plain or (node.domain, node.op_type) == QUANTIZED


def _nodes(graph: onnx.GraphProto, scope: Scope) -> Iterator[NamedNode]:
    """The nodes, also those in bodies of If, Loop and Scan."""
    for node in graph.node:
        yield NamedNode(node.name, node, graph, scope)
        for body in bodies_of(node):
            yield from _nodes(body, Scope(constants_of(body.initializer), body, scope))


def _all_nodes(model: onnx.ModelProto) -> Iterator[NamedNode]:
    constants = constants_of(model.graph.initializer)
    return _nodes(model.graph, Scope(constants, model.graph, model=model))


def _check_graph(graph: onnx.GraphProto, *around: set[str]) -> None:
    """Refuses two values of one name, also in a graph around, and nodes that check_node refuses."""
    own: set[str] = set()

    def add(names: Iterable[str], *others: set[str]) -> None:
        for name in filter(None, names):
            if any(name in known for known in (own, *others)):
                raise ValueError(f"the model has two values of one name, {name!r}")
            own.add(name)

    add(info.name for info in graph.input)
    own.update(tensor.name for tensor in graph.initializer)  # which may be an input's default
    for node in graph.node:
        check_node(node)
        for body in bodies_of(node):
            _check_graph(body, own, *around)
        add(node.output, *around)


def named_nodes(model: onnx.ModelProto) -> dict[str, NamedNode]:
    """All recurrent nodes by names as described in `onnx_layers`, those that are not read too."""
    found: dict[str, NamedNode] = {}
    model = inlined(model)
    _check_graph(model.graph)
    nodes = [one for one in _all_nodes(model) if _LOOKS_RECURRENT.search(one.node.op_type)]
    for number, one in enumerate(nodes):
        name = one.name or f"{one.node.op_type.lower()}_{number}"
        while name in found:  # bodies of control flow may repeat one
            name = f"{name}_{number}"
        found[name] = one._replace(name=name)
    return found


def no_recurrent_node(model: onnx.ModelProto) -> str:
    """The message that a model has no recurrent node, with the ops that it has instead."""
    ops = collections.Counter(_op(one.node) for one in _all_nodes(model))
    names = sorted(ops, key=lambda op: (op not in ("Loop", "Scan"), -ops[op], op))
    listed = ", ".join([*names[:8], "..."] if len(names) > 8 else names) or "none"
    loops = " (what Loop or Scan computes step by step is not read)"
    return (
        f"no recurrent node ({', '.join(GATES_OF)} or {QUANTIZED[1]}); its ops are {listed}"
        + loops * bool({"Loop", "Scan"} & set(ops))
    )


# ---- functions of a model

# By how many bytes the functions may make a model larger, as each call becomes their nodes: some
# for any model, and some for each byte in it.
_MOST_INLINED, _MOST_INLINED_PER_BYTE = 1 << 24, 8


def _function_name(one: onnx.NodeProto | onnx.FunctionProto) -> str:
    """As ONNX itself looks it up, which names with a colon make ambiguous."""
    name = one.name if hasattr(one, "opset_import") else one.op_type
    domain = "" if one.domain in DOMAINS else one.domain
    return f"{domain}:{name}:{getattr(one, 'overload', '')}"


def _calls(nodes: Any) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from _calls(body.node)


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the nodes of its functions in place of the calls; itself if it has none."""
    if not model.functions:
        return model
    import onnx.inliner

    functions = {_function_name(one): one for one in model.functions}
    if len(functions) < len(model.functions):
        raise ValueError("the model has two functions of one name")
    sizes: dict[str, int] = {}

    def size(nodes: Any, around: tuple[str, ...]) -> int:
        total = 0
        for node in _calls(nodes):
            key = _function_name(node)
            if key in around or len(around) > 100:
                raise ValueError(f"the function {_op(node)} of the model calls itself")
            if key in functions and key not in sizes:
                own = functions[key]
                sizes[key] = own.ByteSize() + size(own.node, (*around, key))
            total += sizes.get(key, 0)
        return total

    most = _MOST_INLINED + _MOST_INLINED_PER_BYTE * model.ByteSize()
    if (total := size(model.graph.node, ())) > most:
        raise UnsupportedError(f"the functions of the model make {total} bytes of nodes")
    try:
        result = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # RuntimeError and onnx's own, of calls that do not fit
        raise ValueError(
            f"the functions of the model cannot be replaced by their nodes: {first_line(error)}"
        ) from None
    for one in result.functions:
        if any(_LOOKS_RECURRENT.search(node.op_type) for node in _calls(one.node)):
            versions = {each.domain: each.version for each in one.opset_import}
            raise UnsupportedError(
                f"the function {one.domain}::{one.name} with a recurrent node has operators of "
                f"version {versions.get('')}, the model has another one; onnx.version_converter or "
                "the exporter's opset_version make them one"
            )
    return result
