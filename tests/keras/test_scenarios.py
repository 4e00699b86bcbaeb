"""Real uses of Keras' recurrent layers: the numbers are those of stock Keras.

Each scenario runs on stock Keras and on our layers: predictions before and after one step of
training, the loss, and the weights after it. Layers under enable_keras share their computation with
ours (`layers/_fused_call.py`): they run the scenarios that differ in which calls are reached and
what is handed on. Those that fuse_model changes do so in test_fuse.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import running
from scenarios import ALL

pytestmark = pytest.mark.types

ENABLED = (
    "states given, masked",
    "stateful, both directions",
    "mixed float16",
    "dropout, a mask per gate",
    "RNN of a stack of cells",
    "sentences of words",
    "own training step",
)


@pytest.mark.parametrize("name", ALL)
def test_our_layers(tfb, name):
    del tfb
    running.assert_equal(running.ours(name), running.stock(name), ALL[name].tolerance)


@pytest.mark.parametrize("name", ENABLED)
def test_enable_keras(tfb, name):
    """The numbers to the bit show that the ops ran: Keras' own differ in their last bits."""
    stock, ours = running.stock(name), running.ours(name)
    with tfb.enable_keras():
        model = running.make(ALL[name])
        found = running.run(ALL[name], model)
    running.assert_equal(found, stock, ALL[name].tolerance)
    if not running.cells(model):
        for mine, expected in zip(found.before, ours.before, strict=True):
            np.testing.assert_array_equal(mine, expected)
    parts = running.recurrent(model)
    assert not any(type(part).__module__.startswith("tf_blockrnn") for part in parts)
