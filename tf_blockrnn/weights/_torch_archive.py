"""PyTorch's files: state dicts and checkpoints, of any age, TorchScript and torch.export archives.

They are read without PyTorch, and nothing in them is executed. Since PyTorch 1.6 a file is a zip
archive of one folder, with the pickle `data.pkl` and a member `data/KEY` for each storage; a
TorchScript archive has the same, and code. Before, it was one pickle after another, of a magic
number, a version, the system, the object and the keys of the storages, which follow: each its
number of elements, in 8 bytes, and those.
"""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from tf_blockrnn.weights._bounds import check_members, member_text
from tf_blockrnn.weights._checks import UnsupportedError, first_line
from tf_blockrnn.weights._torch_pickle import CodeError, Global, load, not_read, state_dict_of
from tf_blockrnn.weights._torch_storage import STORAGES, Storage, StoredTensor

_ZIP = b"PK"
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_ORDERS = {b"little": "<", b"big": ">"}
# The types that an archive of torch.export numbers.
_EXPORTED_TYPES = {6: "float16", 7: "float32", 8: "float64", 13: "bfloat16"}


@contextlib.contextmanager
def open_torch(path: str) -> Iterator[Any]:
    """What a file holds; of TorchScript and torch.export a state dict.

    It has StoredTensors, which can be read until the context ends.

    Raises:
      CodeError: it names what would be imported or called.
      UnsupportedError: it has a form that is not read.
      OSError: the operating system refuses to read it.
      ValueError: it is corrupt.
    """
    what = "PyTorch file"
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "rb"))
            if file.read(len(_ZIP)) == _ZIP:
                archive = stack.enter_context(zipfile.ZipFile(file))
                kind = _kind_of(archive)
                what = f"archive of {kind}" if kind else what
                check_members(archive)
                if kind == "torch.export":
                    found = _exported(archive)
                else:
                    found = _pickled(archive)
                    found = state_dict_of(found) if kind else found
            else:
                found = _legacy(stack.enter_context(_mapped(file)))
        except (CodeError, UnsupportedError):
            raise
        except OSError as error:
            if error.errno is not None:
                raise
            raise ValueError(f"the file is not an intact {what}: {first_line(error)}") from error
        except (MemoryError, ImportError):
            raise
        except Exception as error:  # whatever a pickle or an archive that is corrupt leads to
            raise ValueError(f"the file is not an intact {what}: {first_line(error)}") from error
        yield found


def _kind_of(archive: zipfile.ZipFile) -> str | None:
    """What an archive is of, "torch.export" or "TorchScript"; None for others."""
    names = [name.partition("/")[2] for name in archive.namelist()]
    if "archive_format" in names:
        return "torch.export"
    has_code = "constants.pkl" in names and any(name.startswith("code/") for name in names)
    return "TorchScript" if has_code else None


def _mapped(file: IO[bytes]) -> mmap.mmap:
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _storage(pid: tuple[Any, ...]) -> tuple[str, str | None, str, int, Any]:
    """The name, the type, the key, the size and the rest of a persistent id."""
    name, kind, key, _, size, *rest = pid
    name, key = (one.decode() if isinstance(one, bytes) else one for one in (name, key))
    is_storage = name == "storage" and isinstance(kind, Global) and isinstance(key, str)
    if not is_storage or type(size) is not int or not 0 <= size < 1 << 63:
        raise ValueError("it refers to something else than a storage")
    return key, STORAGES.get(kind.name), size, rest


def _folder(archive: zipfile.ZipFile, name: str) -> str | None:
    """The folder of the member of this name; None if there is none."""
    found = [one.removesuffix(name) for one in archive.namelist() if f"/{one}".endswith(f"/{name}")]
    if len(found) > 1:
        raise ValueError(f"it has {len(found)} members {name}")
    return found[0] if found else None


def _order(archive: zipfile.ZipFile, folder: str) -> str:
    """The order of the bytes of storages; archives of PyTorch before 2.1 do not record it."""
    name = f"{folder}byteorder"
    order = member_text(archive, name) if name in archive.namelist() else b"little"
    if order not in _ORDERS:
        raise ValueError(f"its byteorder is {order!r}, neither little nor big")
    return _ORDERS[order]


def _pickled(archive: zipfile.ZipFile) -> Any:
    """What the data.pkl of an archive describes."""
    folder = _folder(archive, "data.pkl")
    if folder is None:
        raise ValueError("it has no data.pkl")
    order = _order(archive, folder)
    storages: dict[str, Storage] = {}

    def storage(pid: tuple[Any, ...]) -> Storage | None:
        key, kind, size, _ = _storage(pid)
        member = archive.getinfo(f"{folder}data/{key}")
        if kind is None:  # a type that no weights have
            return None
        one = Storage(kind, size, lambda: archive.read(member), order)
        if member.file_size != size * one.item_bytes:
            raise ValueError(f"its storage {key!r} has another size than its tensors")
        return storages.setdefault(f"{kind} {key}", one)

    data = member_text(archive, f"{folder}data.pkl")
    return load(io.BytesIO(data), len(data), storage)


def _legacy(data: mmap.mmap) -> Any:
    """What a file of PyTorch before 1.6 describes."""
    storages: dict[str, Storage] = {}
    places: dict[str, int] = {}

    def storage(pid: tuple[Any, ...]) -> Storage | None:
        key, kind, size, view = _storage(pid)
        if any(one is not None for one in view):
            raise not_read("views of storages, as PyTorch before 0.4 wrote them,")
        if kind is None:
            raise not_read(f"tensors of the type {pid[1]}")

        def read() -> bytes:
            return data[places[key] : places[key] + size * storages[key].item_bytes]

        return storages.setdefault(key, Storage(kind, size, read))

    def plain(pid: tuple[Any, ...]) -> Storage:
        raise ValueError(f"it refers to {len(pid)} things before its object")

    size = len(data)
    if load(data, size, plain) != _MAGIC or load(data, size, plain) != _VERSION:
        raise ValueError("it does not begin as PyTorch's files")
    if not load(data, size, plain)["little_endian"]:
        raise not_read("numbers of a machine with another order of bytes")
    found = load(data, size, storage)
    keys = load(data, size, plain)
    place = data.tell()
    for key in keys:
        one = storages[key]
        if int.from_bytes(data[place : place + 8], "little") != one.size or key in places:
            raise ValueError(f"its storage {key!r} has another size than its tensors")
        places[key] = place + 8
        place += 8 + one.size * one.item_bytes
    return found


def _exported(archive: zipfile.ZipFile) -> dict[str, StoredTensor]:
    """The state dict in an archive of torch.export, whose own reader may run code of the file."""
    listed = "data/weights/model_weights_config.json"
    folder = _folder(archive, listed)
    if folder is None:
        raise not_read("no list of weights, as those of torch.export before PyTorch 2.9")
    found, order = {}, _order(archive, folder)
    for name, one in json.loads(member_text(archive, f"{folder}{listed}"))["config"].items():
        meta = one["tensor_meta"]
        kind = None if one["use_pickle"] else _EXPORTED_TYPES.get(meta["dtype"])
        if kind is None:  # an integer or a packed parameter, which no recurrent layer has
            continue
        member = archive.getinfo(f"{folder}data/weights/{one['path_name']}")

        def read(member: zipfile.ZipInfo = member) -> bytes:
            return archive.read(member)

        storage = Storage(kind, member.file_size // Storage(kind, 0, read).item_bytes, read, order)
        shape, strides = ([n["as_int"] for n in meta[key]] for key in ("sizes", "strides"))
        found[name] = StoredTensor(storage, meta["storage_offset"]["as_int"], shape, strides)
    return found
