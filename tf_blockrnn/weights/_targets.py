"""Writers of weights to the files of each framework, for the command line.

Each writer returns, for every array of the weights, its location in the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tf_blockrnn.weights._keras_arrays import has_two_biases
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights, UnsupportedError

# (number of the layer, "forward" or "backward", name of the array)
Place = tuple[int, str, str]


@dataclasses.dataclass(frozen=True)
class Job:
    """The weights to write, and the file.

    Args:
      weights: the layers.
      reverse: whether they are layers of one direction from the last step to the first.
      path: the path of the file.
      package: the package of Keras layers.
    """

    weights: RecurrentWeights
    reverse: bool
    path: str
    package: str = "keras"


@dataclasses.dataclass(frozen=True)
class Written:
    """The location of each array in the file, and further lines of the summary."""

    places: dict[Place, str]
    lines: tuple[str, ...] = ()


def arrays_of(one: DirectionWeights) -> dict[str, np.ndarray]:
    """The arrays that are not None, by name.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights._targets import arrays_of
      >>> list(arrays_of(weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))))
      ['w_x', 'w_h']
    """
    named = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    return {name: array for name, array in named.items() if array is not None}


def _places(
    weights: RecurrentWeights, name: Callable[[int, str, str, DirectionWeights], str]
) -> dict[Place, str]:
    return {
        (number, direction_name, array): name(number, direction_name, array, one)
        for number, direction_name, one in weights.named_directions()
        for array in arrays_of(one)
    }


def _refuse_reverse(job: Job, target: str) -> None:
    if job.reverse:
        raise UnsupportedError(
            f"{target} does not record that layers of one direction go from the last step to the "
            "first"
        )


# ---- Keras

_KERAS_NAMES = {"w_x": "kernel", "w_h": "recurrent_kernel"}
_NORM_NAMES = {"norm_x": "kernel_norm", "norm_h": "recurrent_norm", "norm_c": "state_norm"}


def write_keras(job: Job) -> Written:
    """Writes a Sequential model of the layers, each of which returns its outputs of all steps."""
    import keras

    from tf_blockrnn.weights.keras import to_keras_layers

    weights = job.weights
    if job.reverse and weights.num_layers > 1:
        # Such a layer returns its outputs in the order of processing.
        raise UnsupportedError("Keras cannot stack layers that go from the last step to the first")
    backwards = {"go_backwards": True} if job.reverse else {}
    layers = to_keras_layers(weights, package=job.package, return_sequences=True, **backwards)
    inputs = keras.Input((None, weights.input_size), dtype=weights.dtype.name)
    keras.Sequential([inputs, *layers]).save(job.path)

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        layer = layers[number]
        if weights.layers[number].directions == 2:
            inner = layer.forward_layer if direction_name == "forward" else layer.backward_layer
            name = f"{layer.name}/{inner.name}"
        else:
            name = layer.name
        if array in _NORM_NAMES:
            return ", ".join(f"{name}/{_NORM_NAMES[array]}/{part}" for part in ("gamma", "beta"))
        if array in ("b_x", "b_h"):
            if has_two_biases(weights.cell, weights.reset_after):
                return f"{name}/bias[{int(array == 'b_h')}]"
            both = one.b_x is not None and one.b_h is not None
            return f"{name}/bias" + (", summed" if both else "")
        names = ("wci", "wcf", "wco") if array == "peepholes" else (_KERAS_NAMES.get(array, array),)
        return ", ".join(f"{name}/{one}" for one in names)

    lines = ()
    if job.reverse:
        lines = ("go_backwards: the outputs are in the order of processing, last step first",)
    return Written(_places(weights, place), lines)


# ---- PyTorch

_TORCH_NAMES = {
    "w_x": "weight_ih",
    "w_h": "weight_hh",
    "b_x": "bias_ih",
    "b_h": "bias_hh",
    "w_p": "weight_hr",
}


def write_torch(job: Job) -> Written:
    """Writes a state dict."""
    import torch

    from tf_blockrnn.weights._torch_tensors import to_tensor
    from tf_blockrnn.weights.torch import to_torch

    _refuse_reverse(job, "a PyTorch state dict")
    state = to_torch(job.weights)
    torch.save({name: to_tensor(array) for name, array in state.items()}, job.path)

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        del one
        return f"{_TORCH_NAMES[array]}_l{number}" + (
            "_reverse" if direction_name == "backward" else ""
        )

    return Written(_places(job.weights, place))


# ---- ONNX


def write_onnx(job: Job) -> Written:
    """Writes a model with one node for each layer, for inputs [T, B, I]."""
    import onnx

    from tf_blockrnn.weights.onnx_model import to_onnx_model

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
        }
        return f"{node}.{within[array]}"

    return Written(_places(job.weights, place))


# ---- cuDNN


def write_cudnn(job: Job) -> Written:
    """Writes the flat params to an .npy file, which does not record the network's geometry."""
    from tf_blockrnn.weights.cudnn import to_cudnn

    weights = job.weights
    _refuse_reverse(job, "cuDNN")
    if weights.dtype.name == "bfloat16":
        raise UnsupportedError("an .npy file cannot store bfloat16; an .npz file of --to npz can")
    params = to_cudnn(weights)
    np.save(job.path, params)

    # All matrices in order, then all biases.
    places, position = {}, 0
    for names in (("w_x", "w_h", "w_p"), ("b_x", "b_h")):
        for number, direction_name, one in weights.named_directions():
            sizes = {name: array.size for name, array in arrays_of(one).items()}
            sizes = {"b_x": one.gates * one.units, "b_h": one.gates * one.units, **sizes}
            for name in names:
                end = position + sizes.get(name, 0)
                places[number, direction_name, name] = f"params[{position}:{end}]"
                position = end
    first = weights.layers[0].forward
    arguments = {
        "rnn_mode": weights.cell,
        "num_units": first.units,
        "input_size": first.input_size,
        "num_layers": weights.num_layers,
        "direction": "bidirectional" if weights.directions == 2 else "unidirectional",
        "num_proj": 0 if first.w_p is None else first.output_size,
    }
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    lines = (f"params: {params.size} of {params.dtype.name}", f"geometry: {shown}")
    found = _places(weights, lambda number, name, array, _: places[number, name, array])
    return Written(found, lines)


# ---- our own


def write_npz(job: Job) -> Written:
    """Writes the weights without conversion."""
    from tf_blockrnn.weights.npz import to_npz

    _refuse_reverse(job, "an .npz file")
    to_npz(job.weights, job.path)
    return Written(
        _places(job.weights, lambda number, name, array, _: f"layers.{number}.{name}.{array}")
    )


@dataclasses.dataclass(frozen=True)
class Target:
    """A format to convert to: the suffixes of its files, and its writer."""

    suffixes: tuple[str, ...]
    write: Callable[[Job], Written]


TARGETS = {
    "keras": Target((".keras",), write_keras),
    "torch": Target((".pt", ".pth"), write_torch),
    "onnx": Target((".onnx",), write_onnx),
    "cudnn": Target((".npy",), write_cudnn),
    "npz": Target((".npz",), write_npz),
}
