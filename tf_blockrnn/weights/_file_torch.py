"""PyTorch's state dicts and archives, also of haste's layers with layer normalisation."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tf_blockrnn.weights._checks import UnsupportedError, bfloat16, first_line, short, to_tensor
from tf_blockrnn.weights._file_format import (
    FileContents,
    Job,
    ReadOptions,
    UsageError,
    Written,
    assumed_order,
    select,
    stacked,
)
from tf_blockrnn.weights._torch_archive import open_torch
from tf_blockrnn.weights._torch_pickle import CodeError, kind_of
from tf_blockrnn.weights.haste import NAMES as HASTE_NAMES
from tf_blockrnn.weights.haste import from_haste
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights
from tf_blockrnn.weights.torch import (
    NAMES,
    foreign_error,
    foreign_prefix,
    from_torch,
    is_foreign,
    is_name,
    to_torch,
)

_ARRAYS = "|".join(NAMES.values())
# The name of an array of a layer, behind the prefix of its layer.
_OWN = re.compile(rf"(.*?)(({_ARRAYS})(_l(?:0|[1-9][0-9]*)(_reverse)?)?|gamma)")
# A name that begins as one of a layer without a prefix.
_UNPREFIXED = re.compile(rf"({_ARRAYS})\w*")
# Names that programs give to initial states which are parameters.
_STATE = re.compile(
    r"(.*[._])?([hc]_?0|([hc]|hidden|cell|state)_?init|init(ial)?_?(h|c|hidden|cell|states?))"
)
# Recurrent classes that are not read: quantized ones, those of TorchScript, and haste's.
_OTHER_PACKAGES = ("torch", "haste_pytorch")
_OTHER_CLASS = re.compile(r"(LayerNorm|Ind)?(LSTM|GRU|RNN)(Cell)?")
_MOST_MAPPINGS = 100_000  # in a checkpoint
_MOST_PATHS = 1 << 24  # characters, of the paths to its layers
_MOST_NAMES = 12  # in an error


# ---- sources


def read_torch(path: str, options: ReadOptions) -> FileContents:
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(open_torch(path))
        except CodeError as error:
            raise ValueError(
                "the file is not a state dict, torch.save(module.state_dict(), ...), that PyTorch "
                f"can load without running code: {first_line(error)}"
            ) from error
        if not isinstance(found, Mapping):
            raise ValueError(f"the file has no state dict, but an object of {kind_of(found)}")
        return read_mapping(found, options, "the file")


def read_safetensors(path: str, options: ReadOptions) -> FileContents:
    import safetensors

    try:
        found = _load_safetensors(path)
    except BaseException as error:
        # A panic of Rust is no Exception, and its class has no public name.
        is_damage = isinstance(error, (safetensors.SafetensorError, KeyError))
        if not is_damage and type(error).__name__ != "PanicException":
            raise
        raise ValueError(
            f"the file is not an intact safetensors file: {first_line(error)}"
        ) from None
    return read_mapping(found, options, "the file")


def _load_safetensors(path: str) -> dict[str, Any]:
    import safetensors.numpy

    try:
        return safetensors.numpy.load_file(path)
    except TypeError:  # NumPy has no type of that name: bfloat16, until ml_dtypes is imported
        bfloat16()
        return safetensors.numpy.load_file(path)


def read_module(module: Any, options: ReadOptions) -> FileContents:
    """Reads a module that is or has recurrent layers of PyTorch."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        return read_mapping(module.state_dict(), options, "the module")
    layers = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)
    layers += (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell)
    found, others = {}, {}
    for name, one in module.named_modules():
        if isinstance(one, layers):
            found[name] = one
        elif _is_other(one) and not any(name.startswith(f"{above}.") for above in others):
            others[name] = one
    if not found:
        kinds = dict.fromkeys(_class_name(type(one)) for one in module.modules())
        raise UnsupportedError(
            "the module has no torch.nn.LSTM, GRU or RNN, but "
            f"{', '.join(list(kinds)[:_MOST_NAMES])}"
        )
    chosen = select({**found, **others}, options.layers, of="the module")
    for name in chosen.keys() & others.keys():
        raise UnsupportedError(
            f"{name}: its class is {_class_name(type(others[name]))}, whose weights are not read. "
            "Read the module before it is quantized or compiled to TorchScript"
        )
    parts = [from_torch(one) for one in chosen.values()]
    notes = _states_among(dict(module.named_parameters()))
    notes += tuple(
        f"{name or 'the module'}: batch_first=False, it takes [T, B, I] and a session [B, T, I]"
        for name, one in chosen.items()
        if not getattr(one, "batch_first", True)
    )
    return FileContents(
        stacked(parts), tuple(chosen), notes=notes + assumed_order(chosen), of_torch=True
    )


def _is_other(module: Any) -> bool:
    """Whether a module is of a recurrent class that is not read."""
    names = [
        kind.__name__
        for kind in type(module).__mro__
        if kind.__module__.partition(".")[0] in _OTHER_PACKAGES
    ]
    names.append(getattr(module, "original_name", ""))  # of TorchScript
    return any(_OTHER_CLASS.fullmatch(str(name)) for name in names)


def _class_name(kind: type) -> str:
    own = kind.__module__.startswith("torch.nn.modules.")
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


# ---- state dicts


class _Place(NamedTuple):
    """Where a layer's arrays are: their state dict, and what their names begin with."""

    state: Mapping[str, Any]
    prefix: str


def _is_of_haste(place: _Place) -> bool:
    """Whether haste's layer with layer normalisation has its weights there."""
    names = ("kernel", "recurrent_kernel", "gamma")
    return all(f"{place.prefix}{name}" in place.state for name in names)


class _Link(NamedTuple):
    """The last key of those that lead to a nested mapping; None leads to the outermost one."""

    before: _Link | None
    key: Any


def _path(link: _Link | None, most: int, of: str) -> str:
    keys = []
    while link is not None:
        keys.append(f"{link.key}/")
        most -= len(keys[-1])
        if most < 0:
            raise UsageError(f"the paths to the layers of {of} are too long")
        link = link.before
    return "".join(reversed(keys))


def _state_dicts(
    found: Mapping[Any, Any], of: str
) -> Iterator[tuple[_Link | None, Mapping[Any, Any]]]:
    """The mappings of names to arrays, at any depth, also in lists, and what leads to them.

    Each object is visited once, at the first of the paths that lead to it: a file of a few bytes
    may have more paths than can be followed, or endless ones.
    """
    # Has the objects themselves, so that none of their ids is used again.
    seen: dict[int, Any] = {}
    mappings, stack = 0, [(None, found)]
    while stack:
        link, one = stack.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        items = list(one.items() if isinstance(one, Mapping) else enumerate(one))
        if isinstance(one, Mapping):
            mappings += 1
            if mappings > _MOST_MAPPINGS:
                raise UsageError(
                    f"{of} has more than {_MOST_MAPPINGS} nested mappings: pass the state dict "
                    "alone, or save it in a file of its own"
                )
            yield link, {key: value for key, value in items if not isinstance(value, Mapping)}
        stack += [
            (_Link(link, key), value)
            for key, value in reversed(items)
            if isinstance(value, (Mapping, list, tuple))
        ]


def _places(found: Mapping[Any, Any], of: str) -> tuple[dict[str, _Place], list[str]]:
    """The layers by name, and keys of others that are in another form.

    Of a nested mapping with several, a name begins with where it is.
    """
    by_state, left = [], _MOST_PATHS
    foreign: list[str] = []
    for link, state in _state_dicts(found, of):
        matches = (_OWN.fullmatch(key) for key in state if is_name(key) and not is_foreign(key))
        places = {
            match[1]: _Place(state, match[1])
            for match in matches
            if match and (match[3] or _is_of_haste(_Place(state, match[1])))
        }
        if places:
            by_state.append((_path(link, left, of), places))
            left -= len(by_state[-1][0])
        own = {None, *places}
        foreign += [key for key in state if foreign_prefix(key) not in own]
    named: dict[str, _Place] = {}
    for where, places in by_state:
        for prefix, place in places.items():
            name = ((where if len(by_state) > 1 else "") + prefix).rstrip("./")
            if name in named:
                raise UsageError(
                    f"{of} has several recurrent layers of the name {short(repr(name))}: pass the "
                    "state dict of one alone"
                )
            named[name] = place
    return named, foreign


def _none_error(found: Mapping[Any, Any], of: str) -> UsageError:
    """The error for a mapping without recurrent weights: what it has instead."""
    shown = ", ".join(short(repr(key)) for key in list(found)[:_MOST_NAMES])
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return UsageError(
        f"{of} has no recurrent layer with PyTorch's names, such as 'rnn.weight_ih_l0', at any "
        f"depth; its keys are {shown or 'none'}{more}"
    )


def read_mapping(found: Mapping[Any, Any], options: ReadOptions, of: str) -> FileContents:
    """Reads a state dict, or a mapping that has one at any depth.

    of: what the mapping is, for errors.
    """
    places, foreign = _places(found, of)
    if not places:
        raise foreign_error(foreign[0]) if foreign else _none_error(found, of)
    if foreign and not options.layers:
        raise UsageError(
            f"{of} has several recurrent layers: {', '.join(places)}, and one in another form than "
            f"arrays, {short(repr(foreign[0]))}, which is not read. Select with --layer"
        )
    chosen = select(places, options.layers, of=of)
    parts, notes = [], []
    for name, place in chosen.items():
        if _is_of_haste(place):
            parts.append(_read_haste(place, options))
            notes.append(f"assumed: {name or 'the module'} is of haste_pytorch, by its names")
        else:
            parts.append(_read_layer(name, place, options, notes))
    if not all(map(_is_of_haste, chosen.values())):
        notes.append(
            "assumed: modules of PyTorch's own classes, whose weights are all that a state dict has"
        )
    notes += _states_among({key: 0 for place in chosen.values() for key in place.state})
    notes += assumed_order(chosen)
    return FileContents(stacked(parts), tuple(chosen), notes=tuple(notes), of_torch=True)


def _states_among(names: Iterable[Any]) -> tuple[str, ...]:
    """A note for each name that may be one of an initial state, which no module of PyTorch has."""
    return tuple(
        f"not converted: {name!r} may be a learned initial state, DirectionWeights' h0 or c0"
        for name in names
        if is_name(name) and _STATE.fullmatch(name)
    )


def _read_haste(place: _Place, options: ReadOptions) -> RecurrentWeights:
    # The state dict of a model also has the keys of its other parts.
    own = {name: f"{place.prefix}{name}" for name in HASTE_NAMES}
    weights = from_haste(
        {name: place.state[key] for name, key in own.items() if key in place.state}
    )
    if options.cell not in (None, weights.cell):
        raise UsageError(f"--cell is {options.cell}, the weights are of haste's {weights.cell}")
    return weights


def _read_layer(
    name: str, place: _Place, options: ReadOptions, notes: list[str]
) -> RecurrentWeights:
    arrays = place.state
    if not place.prefix:  # the state dict of a model also has the keys of its other parts
        arrays = {
            key: value
            for key, value in place.state.items()
            if is_name(key) and (_UNPREFIXED.fullmatch(key) or is_foreign(key))
        }
        if others := [str(key) for key in place.state if key not in arrays]:
            notes.append(f"not converted from the state dict: {', '.join(others)}")
    try:
        return from_torch(arrays, cell=options.cell, prefix=place.prefix)
    except ValueError as error:
        if "cell must be given" in str(error):
            raise UsageError(
                f"{name or 'the layer'} has one gate: specify its cell with --cell rnn_tanh or "
                "--cell rnn_relu"
            ) from None
        raise


# ---- to PyTorch


def write_torch(job: Job) -> Written:
    import torch

    state = to_torch(job.weights)
    # In memory first: torch.save has a RuntimeError for what cannot be written.
    file = io.BytesIO()
    torch.save({name: to_tensor(array) for name, array in state.items()}, file)
    Path(job.path).write_bytes(file.getbuffer())

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        del one
        backward = "_reverse" if direction_name == "backward" else ""
        return f"{NAMES[array]}_l{number}{backward}"

    return Written(place)
