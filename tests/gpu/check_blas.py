"""Checks the engine's calls of cuBLAS in a library that run.py has built: every layout and type.

In the emulation it opens the substitute, which also rejects what the engine must not do. On a GPU
it opens cuBLAS itself, PyTorch's copy if PyTorch is installed.
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import itertools
import pathlib
import sys

import check_program
import device_engine
import numpy as np
from helpers import block_cells, compare, tolerances

# rows, columns, depth; one row and one column, whose strides mean nothing, and a depth of none.
DIMS = ((1, 1, 1), (5, 7, 3), (1, 6, 4), (6, 1, 4), (3, 5, 1), (4, 3, 0), (1, 3, 0), (17, 9, 33))
EMPTY_DIMS = ((0, 3, 2), (3, 0, 2))


class Blas:
    """The engine's BLAS, as the shim gives it."""

    def __init__(self, arguments: argparse.Namespace):
        self.engine = device_engine.Engine(arguments)
        self.library = self.engine.library
        for name in ("path", "problem"):
            getattr(self.library, "blockrnn_blas_" + name).restype = ctypes.c_char_p

    def found(self) -> str | None:
        path = self.library.blockrnn_blas_path()
        return path.decode() if path is not None else None

    def run(self, gemm, a, b, c, *, tf32=False, repeats=1, scratch_calls=1) -> np.ndarray:
        """The array that c becomes. gemm: the numbers of a BlasGemm by name."""
        options = {"allow_tf32": tf32, "repeats": repeats, "scratch_calls": scratch_calls}
        numbers = {**gemm, **options, "with_blas": True}
        return self.engine.call("BlasGemm", "float", numbers, {"a.data": a, "b.data": b}, {"c": c})[
            "c"
        ]


def gemm_of(rows: int, columns: int, depth: int, dtype: str = "float") -> dict[str, int]:
    """A GEMM of dense matrices."""
    return {
        "rows": rows, "columns": columns, "depth": depth, "type": device_engine.DTYPES.index(dtype),
        "a.stride": depth, "b.stride": columns, "c_stride": columns,
    }  # fmt: skip


def laid_out(values: np.ndarray, pad: int, transposed: bool) -> tuple[np.ndarray, int]:
    """A matrix as it lies in memory, `pad` NaN behind each row but the last; and what to say for
    the elements from row to row."""
    if transposed:
        values = values.T
    rows, columns = values.shape
    stride = columns + pad
    memory = np.full((rows, stride), np.nan)
    memory[:, :columns] = values
    # The last row ends with its last element, where the array may end too; of a single row the
    # engine may say any stride.
    return memory.ravel()[: rows * stride - pad if rows else 0], 0 if rows == 1 else stride


def sum_type(dtype: str) -> str:
    return "double" if dtype == "double" else "float"


def check_one(blas, dims, dtype, transposed, pad, accumulate) -> None:
    rows, columns, depth = dims
    c_dtype = sum_type(dtype)
    rng = np.random.default_rng([*dims, pad])
    a, b, before = (
        rng.standard_normal(shape) / 2
        for shape in ((rows, depth), (depth, columns), (rows, columns))
    )
    stored, gemm = {}, gemm_of(*dims, dtype) | {"accumulate": accumulate}
    for name, values, turned in (("a", a, transposed[0]), ("b", b, transposed[1])):
        memory, stride = laid_out(values, pad, turned)
        stored[name] = device_engine.encode(memory, dtype)
        gemm |= {f"{name}.stride": stride, f"{name}.transposed": turned}
    # The gaps between the rows of c must not change; c is read only with `accumulate`.
    memory, gemm["c_stride"] = laid_out(before, pad, False)
    written = ~np.isnan(memory)
    if not accumulate:
        memory = np.full_like(memory, np.nan)
    c = device_engine.encode(memory, c_dtype)
    got = blas.run(gemm, stored["a"], stored["b"], c)

    def exact(values, name):
        return device_engine.decode(device_engine.encode(values, name), name)

    want = exact(a, dtype) @ exact(b, dtype)
    if accumulate:
        want = want + exact(before, c_dtype)
    what = f"{dims} {dtype} to {c_dtype}, {transposed}, {accumulate=}"
    np.testing.assert_array_equal(got[~written], c[~written], err_msg=what)
    numbers = device_engine.decode(got[written], c_dtype)
    compare.assert_close(numbers, want.ravel(), tolerances.bound(c_dtype, max(depth, 1)), what)


def layouts(blas) -> int:
    turns = itertools.product((False, True), repeat=2)
    padded = ((0, False), (3, True), (2, False))
    return check_program.each(
        itertools.product(DIMS, block_cells.DTYPES, turns, padded),
        lambda dims, dtype, transposed, pad: check_one(blas, dims, dtype, transposed, *pad),
    )


def empty(blas) -> int:
    """Nothing to write: nothing is called, not even for scratch."""
    for dims in EMPTY_DIMS:
        nothing = np.zeros(0, np.float32)
        blas.run(gemm_of(*dims), nothing, nothing, nothing, scratch_calls=0)
    return len(EMPTY_DIMS)


def square(size: int, dtype: str = "float") -> tuple[dict, list[np.ndarray]]:
    rng = np.random.default_rng(size)
    return gemm_of(size, size, size, dtype), [
        rng.standard_normal((size, size)).astype(np.float32) for _ in range(3)
    ]


def scratch(blas) -> int:
    """A refused workspace is reported; one call of the engine asks for one only."""
    gemm, arrays = square(4)
    try:
        blas.run(gemm, *arrays, scratch_calls=0)
    except device_engine.EngineError as error:
        assert str(error) == device_engine.OUT_OF_MEMORY, error
    else:
        raise AssertionError("no error without scratch")
    blas.run(gemm, *arrays, repeats=3)
    return 2


def refused_handles(blas, stand_in) -> int:
    """cuBLAS has no memory for a handle, or fails to set it up: no handle is left, and the next
    call makes one. Before any GEMM, which would leave a handle behind."""
    gemm, arrays = square(4)
    for allowed in (0, 1):
        stand_in.stand_in_allow_handles(allowed)
        try:
            blas.run(gemm, *arrays)
        except device_engine.EngineError as error:
            assert str(error) == device_engine.OUT_OF_MEMORY, error
        else:
            raise AssertionError(f"no error with {allowed} calls allowed")
        assert stand_in.stand_in_handles() == 0, "a handle was left"
    stand_in.stand_in_allow_handles(1 << 30)
    blas.run(gemm, *arrays)
    assert stand_in.stand_in_handles() == 1
    return 3


def same_bits(blas) -> int:
    gemm, arrays = square(200)
    seen = {compare.bits(blas.run(gemm, *arrays)) for _ in range(5)}
    assert len(seen) == 1, "bits differ"
    return 5


def tf32(blas, stand_in) -> int:
    """TF32 is asked for where it is allowed, and for float32 alone."""

    def asked() -> int:
        every, some = ctypes.c_int(), ctypes.c_int()
        stand_in.stand_in_calls(ctypes.byref(every), ctypes.byref(some))
        return some.value

    cases = (("float", False, 0), ("float", True, 1), ("half", True, 0), ("double", True, 0))
    for dtype, allowed, want in cases:
        gemm, arrays = square(4, dtype)
        before = asked()
        a, b = (device_engine.encode(array, dtype) for array in arrays[:2])
        blas.run(gemm, a, b, device_engine.encode(arrays[2], sum_type(dtype)), tf32=allowed)
        assert asked() - before == want, (dtype, allowed)
    return len(cases)


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    if arguments.small:  # cuBLAS' kernels are not ours to sanitize
        return
    blas = Blas(arguments)
    if blas.engine.emulated and ctypes.util.find_library("cublas") is None:
        # A search in vain is reported, and must not be the last one.
        assert blas.found() is None
        problem = blas.library.blockrnn_blas_problem().decode()
        gemm, arrays = square(4)
        try:
            blas.run(gemm, *arrays)
        except device_engine.EngineError as error:
            assert str(error) == problem, error
        else:
            raise AssertionError("a GEMM without cuBLAS")
    stand_in = blas.engine.load_cublas(arguments.cublas, arguments.small)
    if blas.found() is None:
        sys.exit(f"no cuBLAS to check with: {blas.library.blockrnn_blas_problem().decode()}")
    print(f"cuBLAS: {pathlib.Path(blas.found()).name}")
    checks = {}
    if blas.engine.emulated:
        checks["BLAS handles refused"] = lambda: refused_handles(blas, stand_in)
    checks |= {
        "BLAS layouts": lambda: layouts(blas),
        "BLAS of nothing": lambda: empty(blas),
        "BLAS scratch": lambda: scratch(blas),
        "BLAS same bits": lambda: same_bits(blas),
    }
    if blas.engine.emulated:
        checks["BLAS, TF32"] = lambda: tf32(blas, stand_in)
    check_program.run(arguments, checks, blas.engine.lives)


if __name__ == "__main__":
    main()
