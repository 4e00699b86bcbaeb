"""The numeric checks that the whole-sequence ops share."""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from helpers import block_cells, cell_numbers, compare, run_modes, sequence_ops, tolerances

DTYPES = block_cells.DTYPES
_graphs = {}


def sequence_bound(op, dims, dtype) -> float:
    """The bound of one call. In 16 bits, too: the state stays in float32 between the steps."""
    return tolerances.bound(dtype, sequence_ops.longest_sum(op, dims), op.backward)


def seeds_for(dims) -> range:
    """As for the cells; the smallest outputs, gradients of peepholes, have H elements."""
    return cell_numbers.seeds_for((1, 1, dims[3]) if 0 not in dims else (0, 0, 0))


def check_numbers(raw_ops, op, dtype, mode, cases) -> None:
    """Every attribute case and every size against the float64 oracle; all, before it fails."""
    wrong = []
    for attrs in op.attr_cases:
        run = sequence_ops.caller(raw_ops, op, attrs, mode)
        for dims, valid in cases:
            got, want = [], []
            for seed in seeds_for(dims):
                inputs = sequence_ops.random_inputs(
                    op, dims, block_cells.numpy_type(dtype), seed, valid
                )
                got.append(run(inputs))
                want.append(sequence_ops.oracle(op, inputs, attrs))
            bound = sequence_bound(op, dims, dtype)
            for name, shape in op.output_shapes(dims).items():
                values = [getattr(outputs, name) for outputs in got]
                what = f"{op.name}.{name} {dtype} (T, B, I, H)={dims} {valid} {dict(attrs)}"
                assert all(v.dtype == tf.as_dtype(dtype) for v in values), what
                assert all(v.shape == shape for v in values), what
                expected = np.stack([outputs[name] for outputs in want])
                try:
                    compare.assert_close(
                        np.stack([v.numpy() for v in values]), expected, bound, what
                    )
                except AssertionError as error:
                    wrong.append(str(error))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:20])


def check_rounded_once(raw_ops, op, dims, dtype) -> None:
    """Nothing but the output is rounded to `dtype`, even where the terms of a sum cancel."""
    bound = tolerances.rounded_once(dtype, sequence_ops.longest_sum(op, dims), op.backward)
    run = sequence_ops.caller(raw_ops, op, {}, "eager")
    for seed in range(8):
        inputs = sequence_ops.random_inputs(
            op, dims, block_cells.numpy_type(dtype), seed, valid=dims[0]
        )
        with tf.device("CPU"):
            got = run(inputs)
        want = sequence_ops.oracle(op, inputs, {})
        for name in op.outputs:
            error = compare.element_errors(getattr(got, name).numpy(), want[name]).max()
            assert error <= bound, f"{op.name}.{name} {dims}: {error:.3g} is above {bound:.3g}"


def check_empty(raw_ops, op, dtype, mode) -> None:
    """Every dim 0 alone and together: what is empty is empty, the rest is computed or zero.

    Memory is filled with NaN first, so that an output which is never written shows.
    """
    for attrs in op.attr_cases:
        run = sequence_ops.caller(raw_ops, op, attrs, mode)
        for dims in sequence_ops.EMPTY_DIMS:
            inputs = sequence_ops.random_inputs(op, dims, block_cells.numpy_type(dtype))
            want = sequence_ops.oracle(op, inputs, attrs)
            poison([np.shape(v) for v in want.values()], inputs["x"].dtype)
            got = run(inputs)
            for name in op.outputs:
                what = f"{op.name}.{name} {dtype} (T, B, I, H)={dims} {dict(attrs)}"
                value = getattr(got, name).numpy()
                compare.assert_close(value, want[name], sequence_bound(op, dims, dtype), what)
                if not np.any(want[name]):
                    np.testing.assert_array_equal(value, np.zeros_like(value), what)


def poison(shapes, dtype) -> None:
    """Frees buffers of these shapes that are full of NaN; the allocator gives them out again."""
    kind = tf.as_dtype(dtype)
    nan = tf.constant(np.nan, kind)
    held = [tf.fill(list(s), nan) for s in shapes for _ in range(3) if np.prod(s)]
    del held


def check_parity(raw_ops, op, dtype, dims) -> None:
    """Against TensorFlow's own kernel, within the valid steps; both may err, so twice the bound."""
    for attrs in op.attr_cases:
        for valid in sorted({dims[0], max(dims[0] - 1, 1)}):
            inputs = sequence_ops.random_inputs(
                op, dims, block_cells.numpy_type(dtype), seed=1, valid=valid
            )
            ours = sequence_ops.call(raw_ops, op, inputs, attrs)
            stock = sequence_ops.call(tf.raw_ops, op, inputs, attrs)
            bound = tolerances.parity_bound(dtype, sequence_ops.longest_sum(op, dims), op.backward)
            for name, expressions in op.outputs.items():
                what = f"{op.name}.{name} {dtype} {dims} {valid} {dict(attrs)}"
                mine, theirs = getattr(ours, name), getattr(stock, name)
                assert mine.dtype == theirs.dtype
                mine, theirs = mine.numpy(), theirs.numpy()
                if expressions[0] == "T":
                    # Past that TensorFlow leaves what was in memory, and we give zeros.
                    mine, theirs = mine[:valid], theirs[:valid]
                compare.assert_close(mine, theirs, bound, what)


def check_every_length(raw_ops, op, dtype, mode) -> None:
    """seq_len_max 0..T: right numbers, and zeros past it, whatever memory held before."""
    dims = (6, 3, 4, 9)
    for attrs in op.attr_cases:
        run = sequence_ops.caller(raw_ops, op, attrs, mode)
        for valid in range(dims[0] + 1):
            inputs = sequence_ops.random_inputs(
                op, dims, block_cells.numpy_type(dtype), valid=valid
            )
            want = sequence_ops.oracle(op, inputs, attrs)
            poison([np.shape(v) for v in want.values()], inputs["x"].dtype)
            got = run(inputs)
            for name, expressions in op.outputs.items():
                what = f"{op.name}.{name} {dtype} seq_len_max={valid} {dict(attrs)}"
                value = getattr(got, name).numpy()
                compare.assert_close(value, want[name], sequence_bound(op, dims, dtype), what)
                if expressions[0] == "T":
                    np.testing.assert_array_equal(value[valid:], np.zeros_like(value[valid:]), what)
                    assert valid == 0 or np.any(value[valid - 1]), what


def check_past_is_not_read(raw_ops, op, dtype) -> None:
    """NaN past seq_len_max, in every argument that has steps, changes no bit."""
    dims = (6, 3, 4, 9)
    for attrs in op.attr_cases:
        for valid in (0, 1, 4):
            inputs = sequence_ops.random_inputs(
                op, dims, block_cells.numpy_type(dtype), valid=valid
            )
            want = sequence_ops.call(raw_ops, op, inputs, attrs)
            spoiled = {k: np.copy(v) for k, v in inputs.items()}
            for name, expressions in op.inputs.items():
                if expressions[:1] == ("T",):
                    spoiled[name][valid:] = np.nan
            got = sequence_ops.call(raw_ops, op, spoiled, attrs)
            for name in op.outputs:
                same = compare.bits(getattr(got, name)) == compare.bits(getattr(want, name))
                assert same, f"{op.name}.{name} {dtype} seq_len_max={valid} {dict(attrs)}"


def check_special_values(raw_ops, op, dtype) -> None:
    """A NaN or infinity in any argument gives what the equations give, and stays in its row.

    What the equations do not read gives nothing.
    """
    dims = (3, 3, 5, 9)
    for attrs in op.attr_cases:
        for argument in op.inputs:
            for special in (np.nan, np.inf, -np.inf):
                inputs = sequence_ops.random_inputs(
                    op, dims, block_cells.numpy_type(dtype), seed=2, valid=3
                )
                if argument == "seq_len_max":
                    continue
                inputs[argument].flat[1] = special
                got = sequence_ops.call(raw_ops, op, inputs, attrs)
                with np.errstate(all="ignore"):
                    want = sequence_ops.oracle(op, inputs, attrs)
                bound = sequence_bound(op, dims, dtype)
                for name in op.outputs:
                    what = f"{op.name}.{name} {argument}={special} {dict(attrs)}"
                    compare.assert_close(getattr(got, name).numpy(), want[name], bound, what)


def cotangents_of(op, dims, dtype, seed=5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in op.output_shapes(dims).values()]


def selections(op):
    """Each cotangent alone, all together, all but the last."""
    count = len(op.outputs)
    alone = [tuple(k == j for j in range(count)) for k in range(count)]
    return [*alone, (True,) * count, (*(True,) * (count - 1), False)]


def choose(cotangents, selection) -> list:
    return [c if use else None for c, use in zip(cotangents, selection, strict=True)]


def gradients(raw_ops, op, attrs, inputs, cotangents, mode="eager"):
    """Gradient of every floating input; an output whose cotangent is None is not used."""
    tensors = sequence_ops.tensors_of(inputs)
    valid = tensors.pop("seq_len_max")
    used = [k for k, c in enumerate(cotangents) if c is not None]
    function = getattr(raw_ops, op.name)

    def compute(valid, arguments, output_gradients):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = function(seq_len_max=valid, **arguments, **attrs)
            targets = [outputs[k] for k in used]
        return tape.gradient(targets, arguments, output_gradients=output_gradients)

    arguments = valid, tensors, [tf.constant(cotangents[k]) for k in used]
    if mode != "eager":
        shapes = [(t.dtype, t.shape) for t in tensors.values()]
        compute = _traced(compute, arguments, mode, (function, repr((attrs, used, shapes))))
    return compute(*arguments)


def _traced(compute, arguments, mode, key):
    """The concrete function, which calls that differ only in numbers share."""
    key = (mode, *key)
    if key not in _graphs:
        if len(_graphs) == 32:
            _graphs.clear()  # they are large
        function = run_modes.in_mode(mode, compute, autograph=False)
        _graphs[key] = function.get_concrete_function(*arguments)
    return _graphs[key]


def assert_gradients(op, attrs, inputs, got, want, bound, note="") -> None:
    names = [name for name in op.inputs if name != "seq_len_max"]
    for name, expected in zip(names, want, strict=True):
        what = f"gradient of {name}, {op.name} {dict(attrs)} {note}"
        value = got[name]
        if value is None:
            assert name in ("wci", "wcf", "wco"), f"{what} is None"
            value = np.zeros_like(inputs[name])
        assert not isinstance(value, tf.IndexedSlices)
        compare.assert_close(np.asarray(value), expected, bound, what)


def check_finite_differences(raw_ops, op, attrs, valid) -> None:
    """float64 central differences of our own forward, all cotangents at once and one by one."""
    dims = (3, 2, 2, 3)
    inputs = sequence_ops.random_inputs(op, dims, np.float64, valid=valid)
    cotangents = cotangents_of(op, dims, np.float64)
    step = tolerances.FINITE_DIFFERENCE_STEP
    function = getattr(raw_ops, op.name)
    names = [name for name in op.inputs if name != "seq_len_max"]
    differences = {k: np.zeros((len(op.outputs), *inputs[k].shape)) for k in names}
    for name in names:
        for index in np.ndindex(*inputs[name].shape):
            totals = []
            for sign in (1, -1):
                moved = {**inputs, name: inputs[name].copy()}
                moved[name][index] += sign * step
                pairs = zip(cotangents, function(**moved, **attrs), strict=True)
                totals.append(np.array([(c * y.numpy()).sum() for c, y in pairs]))
            differences[name][(slice(None), *index)] = (totals[0] - totals[1]) / (2 * step)
    if valid:
        assert all(np.any(d) for k, d in differences.items() if not k.startswith("wc"))
    for selection in selections(op):
        got = gradients(raw_ops, op, attrs, inputs, choose(cotangents, selection))
        want = [differences[name][list(selection)].sum(axis=0) for name in names]
        assert_gradients(
            op, attrs, inputs, got, want, tolerances.FINITE_DIFFERENCES, f"{valid} {selection}"
        )


def check_gradients(raw_ops, op, attrs, dtype, mode, cases, chosen=None) -> None:
    """The registered gradient against the oracle; `chosen` picks cotangents, default all kinds."""
    for dims, valid in cases:
        kind = block_cells.numpy_type(dtype)
        inputs = sequence_ops.random_inputs(op, dims, kind, valid=valid)
        cotangents = cotangents_of(op, dims, kind)
        backward = max(dims[1], 4 * dims[3], dims[2] + dims[3]) * max(dims[0], 1)
        bound = tolerances.composed_bound(dtype, backward)
        selected = chosen or selections(op)
        for selection in run_modes.fewer(mode, selected, slice(-2, -1), run_modes.TRACED):
            cut = choose(cotangents, selection)
            got = gradients(raw_ops, op, attrs, inputs, cut, mode)
            with np.errstate(all="raise"):
                want = sequence_ops.VJPS[op.name](**inputs, cotangents=cut, **attrs)
            assert_gradients(op, attrs, inputs, got, want, bound, f"{dtype} {dims} {valid}")
            for value in got.values():
                assert value is None or value.dtype == tf.as_dtype(dtype)


def check_cotangents_past_the_length(raw_ops, op, attrs, mode) -> None:
    """NaN in them reaches no gradient: every cotangent together, and each alone."""
    dims, valid = (5, 3, 2, 4), 3
    inputs = sequence_ops.random_inputs(op, dims, np.float32, valid=valid)
    cotangents = cotangents_of(op, dims, np.float32)
    spoiled = [np.copy(c) for c in cotangents]
    for value in spoiled:
        value[valid:] = np.nan
    bound = tolerances.composed_bound("float", dims[0] * 4 * dims[3])
    for selection in run_modes.fewer(mode, selections(op), slice(-2, -1)):
        cut = choose(cotangents, selection)
        got = gradients(raw_ops, op, attrs, inputs, choose(spoiled, selection), mode)
        want = sequence_ops.VJPS[op.name](**inputs, cotangents=cut, **attrs)
        assert_gradients(op, attrs, inputs, got, want, bound, f"NaN past {valid} {selection}")


def check_unknown_shapes(raw_ops, op, attrs, mode="graph") -> None:
    """One graph for all shapes: what is not known when it is built must not be needed then."""
    unknown = {
        k: tf.TensorSpec(None, tf.int64 if k == "seq_len_max" else tf.float64) for k in op.inputs
    }

    def compute(arguments):
        arguments = dict(arguments)
        valid = arguments.pop("seq_len_max")
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = getattr(raw_ops, op.name)(seq_len_max=valid, **arguments, **attrs)
            total = tf.add_n([tf.reduce_sum(o) for o in outputs])
        return tape.gradient(total, arguments, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    compute = run_modes.in_mode(mode, compute, input_signature=[unknown])
    for dims, valid in (((3, 2, 5, 4), 2), ((1, 1, 4, 3), 1), ((4, 0, 2, 2), 4), ((0, 3, 2, 2), 0)):
        inputs = sequence_ops.random_inputs(op, dims, np.float64, valid=valid)
        got = compute(sequence_ops.tensors_of(inputs))
        ones = [np.ones(shape) for shape in op.output_shapes(dims).values()]
        want = sequence_ops.VJPS[op.name](**inputs, cotangents=ones, **attrs)
        bound = tolerances.composed_bound("double", 4 * max(dims) * 5)
        assert_gradients(op, attrs, inputs, got, want, bound, f"{dims}")


def check_one_pass(raw_ops, op, attrs, used) -> None:
    """Counted in the graph as it is built; nothing is left to an optimiser."""
    dims = (3, 2, 4, 5)
    inputs = sequence_ops.tensors_of(sequence_ops.random_inputs(op, dims, np.float32))
    valid = inputs.pop("seq_len_max")

    @tf.function
    def compute(arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = getattr(raw_ops, op.name)(seq_len_max=valid, **arguments, **attrs)
            targets = [o for o, use in zip(outputs, used, strict=True) if use]
        return tape.gradient(targets, arguments)

    counts = collections.Counter(
        node.op for node in compute.get_concrete_function(inputs).graph.as_graph_def().node
    )
    assert counts[f"BlockRNN>{op.name}"] == 1, dict(counts)
    assert sum(n for k, n in counts.items() if k.startswith("BlockRNN>") and "Grad" in k) == 1
    for kind in ("MatMul", "BatchMatMulV2", "Einsum", "Mul", "AddV2", "AddN", "While"):
        assert counts[kind] == 0, dict(counts)
