"""The call of a recurrent Keras layer with its loop over the steps replaced by one op.

`why_not_fused` decides whether the op supports a layer, and `call` does what Keras' `RNN.call`
does: initial states, dropouts, statefulness, the return value. Both take any Keras layer together
with the `LayerSpec` of its class: the layers of this package use them, and plain Keras layers while
`tf_blockrnn.enable_keras` is on. `run`, the dropouts and the op, also serves loops over cells.
"""

import contextlib
import contextvars
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_blockrnn import _keras_private, _loader
from tf_blockrnn._ops import frozen, keras_rules, sequence_util, tensors, xla
from tf_blockrnn.layers import _dropout, _fusing, _resets, _zoneout

_without_ops = contextvars.ContextVar("tf_blockrnn_without_ops", default=False)


@contextlib.contextmanager
def without_ops() -> Iterator[None]:
    """Within it the calls of layers and cells run on Keras' own operations, in this thread."""
    token = _without_ops.set(True)
    try:
        yield
    finally:
        _without_ops.reset(token)


def is_without_ops() -> bool:
    """Whether the caller is within `without_ops`."""
    return _without_ops.get()


@dataclasses.dataclass(frozen=True)
class LayerSpec:
    """What the op of a class of layers computes, and how it is run.

    keras_class: Keras' layer.
    cells: the cells whose equations the op computes, Keras' own first.
    gates: G, the number of gates.
    run_op: takes the cell, x [B, T, I] (or x · w_x if w_x is None), w_x, the initial states and the
      options of `tf_blockrnn.lstm`, `gru` and `simple_rnn`; returns the outputs [B, T, H] and the
      last states.
    own_cell: the one of the cells that takes arguments that Keras' lacks.
    activations: for each argument that is an activation, the functions that the op computes.
    drops_at_one: whether the cell drops everything at a dropout of 1; the others drop nothing.
    inner_loop: Keras' own method, to recognize a subclass that replaces it.
    """

    keras_class: type
    cells: tuple[type, ...]
    gates: int
    run_op: Callable[..., tuple[tf.Tensor, list[tf.Tensor]]]
    own_cell: type | None = None
    activations: Mapping[str, Sequence[Callable]] = dataclasses.field(
        default_factory=lambda: _fusing.GATED
    )
    drops_at_one: bool = False
    inner_loop: Callable | None = dataclasses.field(init=False)

    def __post_init__(self):
        loop = getattr(self.keras_class, "inner_loop", None)
        object.__setattr__(self, "inner_loop", loop)


def why_not_fused(layer: Any, spec: LayerSpec) -> _fusing.Reason | None:
    """The reason why the op does not support this layer, or None if it does."""
    return why_own_steps(layer, spec) or why_no_step(layer.cell, spec)


def why_own_steps(layer: Any, spec: LayerSpec) -> _fusing.Reason | None:
    """The reason why the steps of a layer may be others than those of a known cell, or None."""
    cell = layer.cell
    if type(cell) not in spec.cells or "call" in vars(cell):
        return _fusing.Reason(f"its cell is of the custom class {type(cell).__name__}")
    loop = getattr(type(layer), "inner_loop", None)
    if loop is not spec.inner_loop or "inner_loop" in vars(layer):
        return _fusing.Reason("its inner_loop is not Keras' own")
    if getattr(layer, "use_cudnn", False) is True:
        return _fusing.Reason("use_cudnn=True requires cuDNN", 'use_cudnn="auto"')
    return None


def why_no_step(cell: Any, spec: LayerSpec) -> _fusing.Reason | None:
    """The reason why no op computes a step of a Keras cell with these attributes, or None."""
    if keras.backend.backend() != "tensorflow":
        return _fusing.Reason(
            f"the Keras backend is {keras.backend.backend()}, the op is TensorFlow's",
            "KERAS_BACKEND=tensorflow in the environment, before keras is imported",
        )
    if cell.recurrent_dropout and _dropout.mask_count(cell) != spec.gates:
        return _fusing.Reason(
            f"Keras {keras.__version__} has one recurrent_dropout mask for all gates, the op one "
            "for each",
            "recurrent_dropout=0.0",
        )
    return why_no_op(cell, spec)


def why_no_op(cell: Any, spec: LayerSpec) -> _fusing.Reason | None:
    """The reason why no op computes a step of a cell, of Keras 3 or tf_keras, or None."""
    if cell.compute_dtype not in _fusing.DTYPES:
        return _fusing.Reason(
            f"compute dtype {cell.compute_dtype} is none of {', '.join(_fusing.DTYPES)}",
            'dtype="float32"',
        )
    reason = _fusing.activation_reason(cell, spec.activations)
    if reason:
        return reason
    if tf.config.get_visible_devices("GPU"):
        missing = _loader.missing_cuda()
        if missing:
            return _fusing.Reason(
                f"TensorFlow sees a GPU, and the ops have no kernels for it ({missing})",
                'tf.config.set_visible_devices([], "GPU") at the start of the program, to use the '
                "CPU; or a build with CUDA",
            )
    return None


def keras_raises(layer: Any, sequences: Any) -> bool:
    """Whether Keras' call refuses these inputs, and so is to be called for its error."""
    if layer.unroll and sequences.shape[1] is None:
        return True
    if not layer.stateful:
        return False
    if layer.states is None:
        return True
    batch = sequences.shape[0]
    return batch is not None and batch != layer.states[0].shape[0]


def check_dense(layer: Any, sequences: Any) -> None:
    """Refuses ragged and sparse inputs, and others than real numbers.

    Raises:
      ValueError: the sequences are no dense tensor, or of strings or complex numbers.
    """
    if isinstance(sequences, tf.RaggedTensor):
        raise ValueError(
            f'Layer "{layer.name}" takes a dense tensor, got a RaggedTensor. Pass x.to_tensor(), '
            "with mask=tf.sequence_mask(x.row_lengths()) to skip the padding."
        )
    if isinstance(sequences, tf.SparseTensor):
        raise ValueError(
            f'Layer "{layer.name}" takes a dense tensor, got a SparseTensor. Pass '
            "tf.sparse.to_dense(x)."
        )
    if isinstance(sequences, tf.Tensor) and not _fusing.is_real(sequences.dtype):
        raise ValueError(
            f'Layer "{layer.name}" takes real numbers, got inputs of {sequences.dtype.name}.'
        )


def check_not_training(layer: Any, training: Any) -> None:
    """Refuses to train a layer of a frozen model.

    Raises:
      ValueError: the layer is frozen, and training is True.
    """
    # Of a tensor the value is not known; the op's gradient refuses what comes then.
    if "_frozen" in vars(layer) and not tf.is_tensor(training) and training:
        raise ValueError(
            f'Layer "{layer.name}" is frozen for inference and takes training=False, got True. '
            "Train the model that was frozen, and freeze it again."
        )


def weights_fingerprint(layer: Any, spec: LayerSpec) -> str:
    """The attr `frozen` of the op for the weights that a built layer has now."""
    cell = layer.cell
    w_x = _fusing.weight_in_dtype(cell.kernel, cell.compute_dtype)
    sizes = layer.state_size if isinstance(layer.state_size, (list, tuple)) else [layer.state_size]
    # The op takes the weights in its own layout: those of a call are used.
    with tf.init_scope():
        x = tf.zeros([1, 1, cell.kernel.shape[0]], cell.compute_dtype)
        states = [tf.zeros([1, size], cell.compute_dtype) for size in sizes]
        return frozen.fingerprints_of(lambda: spec.run_op(cell, x, w_x, states, {}))


def check_features(layer: Any, cell: Any, sequences: tf.Tensor) -> None:
    """Refuses inputs of another width than the layer, with this cell for them, was built for.

    Raises:
      ValueError: the width is known and is another one.
    """
    given, wanted = tensors.known_dim(sequences, 2), cell.kernel.shape[0]
    if given is not None and given != wanted:
        raise ValueError(
            f'Layer "{layer.name}" was built for {wanted} input features, got {given}: inputs of '
            f"shape {tuple(sequences.shape)}."
        )


def fused_or_keras(
    layer: Any,
    spec: LayerSpec,
    reason: str | None,
    keras_call: Callable,
    sequences: Any,
    resets: Any = None,
    **options: Any,
) -> Any:
    """The `call` of a Keras layer: by the op where it supports the layer.

    Args:
      reason: why the op does not support the layer, or None.
      keras_call: the `call` on Keras' own operations.
      resets: as of our layers; Keras' own have none.
      options: initial_state, mask and training.

    Raises:
      TypeError: the resets are not bool.
      ValueError: the sequences are ragged, or the resets are of a wrong shape, or Keras' operations
        are used for a layer with resets whose cell or loop is not known.
    """
    check_dense(layer, sequences)
    if resets is not None:
        resets = _resets.checked(layer, sequences, resets)
        if options["mask"] is None:
            # Keras hands it on only where the sequences are the one tensor of a call.
            options["mask"] = _keras_private.mask_of(sequences)
    run_keras = is_without_ops()
    if not run_keras:
        reason = reason or xla.why_not_here()
        if reason:
            _fusing.warn_once(layer, reason, stacklevel=3)
        run_keras = bool(reason) or keras_raises(layer, sequences)
    if not run_keras:
        return call(layer, spec, sequences, **options, resets=resets)
    if resets is None:
        return keras_call(sequences, **options)
    options["mask"] = as_bool(options["mask"], sequences)
    return _resets.call_keras(
        layer,
        sequences,
        resets,
        reason=why_own_steps(layer, spec),
        converted=is_without_ops(),
        **options,
    )


def call(
    layer: Any,
    spec: LayerSpec,
    sequences: Any,
    initial_state: Any = None,
    mask: Any = None,
    training: Any = False,
    resets: tf.Tensor | None = None,
) -> Any:
    """Computes a Keras layer's call with the op, which must support the layer.

    Args:
      layer: a Keras layer with a cell, built.
      spec: that of its class.
      sequences: [B, T, I].
      initial_state, mask, training: as for the layer.
      resets: bool, [B, T]; of our layers.

    Returns:
      What the layer returns: a tensor, or a tuple of it and the last states.

    Raises:
      ValueError: the sequences do not have the layer's number of features, or are complex.
    """
    sequences = tensors.as_tensor(sequences)  # of a keras.Variable too
    check_features(layer, layer.cell, sequences)
    states, zero_states = _initial_states(layer, spec, sequences, initial_state)
    mask = as_bool(mask, sequences)
    attrs = vars(layer).get("_frozen")
    with frozen.scope(attrs) if attrs else contextlib.nullcontext():
        outputs, states = run(
            layer,
            layer.cell,
            spec,
            Inputs(sequences, states, mask, training, resets),
            recompute=getattr(layer, "recompute", False),  # not of Keras' layers
        )
    if layer.return_sequences:
        output = keras_rules.all_outputs(layer, outputs, mask, zero_states)
    else:
        steps = tensors.dim(sequences, 1, 3)
        output = keras_rules.last_output(layer, states[0], mask, zero_states, steps=steps)
    if layer.stateful:
        for variable, state in zip(layer.states, states, strict=True):
            variable.assign(state)
    output = _fusing.in_dtype(output, layer.compute_dtype)
    if not layer.return_state:
        return output
    return output, *(_fusing.in_dtype(state, layer.compute_dtype) for state in states)


class Inputs(NamedTuple):
    """What a cell's op reads.

    sequences: [B, T, I].
    states: the initial ones, [B, H], or [1, H] for all rows.
    mask: bool, [B, T], or None.
    training: whether the dropouts act.
    resets: bool, [B, T], or None.
    """

    sequences: tf.Tensor
    states: Sequence[tf.Tensor]
    mask: tf.Tensor | None
    training: Any
    resets: tf.Tensor | None = None


def run(
    layer: Any,
    cell: Any,
    spec: LayerSpec,
    inputs: Inputs,
    *,
    masks_of_cell: bool = False,
    recompute: bool | int = False,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Computes a sequence with one op: the dropouts, then the op.

    Args:
      layer: a Keras layer, for `go_backwards`.
      cell: the cell, which the op must support.
      spec: that of the cell.
      inputs: what the op reads.
      masks_of_cell: whether the cell holds its dropout masks already.
      recompute: as of the layers.

    Returns:
      The outputs in the order of the inputs, [B, T, H], and the last states.
    """
    x, states, mask, training, resets = inputs
    dropped = _dropout.apply(
        cell, x, states[0], training, spec.drops_at_one, masks_of_cell=masks_of_cell
    )
    steps = [tensors.dim(x, axis, 3) for axis in (0, 1)]
    options = op_options(
        dropped.state_factors,
        _zoneout.draws_or_rates(cell, training, steps),
        mask=mask,
        go_backwards=bool(layer.go_backwards),
    )
    if resets is not None:
        options["resets"] = resets
    if recompute:
        options["recompute"] = recompute
    states = [_for_each_row(state, x) for state in states]
    return spec.run_op(cell, dropped.x, dropped.w_x, states, options)


def op_options(
    state_factors: tf.Tensor | None, zoneout: Mapping[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """The options of `tf_blockrnn.lstm`, `gru` and `simple_rnn`, for a `run_op`.

    Args:
      state_factors: of the recurrent dropout, [G, B, H].
      zoneout: the draws or rates of `zoneout_h` and `zoneout_c` that are in use.
      options: others, by their names.
    """
    if state_factors is not None:
        options["recurrent_dropout_factors"] = state_factors
    return {**options, **(zoneout or {})}


def bias_or_zeros(cell: Any, gates: int) -> tf.Tensor:
    """The cell's bias, for a `run_op`; zeros [G·H] for G gates if it has none."""
    if cell.bias is None:
        return tf.zeros([gates * cell.units], cell.compute_dtype)
    return _fusing.weight_in_dtype(cell.bias, cell.compute_dtype)


# ---- initial states


def _initial_states(
    layer: Any, spec: LayerSpec, sequences: tf.Tensor, given: Any
) -> tuple[list[tf.Tensor], bool]:
    """The initial states [B, H], or [1, H]; and whether they are zeros of this call."""
    if given is None and layer.stateful:
        given = layer.states
    if given is None:
        batch, cell = tensors.dim(sequences, 0, 3), layer.cell
        own = type(layer).get_initial_state is not keras.layers.RNN.get_initial_state
        if not own and type(cell).get_initial_state is spec.cells[0].get_initial_state:
            dtype = tf.as_dtype(cell.compute_dtype)
            made = {n: sequence_util.zeros_to_read(batch, n, dtype) for n in layer.state_size}
            return [made[size] for size in layer.state_size], True
        given = layer.get_initial_state(batch_size=batch)
    states = list(given) if keras.tree.is_nested(given) else [given]
    dtype = layer.cell.compute_dtype
    return [_fusing.in_dtype(tensors.as_tensor(state), dtype) for state in states], False


# ---- masks


def as_bool(mask: Any, sequences: tf.Tensor) -> tf.Tensor | None:
    """The mask in the form of the ops, bool [B, T], from any form that Keras' layers accept."""
    if keras.tree.is_nested(mask):
        mask = mask[0]
    if mask is None:
        return None
    mask = tf.cast(mask, tf.bool)
    if mask.shape.rank == 3:
        mask = tf.squeeze(mask, -1)
    return _for_each_row(mask, sequences)


def _for_each_row(rows: tf.Tensor, sequences: tf.Tensor) -> tf.Tensor:
    """A state or mask [B, ...]; a single row, which Keras allows, is broadcast to all rows."""
    one_for_all = rows.shape.rank == 2 and tensors.known_dim(rows, 0) == 1
    if not one_for_all or tensors.known_dim(sequences, 0) == 1:
        return rows
    return tf.broadcast_to(rows, [tensors.dim(sequences, 0, 3), tensors.dim(rows, 1, 2)])
