"""PyTorch's tensors from and to NumPy arrays, with bfloat16, which PyTorch's own methods refuse."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_blockrnn.weights._bfloat16 import bfloat16


def to_array(tensor: Any) -> np.ndarray:
    """A tensor or array as an array; tensor.numpy() does not support bfloat16."""
    if isinstance(tensor, np.ndarray):
        return tensor
    import torch

    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16())
    return tensor.numpy()


def to_tensor(array: np.ndarray) -> Any:
    """An array as a PyTorch tensor; torch.from_numpy does not support bfloat16."""
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
