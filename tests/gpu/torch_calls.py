"""What PyTorch runs for a call: cuDNN, or kernels of its own under the same name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def cudnn_ran(function: Callable[[], T]) -> tuple[T, bool]:
    """What `function` returns, and whether cuDNN computed a recurrent layer in it.

    PyTorch decides by type and versions: bfloat16 goes to cuDNN from its 9.13 on, of which
    `torch.backends.cudnn.is_acceptable` knows nothing. So the operations that run are looked at.
    """
    # Not above: who only asks whether there is a GPU needs no PyTorch.
    from torch.utils._python_dispatch import TorchDispatchMode

    names = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            names.add(operation.name())
            return operation(*args, **(kwargs or {}))

    with Watch():
        result = function()
    # "aten::_cudnn_rnn" and its backward; _cudnn_rnn_flatten_weight only lays weights out.
    return result, any(
        name.split(".")[0].endswith(("::_cudnn_rnn", "::_cudnn_rnn_backward")) for name in names
    )
