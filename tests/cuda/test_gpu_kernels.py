"""What can be tested of the GPU kernels without a GPU: which are registered, with what in host
memory, and what the doctor reports about GPUs."""

from __future__ import annotations

import pytest
from helpers import registered_kernels

TYPES = ("half", "bfloat16", "float", "double")
_SIZES = {"num_layers", "num_units", "input_size"}
# What a kernel has in host memory: sizes, lengths and resets, which decide what is queued on the
# GPU. No tensor of numbers is among them.
HOST_MEMORY = {
    **dict.fromkeys(("BlockLSTM", "BlockLSTMV2", "BlockGRU"), {"seq_len_max"}),
    **dict.fromkeys(("BlockLSTMGrad", "BlockLSTMGradV2", "BlockGRUGrad"), {"seq_len_max"}),
    **{
        f"{cell}Sequence{grad}": {"sequence_lengths", "resets"}
        for cell in ("LSTM", "GRU", "GRUAfter", "RNN", "LayerNormLSTM", "LayerNormGRU")
        for grad in ("", "Grad")
    },
    **{f"CudnnRNN{backprop}": set() for backprop in ("", "Backprop")},
    **{f"CudnnRNN{backprop}V2": {"host_reserved"} for backprop in ("", "Backprop")},
    **{
        f"CudnnRNN{backprop}V3": {"sequence_lengths", "host_reserved"}
        for backprop in ("", "Backprop")
    },
    "CudnnRNNParamsSize": {*_SIZES, "params_size"},
    **{
        f"CudnnRNN{converter}{version}": _SIZES
        for converter in ("ParamsToCanonical", "CanonicalToParams")
        for version in ("", "V2")
    },
    **dict.fromkeys(
        ("GRUBlockCell", "GRUBlockCellGrad", "LSTMBlockCell", "LSTMBlockCellGrad"), set()
    ),
}


@pytest.fixture(scope="module")
def built(tfb):
    """The devices that this build has kernels for."""
    return ("CPU", "GPU") if tfb.build_info()["cuda"]["architectures"] else ("CPU",)


def test_every_op_is_known_here(tfb):
    assert set(HOST_MEMORY) == set(tfb.raw_ops.__all__)


@pytest.mark.parametrize("name", HOST_MEMORY)
def test_every_device_has_every_type_and_sizes_in_host_memory(tf, built, name):
    for device in ("CPU", "GPU"):
        registered = [
            k for k in registered_kernels.of(f"BlockRNN>{name}") if k.device_type == device
        ]
        types = [
            tf.as_dtype(t)
            for k in registered
            for c in k.constraint
            if c.name == "T"
            for t in c.allowed_values.list.type
        ]
        wanted = {tf.as_dtype(t) for t in TYPES} if device in built else set()
        assert len(types) == len(set(types)) and set(types) == wanted, device
        for kernel in registered:
            assert set(kernel.host_memory_arg) == HOST_MEMORY[name], device


def test_what_tensorflow_has_in_host_memory_is_there(tf):
    """Its kernels for GPUs, where this TensorFlow has them."""
    if not tf.test.is_built_with_cuda():
        pytest.skip("not run: TensorFlow has no GPU kernels")
    for name in HOST_MEMORY:
        for kernel in registered_kernels.of(name):
            if kernel.device_type == "GPU":
                assert set(kernel.host_memory_arg) <= HOST_MEMORY[name], name


def test_tensorflows_own_names_have_no_gpu_kernel_of_ours(tf, tfb):
    del tfb
    if tf.test.is_built_with_cuda():
        pytest.skip("not run: TensorFlow has GPU kernels of its own")
    for name in HOST_MEMORY:
        assert {k.device_type for k in registered_kernels.of(name)} <= {"CPU"}, name


# ---- what the doctor reports


@pytest.mark.parametrize(
    ("capability", "architectures", "said"),
    [
        ((9, 0), ["sm_80", "sm_90"], "sm_90: built for it"),
        ((8, 0), ["sm_80", "sm_90"], "sm_80: built for it"),
        ((8, 9), ["sm_80", "sm_90"], "sm_89: built for it"),  # the code of an 8.0
        ((10, 0), ["sm_80", "sm_90"], "sm_100: compiled from PTX"),
        ((12, 1), ["sm_90", "sm_120"], "sm_121: built for it"),
        ((7, 5), ["sm_80", "sm_90"], "sm_75: NOT built for it"),
        ((8, 0), ["sm_86"], "sm_80: NOT built for it"),
        ((7, 5), ["sm_70", "sm_80"], "sm_75: built for it"),
    ],
)
def test_doctor_tells_what_runs_on_a_gpu(tfb, capability, architectures, said):
    del tfb
    from tf_blockrnn._cli import doctor

    details = {"device_name": "A GPU", "compute_capability": capability}
    line = doctor._gpu(details, architectures)
    assert line.startswith("A GPU, ") and said in line
    assert doctor._gpu({}, architectures) == "unknown"


class _Driver:
    """A stand-in for libcuda.so.1."""

    @staticmethod
    def cuDriverGetVersion(version):  # noqa: N802
        version._obj.value = 12080
        return 0


def test_what_is_found_of_a_gpu(tf, tfb, monkeypatch):
    """build_info() has it, and the doctor a line for each GPU."""
    from tf_blockrnn._cli import doctor

    def found(gpus, cublas=("/lib/libcublas.so", ""), missing=""):
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: gpus)
        monkeypatch.setattr(tfb._loader, "find_cublas", lambda: cublas)
        cuda = {"version": "12.4", "architectures": ["sm_90"], "missing": missing}
        facts = {"tensorflow": [tf.__version__], "compiler": "", "cuda": cuda}
        monkeypatch.setattr(tfb._loader, "read_build_info", lambda: facts)
        monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: missing)
        gpu = tfb.build_info()["gpu"]
        return gpu, dict(doctor._cuda(cuda, gpu))

    details = {"device_name": "A GPU", "compute_capability": (9, 0)}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    monkeypatch.setattr(tfb._loader.ctypes, "CDLL", _with(_Driver, tfb._loader.ctypes.CDLL))
    gpu, lines = found(["one", "two"])
    assert gpu == {
        "devices": [details, details],
        "driver": "12.8",
        "cublas": "/lib/libcublas.so",
        "cublas_problem": "",
    }
    assert list(lines) == ["CUDA", "GPU 0", "GPU 1", "driver", "cuBLAS"]
    assert lines["cuBLAS"] == "/lib/libcublas.so" and lines["driver"] == "of CUDA 12.8"
    assert "no libcublas" in found(["one"], ("", "no libcublas"))[1]["cuBLAS"]
    gpu, lines = found([])
    assert gpu["cublas"] == gpu["cublas_problem"] == "" and list(lines) == ["CUDA"]
    gpu, lines = found(["one"], missing="the driver runs CUDA 11.8")
    assert gpu["cublas"] == "" and lines["CUDA"].endswith("NOT used: the driver runs CUDA 11.8")


def _with(driver, real):
    """ctypes.CDLL with another driver."""
    return lambda name, *rest: driver if name == "libcuda.so.1" else real(name, *rest)
