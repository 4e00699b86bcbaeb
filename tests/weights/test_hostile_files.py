"""Files that are made to exhaust memory or time, or to read other files, and damaged ones."""

from __future__ import annotations

import json
import zipfile

import h5py
import numpy as np
import pytest

from tf_blockrnn import weights

GRU_ARRAYS = {"kernel:0": (3, 9), "recurrent_kernel:0": (3, 9), "bias:0": (2, 9)}


def keras_2_model(path, layers, **graph) -> None:
    """A Keras 2 model of layers, with arrays for those that are a GRU."""
    class_name = "Functional" if graph else "Sequential"
    config = {"class_name": class_name, "config": {"name": "m", "layers": layers, **graph}}
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = "2.11.0"
        file.attrs["model_config"] = json.dumps(config)
        group = file.create_group("model_weights")
        for one in layers:
            if one["class_name"] == "GRU":
                own = group.create_group(one["config"]["name"])
                own.attrs["weight_names"] = list(GRU_ARRAYS)
                for name, shape in GRU_ARRAYS.items():
                    own[name] = np.ones(shape, "f4")


def layer(class_name, name, *calls, **config):
    """The config of a layer that takes the outputs of other layers' calls."""
    nodes = [[[below, number, 0, {}]] for below, number in calls]
    config = {"name": name, **config}
    return {"class_name": class_name, "name": name, "config": config, "inbound_nodes": nodes}


def test_bidirectionals_in_one_another_are_refused(tmp_path):
    one = layer("LSTM", "lstm", units=2)
    for number in range(24):
        one = layer("Bidirectional", f"b{number}", layer=layer("Wrapper", "w", layer=one))
    keras_2_model(tmp_path / "m.h5", [one])
    with pytest.raises(weights.UnsupportedError, match="b22: a Bidirectional in another"):
        weights.read(tmp_path / "m.h5")


def functional(name, calls, inner, output):
    """A model that is a layer, with one input, `i`, and its layers."""
    layers = [layer("InputLayer", "i"), *inner]
    graph = {"input_layers": [["i", 0, 0]], "output_layers": [[output, 0, 0]]}
    return layer("Functional", name, *calls, layers=layers, **graph)


def one_after_another(below):
    """Each of two calls of a model takes either output of the model below it."""
    models = []
    for number in range(40):
        calls = [(models[-1]["name"], n) for n in (0, 1)] if models else [(below, 0)] * 2
        dropout = layer("Dropout", "d", ("i", 0))
        models.append(functional(f"m{number}", calls, [dropout], "d"))
    return models


def one_in_another(below):
    """Each model is called twice in the next one."""
    one = layer("Dropout", "d", ("i", 0))
    for number in range(40):
        calls = [("i", 0)] * 2 if number < 39 else [(below, 0)]
        one = functional(f"m{number}", calls, [one], one["name"])
    return [one]


@pytest.mark.parametrize("models", [one_after_another, one_in_another])
def test_graphs_with_more_paths_than_can_be_followed(models, tmp_path):
    between = models("below")
    options = {"units": 3, "return_sequences": True, "reset_after": True}
    layers = [
        layer("InputLayer", "x"),
        layer("GRU", "below", ("x", 0), **options),
        *between,
        layer("GRU", "above", (between[-1]["name"], 0), **options),
    ]
    graph = {"input_layers": [["x", 0, 0]], "output_layers": [["above", 0, 0]]}
    keras_2_model(tmp_path / "m.h5", layers, **graph)
    assert weights.read(tmp_path / "m.h5").num_layers == 2


def test_a_model_that_takes_its_own_outputs_is_refused(tmp_path):
    dropout = layer("Dropout", "d", ("i", 0))
    layers = [
        layer("InputLayer", "x"),
        layer("GRU", "below", ("x", 0), units=3, return_sequences=True),
        functional("twice", [("below", 0), ("twice", 0)], [dropout], "d"),
        layer("GRU", "above", ("twice", 1), units=3),
    ]
    graph = {"input_layers": [["x", 0, 0]], "output_layers": [["above", 0, 0]]}
    keras_2_model(tmp_path / "m.h5", layers, **graph)
    with pytest.raises(weights.UnsupportedError, match="not record which call of twice"):
        weights.read(tmp_path / "m.h5", layer="below,above")
