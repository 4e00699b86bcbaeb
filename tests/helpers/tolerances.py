"""Every tolerance of the tests, and why it is what it is.

All are bounds on |got - want| / |want| in the L2 norm over a whole array, and,
`element_factor` times as large, on the error of each element (`element_scale`).
"""

from __future__ import annotations

import math

import numpy as np

# Distance from 1 to the next number of the type.
EPS = {
    "half": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float": 2.0**-23,
    "double": 2.0**-52,
}
_ALIASES = {"float16": "half", "float32": "float", "float64": "double"}


def type_name(dtype) -> str:
    """ "half", "bfloat16", "float" or "double" for a name, NumPy dtype or TensorFlow dtype."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or np.dtype(dtype).name
    return _ALIASES.get(name, name)


def element_factor(size: int) -> float:
    """How much larger than the bound on the norm an element's relative error may be.

    A norm bounds the root mean square of the errors, and the largest of n errors is above that. An
    element of a weight gradient is a sum of products, whose distribution falls off exponentially
    where there are few of them, and so the largest of n grows with ln n. Of the suite's 80,000
    comparisons, those of the CUDA engine included, the largest error seen is 0.24 ln n, and 1.8
    in arrays of less than 20,000 elements. It is 2.6 for 5,000 elements, 3.8 for 300,000.
    """
    return max(2.0, 0.3 * math.log(max(size, 1)))


def stored_slope_factor(mode: str, dtype) -> float:
    """How much larger still an element's error may be in the backward of a stack.

    The slope of tanh in a simple RNN is 1 - h², of the h that forward stored: that is all that
    backward is given. Where tanh saturates, as it does behind dropout that scales x tenfold, the
    slope is smaller than what h lost when it was rounded to 16 bits, and the term of a sum that has
    it may be wrong by more than itself. The norm over all elements stays within its bound.
    """
    return 4.0 if mode == "rnn_tanh" and type_name(dtype) in ("half", "bfloat16") else 1.0


def element_scale(want: np.ndarray) -> np.ndarray:
    """What the error of each element is relative to: the larger of |want| and its usual size.

    Where a sum cancels, the result has no correct digit in any order of adding: its error is that
    of its terms, which are about as large as those of the other elements. Hence the root mean
    square of the array is the least scale, taken over what is not zero, since zeros past a length
    or of a masked step are no sums. It is 1 where everything is zero, as for the norm.
    """
    size = np.abs(want)
    given = size[size > 0]
    usual = np.sqrt(np.mean(given * given)) if given.size else 1.0
    return np.maximum(size, usual)


def _accumulated(eps: float, reduction_length: int, backward: bool) -> float:
    # The formula of oneDNN's benchdnn for recurrent layers. Errors of a sum of n terms grow like
    # log2 n when it is added in a tree (as blocked and vectorised GEMMs do); 4 covers the
    # activations, which err by a few units in the last place; a backward pass reads twice as many
    # GEMMs. A sum of one term still rounds, so the logarithm counts as 1 at least.
    return (
        4.0
        * (2.0 if backward else 1.0)
        * max(1, math.ceil(math.log2(max(reduction_length, 1))))
        * eps
    )


def bound(dtype, reduction_length: int, backward: bool = False) -> float:
    """For one call of an op whose inputs the reference gets bit for bit.

    reduction_length: the longest sum, I + H for a cell, times the steps that feed into each other.
    """
    name = type_name(dtype)
    if name in ("float", "double"):
        return _accumulated(EPS[name], reduction_length, backward)
    # half and bfloat16 are computed in float32 and rounded once, when they are stored: at most
    # half of eps per element. Twice that leaves room for half's subnormal numbers (below 6e-5),
    # whose rounding is absolute. The float32 part is below both.
    # With AVX512-BF16, a GEMM may round its operands to bfloat16 as well (docs/adr/0005-gemm.md).
    # Those roundings are independent and at most eps / 2 of a term, so the norm stays far below
    # eps: 0.29 to 0.34 eps is seen, and 0.21 where only the output is rounded. An element whose
    # terms cancel may err by more: up to 2.9 eps is seen. Gradients of weights that sum at most
    # 16 rows have no such rounding (`rounded_once`).
    return EPS[name] + _accumulated(EPS["float"], reduction_length, backward)


def rounded_once(dtype, reduction_length: int, backward: bool = False) -> float:
    """For an element, relative to `element_scale`, where only the output is rounded to 16 bits."""
    return EPS[type_name(dtype)] / 2 + _accumulated(EPS["float"], reduction_length, backward)


def parity_bound(dtype, reduction_length: int, backward: bool = False) -> float:
    """Between ours and TensorFlow's kernel of the same op.

    In float32 each of the two may err by `bound`. TensorFlow's half kernels add and activate
    in half itself, so there it is their error that counts.
    """
    name = type_name(dtype)
    if name in ("float", "double"):
        return 2.0 * bound(name, reduction_length, backward)
    return bound(name, reduction_length, backward) + _accumulated(
        EPS[name], reduction_length, backward
    )


def composed_bound(dtype, reduction_length: int) -> float:
    """For a gradient taken by automatic differentiation, weight gradients included."""
    name = type_name(dtype)
    if name in ("float", "double"):
        return _accumulated(EPS[name], reduction_length, backward=True)
    # It is several ops in a row, and each rounds to `dtype` what the next one reads: the gates,
    # their gradients, the GEMMs. About eight roundings of eps / 2 lie on a path, and 1 - u and
    # 1 - c∘c may double one; sums are in float32, so their length does not matter. Seen: 2.2 eps.
    return 8.0 * EPS[name]


def second_bound(dtype, reduction_length: int) -> float:
    """For the gradient of a gradient, both taken by automatic differentiation.

    The gradient that is differentiated has the roundings of `composed_bound`, and as many follow.
    """
    return 2.0 * composed_bound(dtype, reduction_length)


def stack_bound(dtype, reduction_length: int, layers: int, backward: bool = False) -> float:
    """For a stack of layers, computed by one op.

    In float32 and float64 a layer is but more terms that feed into one another. In 16 bits the
    reference rounds what a layer hands to the next, as the ops do, so forward is as for one layer.
    The backward reads rounded gates (eps / 2 each, and 1 - g∘g doubles it), and each layer rounds
    the gradient that it hands down, as `bound` has it. Seen: 0.7 to 1.0 eps, one to three layers.
    """
    name = type_name(dtype)
    if name in ("float", "double") or not backward:
        return bound(name, reduction_length, backward)
    return (1 + layers) * EPS[name] + _accumulated(EPS["float"], reduction_length, backward)


def gpu_gradient_bound(dtype, reduction_length: int) -> float:
    """For a backward of the CUDA engine over a whole sequence.

    In 16 bits it rounds the gates' gradients before the GEMMs that make the gradients of x, of
    the weights and of the state, as tensor cores need it: another eps / 2 for each term. Seen: 1.1
    eps, but 2.3 where the gradient of a bias, a sum, cancels.
    """
    name = type_name(dtype)
    if name in ("float", "double"):
        return bound(name, reduction_length, backward=True)
    return bound(name, reduction_length, backward=True) + EPS[name] / 2


# Central differences in float64 with step 1e-6·max(1, |x|): truncation ~ step² = 1e-12, rounding
# ~ eps / step = 2e-10, times the number of elements that the scalar sums over. 1e-6 is far above
# both and far below any wrong term of an equation.
FINITE_DIFFERENCES = 1e-6
FINITE_DIFFERENCE_STEP = 1e-6

# An exported model in ONNX Runtime and the model itself, float32, a few layers of a few steps: the
# activations of ONNX Runtime are polynomials that err by some 1e-7.
ONNX = 1e-5

# The golden numbers were published with six to eight digits, from float32 runs.
GOLDEN = 1e-6


def share_bound(probability: float, draws: int, shares: int = 1) -> float:
    """How far a share of independent draws may be from its probability.

    Five standard deviations, which chance passes once in 1.7 million, for one share; for the
    largest of several it grows with the number of them (Gaussian tails, union bound). Half a draw
    on top, because a share is a whole number of draws.
    """
    sigmas = math.sqrt(25.0 + 2.0 * math.log(shares))
    return sigmas * math.sqrt(probability * (1.0 - probability) / draws) + 0.5 / draws


# What examples/vowels.py prints. Its short form had 97.8% to 98.6% with the seeds 1 to 6,
# the long one 98.1% to 99.2%; a wrong mask or direction costs more than the rest.
VOWELS_ACCURACY = 0.95

# What weights in bfloat16 and int8 may cost on data that were not seen in training: half a point of
# accuracy in examples/vowels.py, and so many bits per character in examples/demo.py.
LOST_ACCURACY = 0.005
LOST_BITS = 0.01

# How far the outputs in a low precision are from those of float32, for weights of a usual size:
# absolute, or relative to the largest output where that is above 1. An operand of int8 is rounded
# by up to 1 / 254 of the largest of its row, and some twenty steps follow one another.
LOW_PRECISION_OUTPUTS = {"bfloat16": 5e-3, "int8": 2e-2}
