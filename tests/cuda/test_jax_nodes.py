"""The NodeDefs that tests/gpu/jax_calls.py writes without TensorFlow."""

from __future__ import annotations

import pathlib
import sys

import pytest
import tensorflow as tf
from helpers import op_table
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.framework import op_def_registry

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import jax_calls

_OTHERS = {"type": "double", "bool": True, "int": 300, "float": 1.25}
_MEMBERS = {"type": "type", "bool": "b", "int": "i", "float": "f", "string": "s"}


def _message(attr, given) -> attr_value_pb2.AttrValue:
    if attr.name not in given:
        return attr.default_value
    value = given[attr.name]
    value = tf.as_dtype(value).as_datatype_enum if attr.type == "type" else value
    value = value.encode() if attr.type == "string" else value
    return attr_value_pb2.AttrValue(**{_MEMBERS[attr.type]: value})


@pytest.mark.parametrize("name", op_table.OPS)
def test_nodes_are_tensorflows(tfb, name):
    """With TensorFlow's defaults, and with another value for every attr."""
    attrs = op_def_registry.get(f"BlockRNN>{name}").attr
    others = {}
    for attr in attrs:
        words = [word.decode() for word in attr.allowed_values.list.s]
        others[attr.name] = words[-1] if words else _OTHERS.get(attr.type, "text")
        if attr.name in ("S", "Tlen"):
            others[attr.name] = "int64"
    required = {a.name: others[a.name] for a in attrs if not a.HasField("default_value")}
    for given in (required, others):
        node = node_def_pb2.NodeDef.FromString(jax_calls.node(name, **given))
        want = node_def_pb2.NodeDef(op=name, attr={a.name: _message(a, given) for a in attrs})
        assert node == want
