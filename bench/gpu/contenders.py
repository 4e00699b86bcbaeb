"""The two that are measured, on the same weights and inputs: our engine and cuDNN, by PyTorch."""

from __future__ import annotations

import ctypes
import pathlib
import time
from collections.abc import Callable

import torch

from bench.gpu.cases import PATHS, Case

# RnnMode of cc/core/param_layout.h.
_MODES = {"lstm": 2, "gru": 3}
_MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
# In the order of the shim's types.
_TYPES = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32}


class _Plain(ctypes.Structure):
    """As the shim's PlainBench."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("dtype", "mode", "layers", "directions", "input", "units", "steps", "batch"),
            *("allow_tf32", "persistent", "blas_step_work"),
        )
    )


class Problem:
    """Numbers of a case on a device, time-major."""

    def __init__(self, case: Case, device: str):
        self.case, self.device = case, device
        self.dtype = _TYPES["float" if case.dtype == "tf32" else case.dtype]
        torch.manual_seed(0)
        units = case.units
        self.module = _MODULES[case.cell](
            units, units, case.layers, bidirectional=case.directions == 2, device=device,
            dtype=self.dtype,
        )  # fmt: skip
        # Else PyTorch has cuDNN keep what a gradient needs, whether one is wanted or not.
        self.module.train(case.kind == "train")
        self.x = self.random(case.steps, case.batch, units)
        self.h, self.c = (self.random(case.layer_directions, case.batch, units) for _ in range(2))
        self.output_grad = self.random(case.steps, case.batch, case.directions * units)

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=self.device).mul_(0.5).to(self.dtype)

    def weights(self) -> list[torch.nn.Parameter]:
        """In the order of the cuDNN ops: the matrices of all layers and their directions, then the
        biases."""
        return [
            getattr(self.module, f"{kind}_{side}_l{layer}{direction}")
            for kind in ("weight", "bias") for layer in range(self.case.layers)
            for direction in ("", "_reverse")[: self.case.directions] for side in ("ih", "hh")
        ]  # fmt: skip

    def params(self) -> torch.Tensor:
        return torch.cat([weight.detach().reshape(-1) for weight in self.weights()])


class Cudnn:
    """PyTorch's module, whose kernels on a GPU are cuDNN's, but for bfloat16 with an old one."""

    joins = False  # whether the weights' gradients are wanted in one piece, to be compared

    def __init__(self, problem: Problem):
        self.problem = problem
        tf32 = problem.case.dtype == "tf32"
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
        training = problem.case.kind == "train"
        given = [problem.x, problem.h, *([problem.c] if problem.case.cell == "lstm" else [])]
        self.given = [v.clone().requires_grad_(training) for v in given]

    def run(self) -> dict[str, torch.Tensor]:
        x, *states = self.given
        state = tuple(states) if len(states) == 2 else states[0]
        if self.problem.case.kind == "infer":
            with torch.no_grad():
                return {"output": self.problem.module(x, state)[0]}
        output, _ = self.problem.module(x, state)
        wanted = [*self.given, *self.problem.weights()]
        grads = torch.autograd.grad(output, wanted, self.problem.output_grad)
        found = {"output": output.detach(), "x_grad": grads[0], "h_grad": grads[1]}
        if self.joins:
            of_weights = grads[len(self.given) :]
            found["params_grad"] = torch.cat([grad.reshape(-1) for grad in of_weights])
        return found


class Ours:
    """The engine, on the stream that is PyTorch's at the moment."""

    def __init__(self, problem: Problem, library: ctypes.CDLL):
        case = problem.case
        self.problem, self.library = problem, library
        library.blockrnn_bench_open.restype = ctypes.c_void_p
        library.blockrnn_bench_run.restype = ctypes.c_char_p
        library.blockrnn_persistent_kernels.restype = ctypes.c_int64
        plain = _Plain(
            list(_TYPES.values()).index(problem.dtype), _MODES[case.cell], case.layers,
            case.directions, case.units, case.units, case.steps, case.batch, case.dtype == "tf32",
            *PATHS[case.path],
        )  # fmt: skip
        sizes = ctypes.c_int64(), ctypes.c_int64()
        library.blockrnn_bench_sizes(ctypes.byref(plain), *map(ctypes.byref, sizes))
        self.params = problem.params()
        assert self.params.numel() == sizes[0].value, "another params layout than PyTorch's"
        self.bench = ctypes.c_void_p(library.blockrnn_bench_open(ctypes.byref(plain)))
        self.output = torch.empty_like(problem.output_grad)
        self.last = torch.empty_like(problem.h), torch.empty_like(problem.c)
        training = case.kind == "train"
        size = sizes[1].value if training else 0
        self.reserve = torch.empty(size, dtype=torch.uint8, device=problem.device)
        self.grads = [torch.empty_like(v) for v in (problem.x, problem.h, problem.c, self.params)]
        given = [problem.x, problem.h, problem.c, self.params, self.output]
        self._forward = _pointers([*given, *self.last, self.reserve if training else None])
        self._backward = _pointers([*given, problem.output_grad, self.reserve, *self.grads])

    def close(self) -> None:
        self.library.blockrnn_bench_close(self.bench)

    def _call(self, backward: bool, pointers, stream) -> None:
        error = self.library.blockrnn_bench_run(int(backward), self.bench, stream, pointers)
        if error is not None:
            raise RuntimeError(error.decode())

    def run(self, stream: int | None = None) -> dict[str, torch.Tensor]:
        if stream is None:
            stream = torch.cuda.current_stream().cuda_stream
        self._call(False, self._forward, ctypes.c_void_p(stream))
        if self.problem.case.kind == "infer":
            return {"output": self.output}
        self._call(True, self._backward, ctypes.c_void_p(stream))
        return {
            "output": self.output,
            "x_grad": self.grads[0],
            "h_grad": self.grads[1],
            "params_grad": self.grads[3],
        }


def _pointers(tensors):
    values = [None if t is None else t.data_ptr() for t in tensors]
    return (ctypes.c_void_p * len(values))(*values)


def disagreement(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """The largest relative error of an array, in the L2 norm."""
    errors = [0.0]
    for name, want in theirs.items():
        difference = ours[name].double() - want.double()
        errors.append(float(difference.norm() / want.double().norm().clamp_min(1e-30)))
    return max(errors)


# Sums in float32 in another order, less than where one rounded to TF32; factors rounded to 10 bits;
# and what half and bfloat16 keep between steps, which the two round at other places. Half has three
# bits more than bfloat16.
MOST_DISAGREEMENT = {"float": 2e-5, "tf32": 2e-2, "half": 1e-2, "bfloat16": 6e-2}

_MOST_IDLE_SECONDS = 0.02


def event_runner(function: Callable[[], object], stream: torch.cuda.Stream, clock_hz: float):
    """A bench.timing Runner: the device's time of each call.

    The device idles before each call for as long as it takes to queue one, so that what is timed
    are kernels and not the host that queues them, ours or PyTorch's. Warm calls tell how long that
    is, also for later turns without one.
    """
    queueing = 0.0

    def run(calls: int, warm: int) -> list[float]:
        nonlocal queueing
        with torch.cuda.stream(stream):
            for _ in range(warm):
                stream.synchronize()
                start = time.perf_counter()
                function()
                queueing = time.perf_counter() - start
            idle = int(clock_hz * min(2 * queueing, _MOST_IDLE_SECONDS))
            pairs = []
            for _ in range(calls):
                pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                torch.cuda._sleep(idle)
                pair[0].record(stream)
                function()
                pair[1].record(stream)
                pairs.append(pair)
        stream.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]

    return run


def libraries(library: ctypes.CDLL) -> dict[str, object]:
    """What computes on both sides."""
    library.blockrnn_blas_path.restype = ctypes.c_char_p
    path = library.blockrnn_blas_path()
    return {
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "cublas": None if path is None else pathlib.Path(path.decode()).name,
    }
