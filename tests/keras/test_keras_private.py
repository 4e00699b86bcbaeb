"""Each name of Keras' that is not public and that this package uses: it is there and does that."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tf_blockrnn import _keras_private

pytestmark = pytest.mark.usefixtures("tfb")


def functional():
    x = keras.Input((None, 3))
    inner = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(2)])
    return keras.Model(x, keras.layers.Dense(1)(inner(x)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.parts = [{"a": keras.layers.Bidirectional(keras.layers.GRU(2))}]


def test_flat_layers_and_is_functional():
    model, other = functional(), Subclassed()
    found, kinds = (_keras_private.flat_layers(each) for each in (model, other))
    assert found[0] is model and len({id(layer) for layer in found}) == len(found)
    expected = {keras.Sequential, keras.layers.GRU, keras.layers.GRUCell, keras.layers.Dense}
    assert expected <= set(map(type, found))
    assert list(map(type, kinds)).count(keras.layers.GRU) == 2
    assert _keras_private.is_functional(model) and not _keras_private.is_functional(other)


def test_held_layers():
    model, other = functional(), Subclassed()
    held = _keras_private.held_layers(model)
    assert set(model.layers) <= set(held) and model not in held
    assert not any(isinstance(layer, keras.layers.GRU) for layer in held)
    (both,) = _keras_private.held_layers(other)
    assert _keras_private.held_layers(both) == [both.forward_layer, both.backward_layer]


def test_is_compiled_by_xla():
    model = functional()
    assert not _keras_private.is_compiled_by_xla(model)
    for jit_compile in (True, False):
        model.compile("sgd", "mse", jit_compile=jit_compile)
        assert _keras_private.is_compiled_by_xla(model) == jit_compile


def test_compiled_with():
    def loss(target, output):
        return keras.ops.mean(target - output)

    model = functional()
    assert _keras_private.compiled_with(model) == {}
    model.compile("sgd", loss, metrics=[loss])
    given = _keras_private.compiled_with(model)
    assert given["loss"] is loss and given["metrics"] == [loss]


def test_mask_of():
    words = np.array([[1, 2, 0]])
    masked = keras.layers.Embedding(3, 2, mask_zero=True)(words)
    np.testing.assert_array_equal(_keras_private.mask_of(masked), words > 0)
    assert _keras_private.mask_of(keras.layers.Embedding(3, 2)(words)) is None


def test_jit_attribute_is_read_before_it_is_set():
    """Of `_keras_private.supports_jit`: Keras does not set an attribute to what it is."""
    values = []

    class Layer(keras.layers.Layer):
        @property
        def supports_jit(self):
            return vars(self).get("supports_jit", True)

        @supports_jit.setter
        def supports_jit(self, value):
            values.append(value)

    layer = Layer()
    values.clear()
    layer.supports_jit = True
    assert not values
    layer.supports_jit = np.bool_(True)
    assert len(values) == 1


@pytest.mark.parametrize(
    ("version", "words"),
    [("3.11.0", None), ("3.15.9", None), ("3.16.0", "3.16.0"), ("4.0.0.dev1", "4.0.0")],
)
def test_a_newer_keras_is_a_warning(monkeypatch, recwarn, version, words):
    from tf_blockrnn import layers

    monkeypatch.setattr(keras, "__version__", version)
    monkeypatch.setattr(_keras_private, "_checked", False)
    for _ in range(2):  # given once
        layers.GRU(2)
    said = [w for w in recwarn if "has been tested with Keras up to 3.15" in str(w.message)]
    assert len(said) == (words is not None)
    for warning in said:
        assert words in str(warning.message) and warning.filename == __file__


def test_enable_keras_warns_of_a_newer_keras(tfb, monkeypatch):
    monkeypatch.setattr(keras, "__version__", "3.99.1")
    monkeypatch.setattr(_keras_private, "_checked", False)
    with pytest.warns(UserWarning, match=r"up to 3.15, and this is Keras 3.99.1") as said:
        with tfb.enable_keras():
            pass
    assert [w.filename for w in said] == [__file__]
