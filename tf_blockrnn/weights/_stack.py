"""Checks shared by converters.

No layer normalisation; for cuDNN and PyTorch layers of one size, and one form of each cell.
"""

from __future__ import annotations

from tf_blockrnn.weights.layer import (
    NORM_CELLS,
    DirectionWeights,
    RecurrentWeights,
    UnsupportedError,
)


def refuse_norms(weights: RecurrentWeights, target: str, remedy: str = "") -> None:
    """Refuses weights of a cell with layer normalisation, for a target that has none.

    Args:
      weights: to be written.
      target: its name, for the error.
      remedy: the end of the error, after a semicolon.

    Raises:
      UnsupportedError: the cell has norms.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights._stack import refuse_norms
      >>> norm = np.ones([2, 3, 4])
      >>> one = weights.DirectionWeights(
      ...     np.ones([3, 5, 4]), np.ones([3, 4, 4]), norm_x=norm, norm_h=norm)
      >>> layers = [weights.LayerWeights(one)]
      >>> gru = weights.RecurrentWeights("layer_norm_gru", layers, epsilon=1e-5)
      >>> refuse_norms(gru, "PyTorch")
      Traceback (most recent call last):
      ...
      tf_blockrnn.weights.layer.UnsupportedError: PyTorch cannot represent layer_norm_gru: it \
has no recurrent layers with layer normalisation
    """
    if weights.cell in NORM_CELLS:
        raise UnsupportedError(
            f"{target} cannot represent {weights.cell}: it has no recurrent layers with layer "
            "normalisation" + (f"; {remedy}" if remedy else "")
        )


def require_plain_stack(weights: RecurrentWeights, target: str) -> None:
    """Refuses weights that neither framework can represent.

    Args:
      weights: to be written.
      target: the name of the framework, for the error.

    Raises:
      UnsupportedError: with the part that is not supported and the reason.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights._stack import require_plain_stack
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one)], cell_clip=3.0)
      >>> require_plain_stack(lstm, "PyTorch")
      Traceback (most recent call last):
      ...
      tf_blockrnn.weights.layer.UnsupportedError: PyTorch's lstm has no cell_clip, here it is 3.0
    """
    refuse_norms(weights, target)
    if weights.cell == "gru" and not weights.reset_after:
        raise UnsupportedError(
            f"{target}'s gru resets after the GEMM with w_h (reset_after=True); these weights "
            "reset before it, which computes another candidate from the same numbers"
        )
    if weights.cell_clip:
        raise UnsupportedError(f"{target}'s lstm has no cell_clip, here it is {weights.cell_clip}")
    weights.require_no_zoneout(target)
    if weights.directions is None:
        raise UnsupportedError(
            f"{target} has all layers in one direction or all in both, here they are mixed"
        )
    for number, name, one in weights.named_directions():
        _require_plain(one, weights.layers[0].forward, f"layer {number}, {name}", target)


def _require_plain(one: DirectionWeights, first: DirectionWeights, where: str, target: str) -> None:
    if one.peepholes is not None:
        raise UnsupportedError(f"{target}'s lstm has no peepholes, {where} has")
    if (one.units, one.output_size) != (first.units, first.output_size):
        raise UnsupportedError(
            f"{target} has one size for all layers: layer 0 has H, P = {first.units}, "
            f"{first.output_size}, {where} has {one.units}, {one.output_size}"
        )
    if (one.w_p is None) != (first.w_p is None):
        raise UnsupportedError(
            f"{target} has a projection in all layers or in none, layer 0 and {where} differ"
        )
