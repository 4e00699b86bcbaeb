"""python write_weights.py SOURCE WEIGHTS: writes weights for session.c.

SOURCE is an .npz file of tf_blockrnn, which `python -m tf_blockrnn convert` makes of files of other
frameworks. WEIGHTS has numbers of this machine's byte order:

    int64    cell (a blockrnn_cell), layers
    float32  cell_clip, zoneout_h, zoneout_c, epsilon (0 without layer normalisation)
    int64    norm_output_only, 0 or 1; activation (a blockrnn_activation)
    float32  hard_sigmoid
    for each layer:
    int64    inputs, units, outputs, directions
    for each direction, for each array of blockrnn_direction in its order:
    int64    elements, 0 where there is no such array
    float32  the elements
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tf_blockrnn import weights

_CELLS = {
    ("lstm", None): 0,
    ("gru", False): 1,
    ("gru", True): 2,
    ("rnn_tanh", None): 3,
    ("rnn_relu", None): 4,
    ("layer_norm_lstm", None): 5,
    ("layer_norm_gru", None): 6,
}
_ARRAYS = ("w_x", "w_h", "b_x", "b_h", "peepholes", "w_p", "norm_x", "norm_h", "norm_c")


def write(given: weights.RecurrentWeights, file: BinaryIO) -> None:
    """Writes weights to a binary file, in float32."""
    if any(one.h0 is not None or one.c0 is not None for _, _, one in given.named_directions()):
        raise ValueError("session.c begins with zeros, these weights have initial states, h0 or c0")
    given = given.astype(np.dtype(np.float32))
    numbers = [_CELLS[given.cell, given.reset_after], given.num_layers]
    file.write(np.array(numbers, np.int64).tobytes())
    options = [given.cell_clip, given.zoneout_h, given.zoneout_c, given.epsilon or 0]
    file.write(np.array(options, np.float32).tobytes())
    file.write(np.int64(bool(given.norm_output_only)).tobytes())
    file.write(np.int64(given.activation == "relu").tobytes())
    file.write(np.float32(given.hard_sigmoid).tobytes())
    for layer in given.layers:
        one = layer.forward
        sizes = [one.input_size, one.units, one.output_size, layer.directions]
        file.write(np.array(sizes, np.int64).tobytes())
        for direction in layer:
            for name in _ARRAYS:
                array = getattr(direction, name)
                file.write(np.int64(0 if array is None else array.size).tobytes())
                if array is not None:
                    file.write(array.tobytes())


def main() -> None:
    source, target = sys.argv[1:]
    with Path(target).open("wb") as file:
        write(weights.from_npz(source), file)


if __name__ == "__main__":
    main()
