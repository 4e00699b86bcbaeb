"""Weights in the form of PyTorch's nn.LSTM, nn.GRU and nn.RNN, and of their cells.

PyTorch's matrices are those of W·x with the rows of all gates concatenated, `weight_ih_l0`
[G · H, I], and its gate order is the one of `RecurrentWeights` (it calls the gates i, f, g, o and
r, z, n). Source: the equations in PyTorch's documentation of `torch.nn.LSTM` and `torch.nn.GRU`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tf_blockrnn.weights._cells import GATES, PLAIN_CELLS
from tf_blockrnn.weights._checks import (
    UnsupportedError,
    check_overrides,
    check_shape,
    one_of,
    to_array,
    to_tensor,
    wrong_source,
)
from tf_blockrnn.weights._formats import TORCH
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

# The arrays of a direction by their fields in DirectionWeights, in PyTorch's order.
NAMES = {
    "w_x": "weight_ih",
    "w_h": "weight_hh",
    "b_x": "bias_ih",
    "b_h": "bias_hh",
    "w_p": "weight_hr",
}
_BIASES = ("bias_ih", "bias_hh")  # a module has both in all directions, or none

_NAME = re.compile(rf"({'|'.join(NAMES.values())})(?:_l(0|[1-9][0-9]*)(_reverse)?)?")
_LONGEST_NAME = 10_000
_CELL_OF_GATES = {4: "lstm", 3: "gru"}

# Names of recurrent weights with weight_norm, parametrizations or pruning, and of those that are
# packed by dynamic quantization or in the linear layers of torch.ao.nn.quantizable.LSTM, each
# behind the prefix of its layer.
_FOREIGN = re.compile(
    r"(.*?)((weight|bias)_[ih][hr]\w*_(g|v|orig)|parametrizations\.(weight|bias)_[ih][hr].*"
    r"|_all_weight_values.*|_packed_weight_[ih]h|layers\.\d+\.layer_[fb]w\.cell\.[ih]gates\..*)"
)

# The arrays of one layer direction, by their names without number and suffix.
_Parts = dict[str, np.ndarray]


def _cell_of_module(module: Any) -> str:
    """The cell of a module; refuses subclasses that may compute something else."""
    import torch

    own = torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN
    cells = torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell
    base = next((one for one in type(module).__mro__ if one in (*own, *cells)), None)
    if base is None:
        kinds = "a state dict or one of torch.nn's LSTM, GRU, RNN, LSTMCell, GRUCell, RNNCell"
        raise wrong_source("from_torch", kinds, module)
    check_overrides(module, base, type(module).__name__)
    _check_hooks(module)
    if base in own:
        return module.mode.lower()
    if base is torch.nn.RNNCell:
        return f"rnn_{module.nonlinearity}"
    return base.__name__.removesuffix("Cell").lower()


def _check_hooks(module: Any) -> None:
    """Refuses a module with hooks, which may change what goes into it or comes out of it."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    if not hooks:
        return
    if foreign := next(filter(is_foreign, module.state_dict()), None):  # theirs is such a hook
        raise foreign_error(foreign)
    names = (getattr(one, "__qualname__", type(one).__name__) for one in hooks)
    raise UnsupportedError(
        f"{type(module).__name__}: its forward hooks ({', '.join(names)}) may change what it "
        "computes; remove them, or read its state_dict(), which is without them"
    )


def _no_weights_error(state: Mapping[str, Any], prefix: str) -> ValueError:
    found = sorted(
        {key[: m.start()] for key in state if (m := re.search(r"weight_ih(_l0)?$", key))}
    )
    hint = "prefix may be " + " or ".join(map(repr, found)) if found else "it has none elsewhere"
    return ValueError(
        f"the state dict has no recurrent weights under the prefix {prefix!r}; {hint}"
    )


def is_name(key: Any) -> bool:
    """Whether it may be a name of weights; patterns take long for millions of characters."""
    return isinstance(key, str) and len(key) <= _LONGEST_NAME


def foreign_prefix(key: Any) -> str | None:
    """The prefix of a layer whose weights are in another form than PyTorch's plain modules'.

    None if it is no name of such weights.
    """
    match = _FOREIGN.fullmatch(key) if is_name(key) else None
    return match and match[1]


def is_foreign(key: Any) -> bool:
    """Whether it is the name of recurrent weights in another form than PyTorch's plain modules'."""
    return foreign_prefix(key) is not None


def foreign_error(key: str) -> UnsupportedError:
    return UnsupportedError(
        f"there are recurrent weights in another form than arrays, {key!r}: quantized, or with "
        "weight_norm, another parametrization or pruning. Read the module before it is quantized, "
        "and after torch.nn.utils.parametrize.remove_parametrizations, "
        "torch.nn.utils.remove_weight_norm or torch.nn.utils.prune.remove"
    )


def _by_direction(state: Mapping[str, Any], prefix: str) -> dict[tuple[int, bool], _Parts]:
    """The arrays of each (layer, whether backward)."""
    found: dict[tuple[int, bool], _Parts] = {}
    unknown = []
    for key, value in state.items():
        if not isinstance(key, str) or not key.startswith(prefix):
            continue
        match = _NAME.fullmatch(key.removeprefix(prefix))
        if match is None:
            unknown.append(key)
            continue
        kind, layer, backward = match.groups()
        where = int(layer or 0), bool(backward)
        parts = found.setdefault(where, {})
        if kind in parts:
            raise ValueError(f"the state dict has {kind}, of a cell, beside {_key(kind, *where)}")
        parts[kind] = to_array(value, key)
    foreign = [key for key in unknown if is_foreign(key)]
    if not found and prefix not in map(foreign_prefix, foreign):
        raise _no_weights_error(state, prefix)
    if foreign:
        raise foreign_error(foreign[0])
    if unknown:
        hint = "" if prefix else "; prefix selects the keys of one layer"
        raise UnsupportedError(
            f"the state dict has keys that are no recurrent weights: {', '.join(unknown)}{hint}"
        )
    return found


def _key(kind: str, layer: int, backward: bool) -> str:
    return f"{kind}_l{layer}" + ("_reverse" if backward else "")


def _units(parts: _Parts, where: tuple[int, bool], biased: bool = False) -> int:
    """H, after checking that there are the matrices of a direction, and both biases if biased."""
    for kind in ("weight_ih", "weight_hh", *_BIASES[: 2 * biased]):
        if kind not in parts:
            raise ValueError(f"the state dict has no {_key(kind, *where)}")
    for kind in ("weight_ih", "weight_hh", "weight_hr"):
        if kind in parts:
            symbols = "[P, H]" if kind == "weight_hr" else "[G·H, n]"
            check_shape(_key(kind, *where), parts[kind], symbols, (None, None))
    return parts["weight_hr" if "weight_hr" in parts else "weight_hh"].shape[1]


def _direction(parts: _Parts, where: tuple[int, bool], cell: str, biased: bool) -> DirectionWeights:
    rows = len(GATES[cell]) * _units(parts, where, biased)
    arrays = {field: parts[kind] for field, kind in NAMES.items() if kind in parts}
    for field in arrays:
        if field == "w_p":
            continue
        symbols, shape = ("[G·H]", (rows,)) if field[0] == "b" else ("[G·H, n]", (rows, None))
        check_shape(_key(NAMES[field], *where), arrays[field], symbols, shape)
        arrays[field] = TORCH.split(cell, arrays[field])
    return DirectionWeights(**arrays)


def _cell_of_arrays(parts: _Parts, cell: str | None) -> str:
    units = _units(parts, (0, False))
    gates = len(parts["weight_ih"]) / units if units else 0
    if cell is None:
        cell = _CELL_OF_GATES.get(gates)
        if cell is None:
            raise ValueError(
                f"cell must be given for weights of {gates:g} gate(s): 'rnn_tanh' or 'rnn_relu' "
                "for one; 4 are an lstm, 3 a gru"
            )
    return one_of("cell", cell, PLAIN_CELLS)


def from_torch(source: Any, *, cell: str | None = None, prefix: str = "") -> RecurrentWeights:
    """Reads the weights of a PyTorch module or state dict, bit for bit.

    Only weights are read, not dropout, `batch_first` and the like. A subclass that overrides the
    computation is refused; its `state_dict()` can be read.

    Args:
      source: a torch.nn.LSTM, GRU or RNN, one of their cells, or a state dict: names to tensors or
        NumPy arrays.
      cell: only for a state dict: "lstm", "gru", "rnn_tanh" or "rnn_relu". Required for the last
        two, which have the same arrays; otherwise the number of gates determines it.
      prefix: only for a state dict: the prefix of this layer's names, such as "encoder.rnn.".

    Returns:
      The weights; both biases, or neither with `bias=False`.

    Raises:
      UnsupportedError: the state dict has other names under the prefix, or the module is of a
        subclass that overrides the computation.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> state = {"rnn.weight_ih_l0": np.ones([12, 2]), "rnn.weight_hh_l0": np.ones([12, 3])}
      >>> lstm = weights.from_torch(state, prefix="rnn.")
      >>> lstm.cell, lstm.layers[0].forward.w_x.shape
      ('lstm', (4, 2, 3))
    """
    if isinstance(source, Mapping):
        state = source
    else:
        own = _cell_of_module(source)
        if cell not in (None, own):
            raise ValueError(f"cell is {cell!r}, but the module's is {own!r}")
        state, cell = source.state_dict(), own
    found = _by_direction(state, prefix)
    if (0, False) not in found:
        raise ValueError(f"the state dict has no {_key('weight_ih', 0, False)}")
    cell = _cell_of_arrays(found[0, False], cell)
    numbers = 1 + max(number for number, _ in found)
    both = any(backward for _, backward in found)
    biased = any(kind in parts for parts in found.values() for kind in _BIASES)
    layers = []
    for number in range(numbers):
        of_layer = [
            _direction(found.get(where, {}), where, cell, biased)
            for where in ((number, False), (number, True))[: 1 + both]
        ]
        layers.append(LayerWeights(*of_layer))
    return RecurrentWeights(cell, layers, reset_after=True if cell == "gru" else None)


def _state_of(one: DirectionWeights, cell: str, biased: bool) -> _Parts:
    """The arrays of a direction, new and writable."""
    arrays = {"w_x": one.w_x, "w_h": one.w_h}
    if biased:
        arrays |= zip(("b_x", "b_h"), one.biases, strict=True)
    parts = {NAMES[field]: TORCH.join(cell, array) for field, array in arrays.items()}
    if one.w_p is not None:
        parts["weight_hr"] = one.w_p.copy()
    return parts


def to_torch(
    weights: RecurrentWeights,
    module: Any = None,
    *,
    prefix: str = "",
    dtype: np.typing.DTypeLike | None = None,
) -> dict[str, np.ndarray]:
    """Writes weights as a PyTorch state dict of NumPy arrays.

    Nothing is rounded unless `dtype` requests it. PyTorch has both biases or none: if only one
    exists, as in Keras' LSTM, the other one becomes zeros.

    Args:
      weights: all layers of one size, and all in one direction or all in both.
      module: a torch.nn.LSTM, GRU or RNN, or one of their cells, into which the weights are also
        loaded; or None.
      prefix: the prefix of each name.
      dtype: the type to convert the weights to; None for their own.

    Returns:
      The state dict, in the order of PyTorch's names: `weight_ih_l0` [G · H, I], `weight_hh_l0`
      [G · H, P], `bias_ih_l0`, `bias_hh_l0` [G · H], `weight_hr_l0` [P, H], with the suffix
      `_reverse` for the backward direction; for a cell's module without the suffix `_l0`. For
      `load_state_dict`: `{name: torch.from_numpy(array) for name, array in ...}`.

    Raises:
      UnsupportedError: PyTorch cannot represent the weights; the module's type would round them,
        and no `dtype` allows it; or the module overrides the computation.
      ValueError: the module has another cell, or a value is out of the range of `dtype`.
      RuntimeError: the module has other sizes (raised by PyTorch).

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([1, 3, 2]), np.ones([1, 2, 2]), np.ones([1, 2]))
      >>> rnn = weights.RecurrentWeights("rnn_relu", [weights.LayerWeights(one, one)])
      >>> state = weights.to_torch(rnn)
      >>> [name for name in state if name.startswith("bias")]
      ['bias_ih_l0', 'bias_hh_l0', 'bias_ih_l0_reverse', 'bias_hh_l0_reverse']
      >>> state["weight_ih_l0"].shape, state["bias_hh_l0"].tolist()
      ((2, 3), [0.0, 0.0])
    """
    TORCH.require(weights)
    weights = weights if dtype is None else weights.astype(dtype)
    biased = any(one.has_bias for _, _, one in weights.named_directions())
    biased = biased or getattr(module, "bias", False)
    state = {
        _key(kind, number, name == "backward"): array
        for number, name, one in weights.named_directions()
        for kind, array in _state_of(one, weights.cell, biased).items()
    }
    if module is not None:
        state = _load(state, weights.cell, module)
    return {prefix + name: array for name, array in state.items()}


def _check_types(state: dict[str, np.ndarray], module: Any) -> None:
    """Refuses to load into narrower parameters: load_state_dict rounds without a word."""
    import torch

    given = next(iter(state.values())).dtype
    for name, parameter in module.named_parameters():
        held = to_array(torch.empty(0, dtype=parameter.dtype)).dtype
        if not np.can_cast(given, held, "safe"):
            raise UnsupportedError(
                f"the module's {name} is of the type {held.name}, which does not represent all "
                f"values of {given.name}, the weights' type: dtype={held.name!r} rounds them"
            )


def _load(state: dict[str, np.ndarray], cell: str, module: Any) -> dict[str, np.ndarray]:
    """Loads a state dict into a module; returns it with the names of the module."""
    own = _cell_of_module(module)
    if own != cell:
        raise ValueError(f"the weights are of {cell}, the module's cell is {own}")
    _check_types(state, module)
    if hasattr(module, "weight_ih"):  # a cell, whose names have no number
        state = {name.removesuffix("_l0"): array for name, array in state.items()}
    module.load_state_dict({name: to_tensor(array) for name, array in state.items()})
    return state
