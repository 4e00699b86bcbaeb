"""Weights of haste's LayerNormLSTM and LayerNormGRU, of haste_tf and haste_pytorch, by name.

docs/weights.md has a table of the arrays. The matrices are those of x·W with the columns of all
gates concatenated. The gate order is i, g, f, o in an LSTM, here i, c, f, o, and z, r, h in a GRU,
here u, r, c; it resets after the GEMM. haste_tf has both matrices, and both biases of a GRU, in one
variable. The forget bias is part of the bias. `gamma` has no beta; that of the cell state,
`gamma_h` and `beta_h`, acts only on the output. epsilon is 1e-5. Source: the
documentation and the reference cells of https://github.com/lmnt-com/haste.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_blockrnn.weights._cells import GATES
from tf_blockrnn.weights._checks import (
    UnsupportedError,
    check_shape,
    one_of,
    to_array,
    wrong_source,
)
from tf_blockrnn.weights._formats import HASTE
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

_EPSILON = 1e-5
NAMES = ("kernel", "recurrent_kernel", "bias", "recurrent_bias", "gamma", "gamma_h", "beta_h")


# ---- from haste


def _named(source: Any, prefix: str) -> dict[str, np.ndarray]:
    """The arrays below the prefix, by haste's names."""
    if not isinstance(source, Mapping):
        raise wrong_source("from_haste", "a mapping of names to arrays", source)
    below = {
        key.removeprefix(prefix).removesuffix(":0"): value
        for key, value in source.items()
        if key.startswith(prefix)
    }
    if unknown := sorted(set(below) - set(NAMES)):
        hint = "" if prefix else "; prefix selects the names of one layer"
        raise UnsupportedError(
            f"from_haste: haste's LayerNormLSTM and LayerNormGRU have no {', '.join(unknown)}{hint}"
        )
    if missing := [name for name in ("kernel", "bias", "gamma") if name not in below]:
        under = f" under the prefix {prefix!r}" if prefix else ""
        raise ValueError(f"from_haste: there is no {missing[0]}{under}")
    return {name: to_array(value, name) for name, value in below.items()}


def _of_one(source: Any, prefix: str) -> tuple[str, DirectionWeights]:
    """The cell, and the weights of one direction."""
    arrays = _named(source, prefix)
    lstm = "gamma_h" in arrays or "beta_h" in arrays
    cell = "layer_norm_lstm" if lstm else "layer_norm_gru"
    gates = len(GATES[cell])
    gamma = arrays["gamma"]
    if gamma.ndim != 2 or len(gamma) != 2 or gamma.shape[1] % gates:
        raise ValueError(
            f"from_haste: gamma of a {cell} must have the shape [2, {gates}H], got "
            f"{list(gamma.shape)}"
        )
    columns, units = gamma.shape[1], gamma.shape[1] // gates
    if lstm and "recurrent_bias" in arrays:
        raise UnsupportedError("from_haste: haste's LayerNormLSTM has no recurrent_bias")
    both_biases = not lstm and "recurrent_bias" not in arrays
    shapes = {
        "kernel": (f"[n, {gates}H]", (None, columns)),
        "recurrent_kernel": (f"[H, {gates}H]", (units, columns)),
        "bias": ("[6H]", (2 * columns,)) if both_biases else (f"[{gates}H]", (columns,)),
        "recurrent_bias": ("[3H]", (columns,)),
    }
    if lstm:
        shapes |= {"gamma_h": ("[H]", (units,)), "beta_h": ("[H]", (units,))}
    for name, (symbols, shape) in shapes.items():
        if name in arrays:
            check_shape(f"from_haste: {name}", arrays[name], symbols, shape)
        elif not name.startswith("recurrent"):
            raise ValueError(f"from_haste: there is no {name}")
    kernels = [arrays["kernel"], arrays.get("recurrent_kernel")]
    if kernels[1] is None:
        if len(kernels[0]) < units:
            raise ValueError(
                "from_haste: kernel without a recurrent_kernel must have the shape [I + H, "
                f"{gates}H], where H is {units}, got {list(kernels[0].shape)}"
            )
        kernels = np.split(kernels[0], [len(kernels[0]) - units])
    biases = [arrays["bias"]] if lstm else [arrays["bias"], arrays.get("recurrent_bias")]
    if both_biases:
        biases = np.split(arrays["bias"], 2)
    norms = np.stack([gamma, np.zeros_like(gamma)], axis=1)
    norm_x, norm_h = (HASTE.split(cell, norm).swapaxes(0, 1) for norm in norms)
    return cell, DirectionWeights(
        *(HASTE.split(cell, array) for array in (*kernels, *biases)),
        norm_x=norm_x,
        norm_h=norm_h,
        norm_c=np.stack([arrays["gamma_h"], arrays["beta_h"]]) if lstm else None,
    )


def from_haste(
    forward: Mapping[str, Any], backward: Mapping[str, Any] | None = None, *, prefix: str = ""
) -> RecurrentWeights:
    """Reads the weights of haste's LayerNormLSTM or LayerNormGRU, bit for bit.

    Args:
      forward: names to arrays or PyTorch tensors: a state dict of haste_pytorch, or the variables
        of haste_tf, with or without ":0".
      backward: those of the backward direction, or None.
      prefix: of the names in both; names without it are ignored.

    Returns:
      The weights of one layer, with epsilon 1e-5; of an LSTM with norm_output_only=True. The betas
      of norm_x and norm_h, which haste does not have, are zeros.

    Raises:
      UnsupportedError: there are names under the prefix that these layers do not have.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> state = {"kernel": np.ones([5, 9]), "recurrent_kernel": np.ones([3, 9]),
      ...          "bias": np.zeros(9), "recurrent_bias": np.zeros(9), "gamma": np.ones([2, 9])}
      >>> gru = weights.from_haste(state)
      >>> gru.cell, gru.epsilon, gru.layers[0].forward.w_x.shape
      ('layer_norm_gru', 1e-05, (3, 5, 3))
    """
    directions = [forward] if backward is None else [forward, backward]
    found = [_of_one(one, prefix) for one in directions]
    cells = {cell for cell, _ in found}
    if len(cells) > 1:
        raise ValueError(f"from_haste: the directions differ: {' and '.join(sorted(cells))}")
    (cell,) = cells
    return RecurrentWeights(
        cell,
        [LayerWeights(*(one for _, one in found))],
        epsilon=_EPSILON,
        norm_output_only=True if cell == "layer_norm_lstm" else None,
    )


# ---- to haste


def _require(weights: RecurrentWeights) -> None:
    HASTE.require(weights)
    # The engines and haste compute with it in float32.
    if np.float32(weights.epsilon) != np.float32(_EPSILON):
        raise UnsupportedError(
            f"haste's epsilon is {_EPSILON:g}, these weights have {weights.epsilon:g}"
        )
    if weights.cell == "layer_norm_lstm" and not weights.norm_output_only:
        raise UnsupportedError(
            "in haste's LayerNormLSTM the output alone reads the normalised cell state "
            "(norm_output_only=True); these weights pass it on to the next step"
        )


def _exact_sum(where: str, parts: Mapping[str, np.ndarray | None]) -> np.ndarray | None:
    """The sum of the arrays, refused where it would be rounded; None if all are None."""
    given = {name: array for name, array in parts.items() if array is not None}
    terms = [array for array in given.values() if np.any(array != 0)]
    if not terms:
        return next(iter(given.values()), None)
    total = terms[0]
    for term in terms[1:]:
        with np.errstate(over="ignore", invalid="ignore"):
            # What rounding loses (Knuth's sum of two numbers), zero where it loses nothing.
            result = total + term
            of_term = result - total
            lost = (total - (result - of_term)) + (term - of_term)
        if not np.all(lost == 0):
            raise UnsupportedError(
                f"{where}: haste has one bias in place of {', '.join(given)}, whose sum would be "
                "rounded"
            )
        total = result
    return total


def _arrays_of(one: DirectionWeights, cell: str, form: str, where: str) -> dict[str, np.ndarray]:
    if cell == "layer_norm_lstm":
        terms = [{"b_x": one.b_x, "b_h": one.b_h}]
        terms[0] |= {"beta of norm_x": one.norm_x[1], "beta of norm_h": one.norm_h[1]}
    else:
        terms = [
            {"b_x": one.b_x, "beta of norm_x": one.norm_x[1]},
            {"b_h": one.b_h, "beta of norm_h": one.norm_h[1]},
        ]
    biases = [HASTE.join(cell, _exact_sum(where, parts)) for parts in terms]
    kernels = [HASTE.join(cell, array) for array in (one.w_x, one.w_h)]
    if form == "tf":
        kernels, biases = [np.concatenate(kernels)], [np.concatenate(biases)]
    arrays = dict(zip(("kernel", "recurrent_kernel"), kernels, strict=False))
    arrays |= zip(("bias", "recurrent_bias"), biases, strict=False)
    arrays["gamma"] = np.stack([HASTE.join(cell, norm[0]) for norm in (one.norm_x, one.norm_h)])
    if one.norm_c is not None:
        arrays |= {"gamma_h": one.norm_c[0].copy(), "beta_h": one.norm_c[1].copy()}
    return arrays


def to_haste(
    weights: RecurrentWeights, *, form: str = "torch"
) -> list[tuple[dict[str, np.ndarray], ...]]:
    """Writes weights as the arrays of haste's LayerNormLSTM or LayerNormGRU, without rounding.

    haste has no betas of the norms of the two GEMMs, and one bias in an LSTM. Betas that are not
    zero are added to the biases, and b_h to b_x, where no element of the sum has to be rounded. A
    missing bias becomes zeros.

    Args:
      weights: of the cell "layer_norm_lstm" with norm_output_only=True, or of "layer_norm_gru";
        epsilon must be 1e-5, haste's.
      form: "torch" for haste_pytorch, "tf" for the joined variables of haste_tf.

    Returns:
      For each layer a tuple of one dict for each direction, which `from_haste(*layer)` reads.

    Raises:
      UnsupportedError: haste cannot represent the weights, or a sum would be rounded.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> arrays = {"kernel": np.ones([7, 6]), "bias": np.ones(12), "gamma": np.ones([2, 6])}
      >>> gru = weights.from_haste(arrays)
      >>> [list(arrays) for arrays in weights.to_haste(gru)[0]]
      [['kernel', 'recurrent_kernel', 'bias', 'recurrent_bias', 'gamma']]
    """
    one_of("to_haste: form", form, ("torch", "tf"))
    _require(weights)
    return [
        tuple(
            _arrays_of(one, weights.cell, form, f"layer {number}, {name}")
            for name, one in zip(("forward", "backward"), layer, strict=False)
        )
        for number, layer in enumerate(weights.layers)
    ]
