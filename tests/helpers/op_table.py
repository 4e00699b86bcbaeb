"""The signatures of all ops, read from the op table of the library (cc/ops/op_table.h).

What a test needs of an op follows from its row: legal shapes, what may be left out, what every
output has for a shape. The notation is that of cc/ops/op_spec.h and op_contract.h. That the table
is what the op contracts say, and what TensorFlow has, is tested in tests/ops/test_signatures.py.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from types import MappingProxyType

from helpers.children import ROOT

Shape = tuple[int, ...]
_NONE: Mapping = MappingProxyType({})
_ARGUMENT = re.compile(
    r"(?P<name>\w+)(:(?P<type>[\w*]+))?(?P<host>@host)?(=(?P<same_as>\w+)|\[(?P<dims>[^]]*)\])"
    r"(?P<optional>\?((?P<left>\w+)=(?P<right>\w+))?)?(?P<cell_state>!)?"
)


@dataclasses.dataclass(frozen=True)
class Argument:
    """An input or an output; a dim is a sum of products over symbols, or "?" for any."""

    name: str
    type: str  # TensorFlow's: "T", "bool", "int64" …, or "num_params*T" for a list
    on_host: bool
    alternatives: tuple[tuple[str, ...] | None, ...]  # None: of any rank
    same_as: str | None
    optional: bool  # may be left out, as a tensor of shape [0]
    left_out_if: tuple[str, str] | None  # only where these are equal
    cell_state: bool  # not read by a cuDNN cell without one

    @property
    def dims(self) -> tuple[str, ...]:
        return self.alternatives[0]

    @property
    def is_list(self) -> bool:
        return "*" in self.type


@dataclasses.dataclass(frozen=True)
class Op:
    """A row of the table."""

    name: str
    inputs: Mapping[str, Argument]
    outputs: Mapping[str, Argument]
    attrs: Mapping[str, str]  # TensorFlow's specs, as "bool = true"
    alternative_attr: str | None  # picks the second alternative where it is false
    serves_tensorflow: bool  # by its name too

    def dims(self, argument: Argument, attrs: Mapping = _NONE) -> tuple[str, ...] | None:
        """The dims of an argument of a call with these attrs."""
        if argument.same_as:
            argument = self.inputs[argument.same_as]
        first = attrs.get(
            self.alternative_attr, self.attrs.get(self.alternative_attr) != "bool = false"
        )
        return argument.alternatives[0 if first else -1]

    def shapes(
        self, sizes: Mapping[str, int], attrs: Mapping = _NONE, known: Mapping = _NONE
    ) -> dict:
        """The shape of every input, peepholes that are not used included; `known` where it is."""
        found = {}
        for name, argument in self.inputs.items():
            dims = self.dims(argument, attrs)
            dims = argument.dims if dims == ("?",) else dims
            found[name] = known[name] if name in known else shape(dims, sizes)
        return found

    def counted(self) -> set[str]:
        """The attrs that TensorFlow counts in lists of inputs."""
        return {a.type.split("*")[0] for a in self.inputs.values() if a.is_list}

    def optional(self) -> set[str]:
        """The inputs that a call without recompute and with P = H may leave out."""
        free = {None, ("K", "1"), ("P", "H")}
        return {k for k, v in self.inputs.items() if v.optional and v.left_out_if in free}


@functools.cache
def _terms(dim: str) -> tuple[tuple[int, str], ...]:
    """A dim's products: a number and its symbols."""
    products = (re.fullmatch(r"(\d*)([A-Z*]*)", term).groups() for term in dim.split("+"))
    return tuple((int(number or 1), symbols.replace("*", "")) for number, symbols in products)


def evaluate(dim: str, sizes: Mapping[str, int]) -> int:
    total = 0
    for product, symbols in _terms(dim):
        for symbol in symbols:
            product *= sizes[symbol]
        total += product
    return total


def shape(dims: tuple[str, ...], sizes: Mapping[str, int]) -> Shape:
    return tuple(evaluate(dim, sizes) for dim in dims)


def bind(dim: str, given: int, sizes: dict[str, int]) -> bool:
    """Whether a dim may be `given`; the one symbol of it that has no size yet gets it."""
    unknown = {s for _, symbols in _terms(dim) for s in symbols} - sizes.keys()
    if not unknown:
        return evaluate(dim, sizes) == given
    (symbol,) = unknown
    nothing, one = (evaluate(dim, {**sizes, symbol: n}) for n in (0, 1))
    factor = one - nothing
    sizes[symbol] = (given - nothing) // factor if factor else 0
    return sizes[symbol] >= 0 and evaluate(dim, sizes) == given


def argument(text: str) -> Argument:
    found = _ARGUMENT.fullmatch(text)
    assert found, text
    alternatives = tuple(
        None if one == "*" else tuple(filter(None, one.split(",")))
        for one in (found["dims"] or "").split("|")
    )
    return Argument(
        found["name"],
        found["type"] or "T",
        bool(found["host"]),
        alternatives,
        found["same_as"],
        bool(found["optional"]),
        (found["left"], found["right"]) if found["left"] else None,
        bool(found["cell_state"]),
    )


def is_number(specification: str) -> bool:
    """Whether an attr is a real number, which our own ops have in text."""
    return re.match("float|string = '[0-9.]+'$", specification) is not None


def _rows(source: str) -> list[list]:
    """The rows of kOpTable: texts, names, and lists of them."""
    source = re.sub(r"//.*", "", source)
    constants = {
        name: "".join(re.findall(r'"(.*?)"', value))
        for name, value in re.findall(r"char (\w+)\[\] =(.*?);\n", source, re.DOTALL)
    }
    body = re.search(r"kOpTable\[\] = (\{.*?\n\});", source, re.DOTALL)[1]
    stack: list[list] = [[]]
    ended = True  # whether the next text begins an element
    for token in re.findall(r'"[^"]*"|[{},]|[\w&]+', body):
        if token == "{":
            stack.append([])
        elif token == "}":
            stack[-2].append(stack.pop())
        elif token[0] == '"' and not ended:
            stack[-1][-1] += token[1:-1]
        elif token != ",":
            stack[-1].append(token[1:-1] if token[0] == '"' else constants.get(token, token))
        ended = token in "{,"
    return stack[0][0]


def _op(row: list) -> Op:
    name, inputs, outputs, attrs, *more = row
    inputs, outputs = (
        {a.name: a for a in map(argument, " ".join(part).split())} for part in (inputs, outputs)
    )
    specs = (spec.split(":", 1) for spec in ";".join(attrs).split(";"))
    alternative = more[0] if more and more[0] != "nullptr" else None
    attrs = {k: v.strip() for k, v in specs}
    return Op(name, inputs, outputs, attrs, alternative, "kServesTensorFlow" in row)


OPS = {
    op.name: op
    for op in map(_op, _rows((ROOT / "cc" / "ops" / "op_table.h").read_text(encoding="utf-8")))
}
# The ops under the sequence functions, in each layout.
SEQUENCES = {
    f"{name} {'TB' if time_major else 'BT'}": (op, {"time_major": time_major})
    for name, op in OPS.items()
    if "Sequence" in name
    for time_major in (True, False)
}


def sizes_of(steps: int, batch: int, inputs: int, units: int) -> dict[str, int]:
    """Of a call without projection and recompute."""
    return {"T": steps, "B": batch, "I": inputs, "H": units, "P": units, "K": 1, "N": 0}


def size_of_span_states(op: Op, sizes: Mapping[str, int], recompute: int) -> int:
    """N: the states before each span of steps but the first, in float32."""
    if recompute == 0:
        return 0
    states = sizes["H"] + ("cs_prev" in op.inputs) * sizes.get("P", sizes["H"])
    return max(-(-sizes["T"] // recompute) - 1, 0) * sizes["B"] * states
