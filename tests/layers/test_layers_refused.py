"""Inputs that GRU, LSTM and SimpleRNN refuse, in words that name the layer."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from helpers.layer_pairs import BATCH, INPUT, KINDS, TIME, make_ours

pytestmark = pytest.mark.usefixtures("tfb")


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_inputs(tf, kind):
    x = tf.RaggedTensor.from_tensor(np.ones((BATCH, TIME, INPUT), "float32"), [1, 2, 3, 4, 0])
    with pytest.raises(ValueError, match=r'"my" takes a dense tensor, got a RaggedTensor.*mask='):
        make_ours(kind, name="my")(x)


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_of_features(kind):
    layer = make_ours(kind, name="my")
    layer.build((None, None, INPUT))
    with pytest.raises(
        ValueError, match=r'"my" was built for 2 input features, got 3.*\(5, 4, 3\)'
    ):
        layer(np.ones((BATCH, TIME, 3), "float32"))


def test_legacy_keras(monkeypatch):
    monkeypatch.setitem(sys.modules, "tf_keras", types.ModuleType("tf_keras"))
    layer = make_ours("LSTM")
    symbolic = type("KerasTensor", (), {"__module__": "tf_keras.src.engine.keras_tensor"})()
    with pytest.raises(TypeError, match=r"tf_keras.layers.LSTM and call tf_blockrnn.enable_keras"):
        layer(symbolic)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    with pytest.raises(TypeError, match="enable_keras"):
        make_ours("GRU")
