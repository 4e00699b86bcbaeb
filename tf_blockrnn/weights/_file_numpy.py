"""Files of NumPy: weights of tf_blockrnn in .npz, and cuDNN's params in .npy."""

from __future__ import annotations

import pathlib

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._file_format import FileContents, Job, ReadOptions, Written
from tf_blockrnn.weights._formats import cudnn_network
from tf_blockrnn.weights.cudnn import to_cudnn
from tf_blockrnn.weights.npz import from_npz, to_npz


def read_npz(path: str, options: ReadOptions) -> FileContents:
    del options
    return FileContents(from_npz(path), (pathlib.Path(path).stem,))


def write_npz(job: Job) -> Written:
    to_npz(job.weights, job.path)
    return Written(lambda number, name, array, one: f"layers.{number}.{name}.{array}")


def write_cudnn(job: Job) -> Written:
    """Writes the flat params, which do not record the network's geometry."""
    weights = job.weights
    if weights.dtype.name == "bfloat16":
        raise UnsupportedError("an .npy file cannot store bfloat16; an .npz file can")
    params = to_cudnn(weights)
    np.save(job.path, params)

    # All matrices in order, then all biases, zeros for those that do not exist.
    places, position = {}, 0
    for names in (("w_x", "w_h", "w_p"), ("b_x", "b_h")):
        for number, direction_name, one in weights.named_directions():
            bias = one.gates * one.units
            sizes = {"b_x": bias, "b_h": bias}
            sizes |= {name: array.size for name, array in one.arrays.items()}
            for name in names:
                end = position + sizes.get(name, 0)
                places[number, direction_name, name] = f"params[{position}:{end}]"
                position = end
    shown = ", ".join(f"{name}={value!r}" for name, value in cudnn_network(weights).items())
    lines = (f"params: {params.size} of {params.dtype.name}", f"geometry: {shown}")
    return Written(lambda number, name, array, one: places[number, name, array], lines)
