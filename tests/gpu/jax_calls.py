"""The ops in JAX's XLA, through the handlers of the library that TensorFlow loads (cc/xla).

No TensorFlow is needed, but its libtensorflow_framework.so.2: the ops' library links with nothing
else of it.
"""

from __future__ import annotations

import ast
import base64
import ctypes
import importlib.util
import json
import lzma
import pathlib
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from helpers import block_cells, op_table

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "tf_blockrnn"
_FRAMEWORK = "libtensorflow_framework.so.2"
_OPS = "libblockrnn_ops_tf*.so"
_NAMESPACE = "BlockRNN>"


# ---- the libraries


def has_cuda(package: pathlib.Path) -> bool:
    """Whether the build has kernels for GPUs."""
    return not json.loads((package / "_build_info.json").read_text())["cuda"]["missing"]


def prepare(package: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes what `Ops` loads, 15 MB, where the package is built and TensorFlow is installed."""
    if not has_cuda(package):
        print("for the CPU alone: this build has no kernels for GPUs")
    tensorflow = pathlib.Path(importlib.util.find_spec("tensorflow").origin).parent
    folder.mkdir(parents=True, exist_ok=True)
    (ops,) = package.glob(_OPS)
    shutil.copy(ops, folder)
    compressed = lzma.compress((tensorflow / _FRAMEWORK).read_bytes(), preset=6)
    (folder / f"{_FRAMEWORK}.xz").write_bytes(compressed)


def _load(folder: pathlib.Path, engines: Mapping[str, pathlib.Path], at: pathlib.Path):
    """The framework and the ops' library, from `at`. engines: see `Ops`."""
    (ops,) = folder.glob(_OPS)
    for name, target in {ops.name: ops, **engines}.items():
        (at / name).symlink_to(target.resolve(strict=True))
    framework = at / _FRAMEWORK
    framework.write_bytes(lzma.decompress((folder / f"{_FRAMEWORK}.xz").read_bytes()))
    # Not RTLD_GLOBAL: JAX's libraries have functions of the same names.
    return ctypes.CDLL(str(framework)), ctypes.CDLL(str(at / ops.name))


# ---- XLA's interface, as far as a handler that does nothing needs it (xla/ffi/api/c_api.h)


def structure(name: str, /, **fields) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": tuple(fields.items())})


HEAD = {"struct_size": ctypes.c_size_t, "extension": ctypes.c_void_p}
Version = structure("Version", **HEAD, major=ctypes.c_int, minor=ctypes.c_int)
_Api = structure("Api", **HEAD, version=Version)
_Metadata = structure("Metadata", struct_size=ctypes.c_size_t, version=Version)
_Extension = structure(
    "Extension", struct_size=ctypes.c_size_t, type=ctypes.c_int, next=ctypes.c_void_p,
    metadata=ctypes.POINTER(_Metadata),
)  # fmt: skip
Frame = structure("Frame", **{**HEAD, "extension": ctypes.POINTER(_Extension)}, api=ctypes.c_void_p)


_apis: list[int] = []


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Frame))
def _keep_api(frame):
    _apis.append(frame.contents.api)
    if frame.contents.extension:  # XLA asks for the version
        metadata = frame.contents.extension.contents.metadata.contents
        metadata.version = _Api.from_address(frame.contents.api).version


def _interface(jax, platform: str) -> int:
    """The address of the XLA_FFI_Api of the XLA that runs a platform's programs, which gives it to
    each handler that it calls. A plug-in for GPUs has an XLA of its own."""
    jax.ffi.register_ffi_target("keep_api", jax.ffi.pycapsule(_keep_api), platform=platform)
    nothing = jax.ShapeDtypeStruct((1,), np.float32)
    jax.block_until_ready(jax.jit(jax.ffi.ffi_call("keep_api", nothing, has_side_effect=True))())
    return _apis[-1]


# ---- nodes: TensorFlow's messages NodeDef and AttrValue

_DATA_TYPES = {"float": 1, "double": 2, "int32": 3, "int64": 9, "bfloat16": 14, "half": 19}


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    digits = []
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _attr_value(kind: str, value) -> bytes:
    """kind: TensorFlow's spec of the attr, without a default."""
    if kind.startswith("int"):
        return _field(3, value)
    if kind.startswith("float"):
        return _varint(4 << 3 | 5) + struct.pack("<f", value)
    if kind.startswith("bool"):
        return _field(5, int(value))
    if kind.startswith(("string", "{'")):
        text = value if isinstance(value, str) else repr(float(value))  # of a number in text
        return _field(2, text.encode())
    return _field(6, _DATA_TYPES[value])


def _default(text: str):
    words = {"true": True, "false": False}
    return words[text] if text in words else ast.literal_eval(text.replace("DT_INT32", "'int32'"))


def node(op: str, **attrs) -> bytes:
    """The NodeDef of an op with these attrs and the defaults of the others."""
    message = _field(2, op.encode())
    for name, spec in op_table.OPS[op].attrs.items():
        kind, _, default = spec.rpartition(" = ") if " = " in spec else (spec, "", "")
        value = attrs[name] if name in attrs else _default(default)
        entry = _field(1, name.encode()) + _field(2, _attr_value(kind, value))
        message += _field(5, entry)
    return message


# ---- calls


def attrs_of(op: str, dtype: str, attrs: Mapping) -> dict:
    """Those of `attrs` that the op has."""
    return {k: v for k, v in {**attrs, "T": dtype}.items() if k in op_table.OPS[op].attrs}


def argument_type(argument: op_table.Argument, attrs: Mapping):
    """NumPy's."""
    if argument.type in ("bool", "int8"):
        return np.dtype(argument.type)
    kind = argument.type.split("*")[-1]
    kind = attrs.get(kind, "int32") if kind in ("T", "Tlen", "S") else kind
    return np.dtype(kind) if kind.startswith("int") else block_cells.numpy_type(kind)


def output_shapes(op: str, shapes: Mapping, attrs: Mapping, sizes: Mapping) -> dict:
    """By name, those of a legal call; sizes: of what does not follow from the inputs' shapes."""
    row, sizes = op_table.OPS[op], dict(sizes)
    no_cell_state = attrs.get("rnn_mode", "lstm") != "lstm"
    for name, argument in row.inputs.items():
        left_out = argument.optional and shapes[name] == (0,)
        dims = row.dims(argument, attrs)
        if left_out or (argument.cell_state and no_cell_state):
            continue
        for dim, size in zip(dims, shapes[name], strict=True):
            if dim != "?":
                op_table.bind(dim, size, sizes)
    found = {}
    for name, output in row.outputs.items():
        if output.cell_state and no_cell_state:
            found[name] = ()
        elif output.same_as:
            found[name] = shapes[output.same_as]
        else:
            found[name] = op_table.shape(row.dims(output, attrs), sizes)
    return found


class Ops:
    """The ops on a platform of JAX: "cpu" or "CUDA".

    folder: as `prepare` left it; engines: the engines' libraries by the names that they are looked
    for under; at: an empty folder that lasts as long as this.
    """

    def __init__(self, jax, platform: str, folder, engines, at, emulated=None):
        self.jax, self.platform = jax, platform
        api = _interface(jax, "CUDA" if platform == "CUDA" else "cpu")
        self._framework, self._library = _load(folder, engines, at)
        if emulated is not None:
            self._emulated = emulated(api)
            api = self._emulated.api
        problem = self._text("blockrnn_cuda_problem") if self.on_gpu else None
        problem = problem or self._text("blockrnn_register_ffi_handlers", ctypes.c_void_p(api))
        if problem:
            raise RuntimeError(problem)

    def _text(self, name: str, *arguments) -> str | None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_char_p
        text = function(*arguments)
        return None if text is None else text.decode()

    @property
    def on_gpu(self) -> bool:
        """Whether the handlers are those for CUDA."""
        return self.platform != "cpu"

    def engine(self) -> str:
        """What computes the calls."""
        if not self.on_gpu:
            return f"the CPU engine for {self._text('blockrnn_cpu_isa')}"
        cublas = self._text("blockrnn_cublas") or self._text("blockrnn_cublas_problem")
        return f"the CUDA engine with {cublas}"

    def allow_tf32(self, allowed: bool) -> None:
        """TensorFlow's tf.config.experimental.enable_tensor_float_32_execution."""
        self._framework._ZN3tsl32enable_tensor_float_32_executionEb(ctypes.c_bool(allowed))

    def function(self, op: str, outputs: Sequence, message: bytes) -> Callable:
        """The op of arrays in the order of its inputs, for use in jitted functions too. outputs:
        (shape, type) of each; message: the node."""
        call = self.jax.ffi.ffi_call(
            _NAMESPACE + op, [self.jax.ShapeDtypeStruct(*output) for output in outputs]
        )
        return lambda *arrays: call(*arrays, node=base64.b64encode(message).decode())

    def bound(self, op: str, dtype: str, inputs: Mapping, attrs: Mapping, sizes=(), lists=()):
        """The op as a function, and its arguments: inputs by name, of which those left out are
        empty, and the elements of lists.

        sizes: of what does not follow from the inputs; lists: shapes of outputs that are lists.
        """
        row, attrs = op_table.OPS[op], attrs_of(op, dtype, attrs)
        given = {
            name: [np.asarray(v, argument_type(a, attrs)) for v in inputs[name]]
            if a.is_list
            else np.asarray(inputs.get(name, np.zeros(0)), argument_type(a, attrs))
            for name, a in row.inputs.items()
        }
        shapes = {k: v.shape for k, v in given.items() if not isinstance(v, list)}
        lists = dict(lists)
        if lists:
            shapes = {name: lists[name] for name in row.outputs}
        else:
            shapes = {k: [v] for k, v in output_shapes(op, shapes, attrs, dict(sizes)).items()}
        outputs = [
            (shape, argument_type(output, attrs))
            for name, output in row.outputs.items()
            for shape in shapes[name]
        ]
        arrays = [v for a in given.values() for v in (a if isinstance(a, list) else [a])]
        return self.function(op, outputs, node(op, **attrs)), arrays

    def call(self, op: str, dtype: str, inputs: Mapping, attrs: Mapping, **more) -> dict:
        """Outputs by name, NumPy arrays; the elements of lists one after the other, by number."""
        function, arrays = self.bound(op, dtype, inputs, attrs, **more)
        found = [np.asarray(v) for v in self.jax.jit(function)(*arrays)]
        names = op_table.OPS[op].outputs
        return dict(
            zip(names if len(names) == len(found) else range(len(found)), found, strict=True)
        )
