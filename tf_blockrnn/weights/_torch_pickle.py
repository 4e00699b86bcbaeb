"""A reader of pickles as PyTorch writes them, which calls nothing that a pickle names.

`load` interprets the opcodes of state dicts, checkpoints and TorchScript modules. A global is a
name here, never an object of Python: the few functions that rebuild tensors and dicts are those of
this module, and a pickle with another name is refused. The reader has no recursion. A byte of a
pickle may become an object of some hundred bytes: what calls `load` bounds the size of the pickle.

Source: the table of opcodes in Python's `pickletools`, and `torch/_utils.py`.
"""

from __future__ import annotations

import dataclasses
import pickletools
import re
from collections.abc import Callable
from typing import IO, Any

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._torch_storage import Storage, StoredTensor


class CodeError(ValueError):
    """A pickle names what is not known, which would be imported or called."""


def not_read(what: str) -> UnsupportedError:
    """The error for an intact file that this reader does not support."""
    return UnsupportedError(
        f"the file has {what}, which is not read: load it with PyTorch and save the state dict of "
        "the module alone, torch.save(module.state_dict(), ...)"
    )


@dataclasses.dataclass(frozen=True)
class Global:
    """The name of a class, a function or a type."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Described:
    """What a pickle describes by a global, without being it: a type, a module of TorchScript.

    state is what the pickle sets it to, such as the attributes by name.
    """

    __slots__ = ("of", "state")

    def __init__(self, of: Any, state: Any = None):
        self.of, self.state = of, state

    def __repr__(self) -> str:
        return f"<{self.of}>"


def kind_of(value: Any) -> str:
    """The type of the object that a pickle describes, by its public name."""
    if isinstance(value, StoredTensor):
        return "torch.Tensor"
    if isinstance(value, Storage):
        return "torch.storage.TypedStorage"
    return str(value.of) if isinstance(value, Described) else type(value).__name__


# What a file of weights may name: what PyTorch's own reader of such files knows.
_KNOWN = re.compile(
    r"torch\.(\w+Storage|Size|device|Tensor|bool|per_\w+|(q?u?int|float|bfloat|complex)\d\w*)|"
    r"torch\._utils\._rebuild_\w+|torch\._tensor\._rebuild_from_type_v2|"
    r"torch\.jit\._pickle\.(build_\w+|restore_type_tag)|torch\.nn\.parameter\.Parameter|"
    r"torch\.serialization\._get_layout|torch\.storage\.\w+Storage|_codecs\.encode|"
    r"collections\.(OrderedDict|Counter)|(builtins|__builtin__)\.(set|complex|bytearray)|"
    r"__torch__\..*"
)

_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "UNICODE"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES8"),
    "BYTEARRAY8",
}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": list,  # which needs no hashes
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_INT = Global("builtins", "int")


def load(file: IO[bytes], size: int, storage: Callable[[tuple[Any, ...]], Storage]) -> Any:
    """What a pickle describes, with StoredTensor for tensors and dict for any mapping.

    Args:
      file: where the pickle begins; it is read up to its end.
      size: a bound of the bytes of the pickle.
      storage: returns the storage of a persistent id.

    Raises:
      ValueError, IndexError, KeyError, TypeError: it is corrupt, or names something else.
    """
    return _Machine(size, storage).run(file)


class _Machine:
    """The stack, the marks and the memo of a pickle that is being read."""

    def __init__(self, size: int, storage: Callable[[tuple[Any, ...]], Storage]):
        self._pairs_left, self._storage = size, storage
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def run(self, file: IO[bytes]) -> Any:
        for opcode, argument, _ in pickletools.genops(file):
            name = opcode.name
            if name == "LONG4":  # of more than 255 bytes: its hash and products would take long
                self._stack.append(Described(_INT))
            elif name in _LITERALS:
                self._stack.append(argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name]())
            elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
                place = len(self._memo) if name == "MEMOIZE" else argument
                self._memo[place] = self._stack[-1]
            elif name in ("BINGET", "LONG_BINGET", "GET"):
                self._stack.append(self._memo[argument])
            elif name not in ("PROTO", "FRAME", "STOP"):
                self._step(name, argument)
        return self._stack.pop()

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "MARK":
            self._below.append(stack)
            self._stack = []
        elif name == "TUPLE":
            items = self._items()
            self._stack.append(tuple(items))
        elif name in _TUPLES:
            items = tuple(stack.pop() for _ in range(_TUPLES[name]))
            stack.append(items[::-1])
        elif name in ("APPEND", "APPENDS", "ADDITEMS"):
            items = [stack.pop()] if name == "APPEND" else self._items()
            _of_type(self._stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(), stack.pop()][::-1] if name == "SETITEM" else self._items()
            _set(_of_type(self._stack[-1], dict), zip(items[::2], items[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            found = argument.split(" ", 1) if name == "GLOBAL" else [stack.pop(), stack.pop()][::-1]
            stack.append(_allowed(Global(*(_of_type(part, str) for part in found))))
        elif name in ("NEWOBJ", "REDUCE"):
            arguments = _of_type(stack.pop(), tuple)
            stack.append(self._called(_of_type(stack.pop(), Global), arguments))
        elif name == "BUILD":
            state = stack.pop()
            if isinstance(stack[-1], Described):
                stack[-1].state = state
        elif name == "BINPERSID":
            stack.append(self._storage(_of_type(stack.pop(), tuple)))
        else:
            raise not_read(f"the opcode {name} of pickles")

    def _items(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def _called(self, function: Global, arguments: tuple[Any, ...]) -> Any:
        """What a function would return for these arguments."""
        name = function.name
        if function.module == "collections" and name == "OrderedDict":
            pairs = _of_type(arguments[0], list) if arguments else []
            self._pairs_left -= len(pairs)  # one list may be the argument of many calls
            if self._pairs_left < 0:
                raise ValueError("it has more items than bytes")
            return _set({}, pairs)
        if function.module == "torch._utils" and name in ("_rebuild_tensor", "_rebuild_tensor_v2"):
            storage, offset, shape, strides, *more = arguments
            if isinstance(storage, Storage):
                return StoredTensor(storage, offset, shape, strides, *more[2:3])
        if name in _RETURNS_FIRST and arguments:
            return arguments[0]
        if name == "_rebuild_from_type_v2":
            inner, _, inner_arguments, _ = arguments
            if inner.name != name:  # which would recurse
                return self._called(_of_type(inner, Global), _of_type(inner_arguments, tuple))
        return Described(function)


# The functions whose first argument is the result, but for what is no weight.
_RETURNS_FIRST = {
    *("_rebuild_parameter", "_rebuild_parameter_with_state", "Parameter", "Size"),
    *("restore_type_tag", "build_intlist", "build_tensorlist", "build_doublelist"),
    "build_boollist",
}


def _of_type(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it has {kind_of(value)} for {kind.__name__}")
    return value


def _allowed(name: Global) -> Global:
    if _KNOWN.fullmatch(str(name)):
        return name
    raise CodeError(f"it names {name}")


def _set(target: dict[Any, Any], pairs: Any) -> dict[Any, Any]:
    target.update((_key(key), value) for key, value in pairs)
    return target


_MOST_KEY = 1000  # items and characters in a key that is a tuple
_TUPLE = Global("builtins", "tuple")


def _key(key: Any) -> Any:
    """A key of a dict; another object for a large tuple, which no name of weights is.

    The hash of tuples in one another is recursive, and may visit one of them very often.
    """
    pending, left = [key] if isinstance(key, tuple) else [], _MOST_KEY
    while pending:
        one = pending.pop()
        left -= 1 + (len(one) if isinstance(one, (str, bytes, tuple)) else 0)
        if left < 0:
            return Described(_TUPLE)
        if isinstance(one, tuple):
            pending += one
    return key


# ---- TorchScript

_MOST_NAMES = 1 << 24  # characters, in all names of a module's tensors


def state_dict_of(module: Any) -> dict[str, StoredTensor]:
    """The tensors that are attributes of a module of TorchScript, or of the modules in it."""
    found, pending, seen, left = {}, [("", module)], set(), _MOST_NAMES
    while pending:
        prefix, one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if not isinstance(one, Described) or not isinstance(one.state, dict):
            continue
        for name, value in reversed(one.state.items()):
            if not isinstance(value, (StoredTensor, Described)):
                continue
            path = f"{prefix}{name}"
            left -= len(path)
            if left < 0:
                raise ValueError("the names of its tensors are too long")
            if isinstance(value, StoredTensor):
                found[path] = value
            else:
                pending.append((f"{path}.", value))
    return dict(reversed(found.items()))
