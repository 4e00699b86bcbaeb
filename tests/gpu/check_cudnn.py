"""Compares stacks of layers of the CUDA engine with cuDNN's own, which PyTorch runs on a GPU.

In the emulation PyTorch computes on the CPU instead: what is then checked is this comparison.
"""

from __future__ import annotations

import importlib.util
import itertools
import warnings

import check_program
import device_engine
import torch_calls
from device_stack import Options, Stack, cotangents_of, exact, reference, slopes_are_certain
from helpers import compare, cudnn_calls, tolerances
from helpers.cudnn_calls import Call
from helpers.reference.stack import Network

LENGTHS = (5, 2, 1, 4)  # cuDNN knows no row without steps


def calls(mode: str, emulated: bool) -> list[Call]:
    """Layers, directions, packed lengths and a projection; on a GPU larger sizes too."""
    found = [
        Call(Network(mode, 3, directions, 6, 7, num_proj), 5, 4, lengths)
        for num_proj in ((0, 3) if mode == "lstm" else (0,))
        for directions in (1, 2)
        for lengths in (None, LENGTHS)
    ]
    if emulated:
        return found
    return [
        *found,
        Call(Network(mode, 1, 1, 33, 64), 50, 8),
        Call(Network(mode, 1, 1, 256, 256), 20, 1),
        Call(Network(mode, 1, 2, 128, 320), 30, 33, tuple(1 + n % 30 for n in range(33))),
        Call(Network(mode, 2, 1, 100, 1024), 12, 8),
        Call(Network(mode, 1, 1, 64, 130), 9, 200),
    ]


def arrays_of(call: Call, dtype: str):
    """The first random ones whose slopes are certain."""
    for seed in itertools.count():
        arrays = exact(call.random("double", seed), dtype)
        if call.net.mode != "rnn_relu" or slopes_are_certain(reference(call, dtype, arrays), dtype):
            return arrays


def compare_with_torch(
    stack: Stack, torch_witness, call: Call, dtype: str, device, options
) -> bool:
    """Whether it was cuDNN that ran.

    It computes in float64: in float32 its kernels for small layers err by up to 8e-5 (seen).
    """
    arrays, cotangents = arrays_of(call, dtype), cotangents_of(call, dtype)
    want, cudnn_ran = torch_calls.cudnn_ran(
        lambda: torch_witness.torch_run(
            call.net, *(arrays[name] for name in call.shapes()), call.lengths, cotangents,
            device=device,
        )
    )  # fmt: skip
    found = stack.forward(call, dtype, arrays, options)
    found |= stack.backward(call, dtype, arrays, found, cotangents, options)
    numbers = {k: device_engine.decode(v, dtype) for k, v in found.items() if k != "reserve"}
    blocks = torch_witness.torch_blocks(call.net, numbers["params_backprop"])
    bound = tolerances.stack_bound(dtype, call.longest_sum(), call.net.layers, backward=True)
    if dtype == "double":
        bound *= 2  # each of the two may err by it
    for name, value in want.items():
        got = blocks[name] if name in blocks else numbers[name]
        compare.assert_close(got, value, bound, f"{call} {dtype} {options}: {name}")
    return cudnn_ran


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    if arguments.small:
        return
    if importlib.util.find_spec("torch") is None:
        check_program.not_run("no PyTorch to compare with")
    from helpers import torch_witness

    torch = torch_witness.torch
    stack = Stack(arguments)
    emulated = stack.engine.emulated
    if not emulated and not torch.cuda.is_available():
        check_program.not_run("this PyTorch has no CUDA to compare with")
    torch.set_num_threads(1)  # small sizes
    warnings.filterwarnings("ignore", "LSTM with projections", UserWarning)  # of oneDNN
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    device = "cpu" if emulated else "cuda"
    who = "PyTorch on the " + ("CPU" if emulated else "GPU")

    def of_mode(mode: str) -> int:
        ran = []

        def check(count, case) -> None:
            options = Options(blas=count % 2 == 1)
            ran.append(compare_with_torch(stack, torch_witness, *case, device, options))

        cases = itertools.product(calls(mode, emulated), ("float", "double"))
        try:
            return check_program.each(enumerate(cases), check)
        finally:
            if not emulated:
                print(f"{mode}: cuDNN ran in {sum(ran)} cases, else PyTorch's own kernels")

    checks = {
        f"{mode} as {who} computes it": lambda m=mode: of_mode(m) for mode in cudnn_calls.MODES
    }
    check_program.run(arguments, checks, stack.engine.lives)


if __name__ == "__main__":
    main()
