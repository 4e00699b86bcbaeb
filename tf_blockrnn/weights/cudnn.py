"""Weights as the params of TensorFlow's CudnnRNN ops, in cuDNN's layout.

The layout of the flat params is defined by the ops that split and join them, and nowhere else;
this module calls these ops. cuDNN's matrices are those of W·x, each [H, width]: those of
`RecurrentWeights` transposed. Its gate order is the one of `RecurrentWeights`.

Source: the help of `tf_blockrnn.raw_ops.CudnnRNNParamsToCanonicalV2`, and cuDNN's documentation of
`cudnnGetRNNWeightParams`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tf_blockrnn.weights._cells import GATES, PLAIN_CELLS
from tf_blockrnn.weights._checks import TYPES, UnsupportedError, one_of, wrong_source
from tf_blockrnn.weights._formats import cudnn_network
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

_DIRECTIONS = {"unidirectional": 1, "bidirectional": 2}
_INPUT_MODES = ("linear_input", "skip_input", "auto_select")

# All weights and all biases of a network, gate by gate.
Canonical = tuple[Sequence[np.ndarray], Sequence[np.ndarray]]


class _Network(NamedTuple):
    """The arguments of the ops that split and join a network's params."""

    rnn_mode: str
    num_units: int
    input_size: int
    num_layers: int
    direction: str
    num_proj: int
    input_mode: str = "linear_input"

    def check_names(self) -> None:
        one_of("rnn_mode", self.rnn_mode, PLAIN_CELLS)
        one_of("direction", self.direction, _DIRECTIONS)
        one_of("input_mode", self.input_mode, _INPUT_MODES)

    @property
    def skips_input(self) -> bool:
        automatic = self.input_mode == "auto_select" and self.input_size == self.num_units
        return self.input_mode == "skip_input" or automatic

    def _call(self, op: str, **arguments: Any) -> Any:
        """The op's result; its errors refer to the caller's arguments."""
        from tf_blockrnn import raw_ops  # first, for its error where TensorFlow is missing

        import tensorflow as tf  # isort: skip

        try:
            # Computed eagerly even while a graph is being built.
            with tf.init_scope(), tf.device("/CPU:0"):
                return getattr(raw_ops, op)(**self._asdict(), **arguments)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(error.message) from None

    def split(self, params: np.ndarray) -> Canonical:
        """The canonical weights and biases of flat params."""
        biases = 2 * len(GATES[self.rnn_mode])
        directions = self.num_layers * _DIRECTIONS[self.direction]
        result = self._call(
            "CudnnRNNParamsToCanonicalV2",
            params=params,
            num_params_weights=directions * (biases + (self.num_proj > 0)),
            num_params_biases=directions * biases,
        )
        return [w.numpy() for w in result.weights], [b.numpy() for b in result.biases]

    def join(self, weights: Sequence[np.ndarray], biases: Sequence[np.ndarray]) -> np.ndarray:
        """The flat params of canonical weights and biases."""
        return self._call(
            "CudnnRNNCanonicalToParamsV2", weights=list(weights), biases=list(biases)
        ).numpy()


def _direction(
    network: _Network, matrices: Iterator[np.ndarray], biases: Iterator[np.ndarray], lowest: bool
) -> DirectionWeights:
    gates = len(GATES[network.rnn_mode])
    w_x, w_h = (list(itertools.islice(matrices, gates)) for _ in range(2))
    if lowest and network.skips_input:
        w_x = [np.eye(network.num_units, dtype=w_h[0].dtype)] * gates
    return DirectionWeights(
        np.stack([w.T for w in w_x]),
        np.stack([w.T for w in w_h]),
        *(np.stack(list(itertools.islice(biases, gates))) for _ in range(2)),
        w_p=next(matrices) if network.num_proj > 0 else None,
    )


def from_cudnn(
    params: np.ndarray | Canonical,
    *,
    rnn_mode: str,
    num_units: int,
    input_size: int,
    num_layers: int = 1,
    direction: str = "unidirectional",
    input_mode: str = "linear_input",
    num_proj: int = 0,
) -> RecurrentWeights:
    """Reads the params of a CudnnRNN op, flat or canonical, bit for bit.

    The arguments are those of the op that the params belong to. With skipped input the lowest layer
    has no matrices for its input: they become identity matrices, which compute the same.

    Args:
      params: the flat params, [n], or the canonical (weights, biases) as
        `CudnnRNNParamsToCanonicalV2` returns them; half, bfloat16, float32 or float64.
      rnn_mode: "lstm", "gru", "rnn_tanh" or "rnn_relu".
      num_units, input_size, num_layers: H, I and L.
      direction: "unidirectional" or "bidirectional".
      input_mode: "linear_input", "skip_input" or "auto_select".
      num_proj: P of a projected LSTM, or 0.

    Returns:
      The weights, with both biases.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> params = np.arange(2 * (3 * (4 * 3 + 4 * 4) + 6 * 4), dtype=np.float32)
      >>> gru = weights.from_cudnn(
      ...     params, rnn_mode="gru", num_units=4, input_size=3, direction="bidirectional")
      >>> gru.layers[0].backward.w_x.shape, gru.reset_after
      ((3, 3, 4), True)
      >>> np.array_equal(weights.to_cudnn(gru), params)
      True
    """
    network = _Network(rnn_mode, num_units, input_size, num_layers, direction, num_proj, input_mode)
    network.check_names()
    if isinstance(params, (tuple, list)):
        if len(params) != 2:
            raise ValueError(
                f"params must be an array or (weights, biases), got a sequence of {len(params)}"
            )
        # The join checks each number and shape.
        params = network.join(*([np.asarray(array) for array in part] for part in params))
    elif np.asarray(params).dtype.name not in TYPES:
        raise wrong_source("from_cudnn", f"an array of {', '.join(TYPES)}", params)
    matrices, biases = (iter(arrays) for arrays in network.split(np.asarray(params)))
    layers = [
        LayerWeights(
            *(
                _direction(network, matrices, biases, lowest=number == 0)
                for _ in range(_DIRECTIONS[direction])
            )
        )
        for number in range(num_layers)
    ]
    return RecurrentWeights(rnn_mode, layers, reset_after=True if rnn_mode == "gru" else None)


def _input_matrices(number: int, name: str, one: DirectionWeights, skip: bool) -> np.ndarray:
    """[G, H, I], or without columns where the input is skipped."""
    if not (skip and number == 0):
        return one.w_x.transpose(0, 2, 1)
    if not (one.w_x == np.eye(*one.w_x.shape[1:], dtype=one.dtype)).all():
        raise UnsupportedError(
            "with skipped input cuDNN has no input matrices in the lowest layer, which is equal to "
            f"identity matrices; w_x of layer {number}, {name} is not the identity"
        )
    return np.zeros([one.gates, one.units, 0], one.dtype)


def to_cudnn(
    weights: RecurrentWeights, *, input_mode: str = "linear_input", form: str = "flat"
) -> np.ndarray | Canonical:
    """Writes weights as the params of a CudnnRNN op.

    Nothing is added or rounded. A missing bias becomes zeros, so reading the params back gives
    zeros and not None.

    Args:
      weights: all layers of one size, and all in one direction or all in both.
      input_mode: "linear_input"; or "skip_input" ("auto_select" where I is H), which needs I = H,
        and input matrices in the lowest layer that are the identity.
      form: "flat" or "canonical".

    Returns:
      The flat params, [n]; or (weights, biases), lists in the order of
      `CudnnRNNCanonicalToParamsV2`, matrices [H, width] (the projection [P, H]) and biases [H].

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([1, 3, 2]), np.zeros([1, 2, 2]))
      >>> rnn = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
      >>> weights.to_cudnn(rnn).tolist()
      [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    one_of("form", form, ("flat", "canonical"))
    network = _Network(**cudnn_network(weights), input_mode=input_mode)
    network.check_names()
    if network.skips_input and network.input_size != network.num_units:
        raise ValueError(
            f"input_mode skip_input needs I = H, here I is {network.input_size} and H "
            f"{network.num_units}"
        )
    matrices: list[np.ndarray] = []
    biases: list[np.ndarray] = []
    for number, name, one in weights.named_directions():
        matrices += list(_input_matrices(number, name, one, network.skips_input))
        matrices += list(one.w_h.transpose(0, 2, 1))
        matrices += [] if one.w_p is None else [one.w_p]
        biases += [row for bias in one.biases for row in bias]
    if form == "flat":
        return network.join(matrices, biases)
    return [np.array(w, order="C") for w in matrices], [np.array(b) for b in biases]
