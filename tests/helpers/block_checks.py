"""The numeric checks that cells and block ops share.

A case is (dims, seq_len_max), None for T; a cell has no length.
"""

from __future__ import annotations

import collections

import numpy as np
import tensorflow as tf

from helpers import block_cells, compare, run_modes, tolerances

# A norm over a few elements is no measure: where one of them cancels, the whole array does. So
# small sizes are tried with many inputs and compared all together, over about this many elements.
_ELEMENTS = 64
_graphs = {}


def bound_of(op, dims, dtype, attrs=None) -> float:
    """The bound of one call. In 16 bits, too: the state stays in float32 between the steps."""
    return tolerances.bound(dtype, op.longest_sum(dims, attrs or {}), op.backward)


def _seeds_for(op, dims) -> range:
    if 0 in dims:
        return range(1)
    # The smallest outputs of a sequence, gradients of peepholes, have H elements.
    elements = dims[3] if len(dims) == 4 else dims[0] * max(dims[1:])
    return range(max(1, -(-_ELEMENTS // elements)))


def _inputs(op, dims, dtype, seed=0, valid=None):
    return block_cells.random_inputs(op, dims, block_cells.numpy_type(dtype), seed, valid)


def check_numbers(raw_ops, op, dtype, mode, cases) -> None:
    """Every attribute case and every size against the float64 oracle; all, before it fails."""
    wrong = []
    for attrs in op.attr_cases:
        run = block_cells.caller(raw_ops, op, attrs, mode)
        for dims, valid in cases:
            got, want = [], []
            for seed in _seeds_for(op, dims):
                inputs = _inputs(op, dims, dtype, seed, valid)
                got.append(run(inputs))
                want.append(block_cells.oracle(op, inputs, attrs))
            for name, shape in op.output_shapes(dims).items():
                values = [getattr(outputs, name) for outputs in got]
                what = f"{op.name}.{name} {dtype} {dims} {valid} {dict(attrs)}"
                assert all(v.dtype == tf.as_dtype(dtype) for v in values), what
                assert all(v.shape == shape for v in values), what
                expected = np.stack([outputs[name] for outputs in want])
                found, bound = (
                    np.stack([v.numpy() for v in values]),
                    bound_of(op, dims, dtype, attrs),
                )
                try:
                    compare.assert_close(found, expected, bound, what)
                except AssertionError as error:
                    wrong.append(str(error))
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:20])


def _assert_outputs(op, dims, dtype, attrs, got, want, note="") -> None:
    for name in op.outputs:
        what = f"{op.name}.{name} {dtype} {dims} {dict(attrs)} {note}"
        bound = bound_of(op, dims, dtype, attrs)
        compare.assert_close(getattr(got, name).numpy(), want[name], bound, what)


def check_rounded_once(raw_ops, op, dims, dtype) -> None:
    """Nothing but the output is rounded to `dtype`, even where the terms of a sum cancel."""
    bound = tolerances.rounded_once(dtype, op.longest_sum(dims, {}), op.backward)
    run = block_cells.caller(raw_ops, op, {}, "eager")
    for seed in range(8):
        inputs = _inputs(op, dims, dtype, seed)
        with tf.device("CPU"):
            got = run(inputs)
        want = block_cells.oracle(op, inputs, {})
        for name in op.outputs:
            error = compare.element_errors(getattr(got, name).numpy(), want[name]).max()
            assert error <= bound, f"{op.name}.{name} {dims}: {error:.3g} is above {bound:.3g}"


def poison(shapes, dtype) -> None:
    """Frees buffers of these shapes that are full of NaN; the allocator gives them out again."""
    nan = tf.constant(np.nan, tf.as_dtype(dtype))
    held = [tf.fill(list(s), nan) for s in shapes for _ in range(3) if np.prod(s)]
    del held


def check_empty(raw_ops, op, dtype, mode, all_dims) -> None:
    """Every dim 0 alone and together: what is empty is empty, the rest is computed or zero.

    Memory is filled with NaN first, so that an output which is never written shows.
    """
    for attrs in op.attr_cases:
        run = block_cells.caller(raw_ops, op, attrs, mode)
        for dims in all_dims:
            inputs = _inputs(op, dims, dtype)
            want = block_cells.oracle(op, inputs, attrs)
            poison([np.shape(v) for v in want.values()], inputs["x"].dtype)
            got = run(inputs)
            _assert_outputs(op, dims, dtype, attrs, got, want)
            for name in op.outputs:
                assert np.any(want[name]) or not np.any(getattr(got, name).numpy()), (name, dims)


def check_parity(raw_ops, op, dtype, dims) -> None:
    """Against TensorFlow's own kernel, within the valid steps; both may err, so twice the bound."""
    for attrs in op.attr_cases:
        for valid in sorted({dims[0], max(dims[0] - 1, 1)}) if len(dims) == 4 else (None,):
            inputs = _inputs(op, dims, dtype, 1, valid)
            ours, stock = (
                block_cells.call(raw, op, inputs, attrs) for raw in (raw_ops, tf.raw_ops)
            )
            bound = tolerances.parity_bound(dtype, op.longest_sum(dims, attrs), op.backward)
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
    """seq_len_max 0..T: right numbers, and zeros past it, whatever memory and arguments held."""
    dims = (6, 3, 4, 9)
    for attrs in op.attr_cases:
        run = block_cells.caller(raw_ops, op, attrs, mode)
        for valid in range(dims[0] + 1):
            inputs = _inputs(op, dims, dtype, valid=valid)
            want = block_cells.oracle(op, inputs, attrs)
            for name, expressions in op.inputs.items():
                if expressions[:1] == ("T",):
                    inputs[name] = inputs[name].copy()
                    inputs[name][valid:] = np.nan
            poison([np.shape(v) for v in want.values()], inputs["x"].dtype)
            got = run(inputs)
            _assert_outputs(op, dims, dtype, attrs, got, want, f"seq_len_max={valid}")
            for name, expressions in op.outputs.items():
                if expressions[0] == "T":
                    value = getattr(got, name).numpy()
                    assert not np.any(value[valid:] != 0), (name, valid)
                    assert valid == 0 or np.any(value[valid - 1]), (name, valid)


def check_special_values(raw_ops, op, dtype) -> None:
    """A NaN or infinity in any argument gives what the equations give, and stays in its row.

    What the equations do not read gives nothing. NaN and infinity are compared by place.
    """
    dims = (3, 3, 5, 9)[-len(op.sizes) :]
    for attrs in op.attr_cases:
        for argument, special in block_cells.special_arguments(op):
            inputs = _inputs(op, dims, dtype, 2)
            inputs[argument].flat[1] = special
            got = block_cells.call(raw_ops, op, inputs, attrs)
            with np.errstate(all="ignore"):
                want = block_cells.oracle(op, inputs, attrs)
            _assert_outputs(op, dims, dtype, attrs, got, want, f"{argument}={special}")


def check_saturation(raw_ops, op, biases) -> None:
    """Biases of both signs and of sizes from where exp(-x) vanishes to near the largest float."""
    dims = (3, 4, 9)
    for dtype in ("bfloat16", "float", "double"):
        for scale in (1e2, 1e4, 1e30):
            inputs = _inputs(op, dims, dtype)
            for name in biases:
                signs = np.sign(inputs[name].astype(np.float64))
                inputs[name] = (signs * scale).astype(inputs[name].dtype)
            got = block_cells.call(raw_ops, op, inputs, {})
            for name in op.outputs:
                value = getattr(got, name).numpy()
                assert np.isfinite(value.astype(np.float64)).all(), name
            _assert_outputs(op, dims, dtype, {}, got, block_cells.oracle(op, inputs, {}))


def check_clip(raw_ops, op, dtype, use_peephole) -> None:
    """0, negative and NaN clips mean no clip; a positive one clips infinity and leaves NaN."""
    dims = (3, 4, 3, 17)[-len(op.sizes) :]
    inputs = _inputs(op, dims, dtype)
    # Large states of both signs, so that every positive clip below has work to do.
    inputs["cs_prev"] = (inputs["cs_prev"].astype(np.float64) * 50).astype(inputs["x"].dtype)
    inputs["cs_prev"][0, :3] = [np.inf, -np.inf, np.nan]
    # With peepholes an infinite state opens these forget gates; closed, ∞ · 0 would be NaN.
    inputs["wcf"][:2] = [1, -1]
    for clip in (0.0, -0.0, -2.0, np.nan, -np.inf, np.inf, 0.5, 3.0, 1e-3):
        attrs = {"cell_clip": float(clip), "use_peephole": use_peephole}
        got = block_cells.call(raw_ops, op, inputs, attrs)
        with np.errstate(all="ignore"):
            want = block_cells.oracle(op, inputs, attrs)
        _assert_outputs(op, dims, dtype, attrs, got, want)
        if 0 < clip < np.inf:
            cs = got.cs.numpy().astype(np.float64).reshape(-1, *dims[-3::2])
            edge = float(np.asarray(clip, np.float32).astype(inputs["x"].dtype))
            assert (cs[0, 0, 0], cs[0, 0, 1]) == (edge, -edge)
            assert np.isnan(cs[:, 0, 2]).all()
            assert np.nanmax(np.abs(cs)) <= edge


# ---------------------------------------------------------------------- gradients


def cotangents_of(op, dims, dtype, seed=5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    kind = block_cells.numpy_type(dtype)
    return [rng.normal(size=shape).astype(kind) for shape in op.output_shapes(dims).values()]


def selections(op):
    """Each cotangent alone, all together, all but the last."""
    count = len(op.outputs)
    alone = [tuple(k == j for j in range(count)) for k in range(count)]
    return [*alone, (True,) * count, (*(True,) * (count - 1), False)]


def choose(cotangents, selection) -> list:
    return [c if use else None for c, use in zip(cotangents, selection, strict=True)]


def _differentiated(op) -> list[str]:
    return [name for name in op.inputs if name != "seq_len_max"]


def gradients(raw_ops, op, attrs, inputs, cotangents, mode="eager"):
    """Gradient of every floating input; an output whose cotangent is None is not used."""
    tensors = block_cells.tensors_of(inputs)
    fixed = {k: tensors.pop(k) for k in ("seq_len_max",) if k in tensors}
    used = [k for k, c in enumerate(cotangents) if c is not None]
    function = getattr(raw_ops, op.name)

    def compute(fixed, arguments, output_gradients):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = function(**fixed, **arguments, **attrs)
            targets = [outputs[k] for k in used]
        return tape.gradient(targets, arguments, output_gradients=output_gradients)

    arguments = fixed, tensors, [tf.constant(cotangents[k]) for k in used]
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
    for name, expected in zip(_differentiated(op), want, strict=True):
        what = f"gradient of {name}, {op.name} {dict(attrs)} {note}"
        value = got[name]
        if value is None:
            assert name in ("wci", "wcf", "wco"), f"{what} is None"
            value = np.zeros_like(inputs[name])
        assert not isinstance(value, tf.IndexedSlices)
        compare.assert_close(np.asarray(value), expected, bound, what)


def check_gradients(raw_ops, op, attrs, dtype, mode, cases, chosen=None) -> None:
    """The registered gradient against the oracle; `chosen` picks cotangents, default all kinds."""
    for dims, valid in cases:
        inputs = _inputs(op, dims, dtype, valid=valid)
        cotangents = cotangents_of(op, dims, dtype)
        steps, batch, width, units = (1, *dims)[-4:]
        longest = max(batch, 4 * units, width + units) * max(steps, 1)
        bound = tolerances.composed_bound(dtype, longest)
        selected = chosen or selections(op)
        for selection in run_modes.fewer(mode, selected, slice(-2, -1), run_modes.TRACED):
            cut = choose(cotangents, selection)
            if 0 in dims:
                poison(op.shapes(dims).values(), inputs["x"].dtype)
            got = gradients(raw_ops, op, attrs, inputs, cut, mode)
            with np.errstate(all="raise"):
                want = op.vjp(**inputs, cotangents=cut, **attrs)
            assert_gradients(op, attrs, inputs, got, want, bound, f"{dtype} {dims} {valid}")
            for value in got.values():
                assert value is None or value.dtype == tf.as_dtype(dtype)


def check_cotangents_past_the_length(raw_ops, op, attrs, mode) -> None:
    """NaN in them reaches no gradient: every cotangent together, and each alone."""
    dims, valid = (5, 3, 2, 4), 3
    inputs = _inputs(op, dims, "float", valid=valid)
    cotangents = cotangents_of(op, dims, "float")
    spoiled = [np.copy(c) for c in cotangents]
    for value in spoiled:
        value[valid:] = np.nan
    bound = tolerances.composed_bound("float", dims[0] * 4 * dims[3])
    for selection in run_modes.fewer(mode, selections(op), slice(-2, -1), run_modes.TRACED):
        cut = choose(cotangents, selection)
        got = gradients(raw_ops, op, attrs, inputs, choose(spoiled, selection), mode)
        want = op.vjp(**inputs, cotangents=cut, **attrs)
        assert_gradients(op, attrs, inputs, got, want, bound, f"NaN past {valid} {selection}")


def check_unknown_shapes(raw_ops, op, attrs, mode="graph") -> None:
    """One graph for all shapes: what is not known when it is built must not be needed then."""
    unknown = {
        k: tf.TensorSpec(None, tf.int64 if k == "seq_len_max" else tf.float64) for k in op.inputs
    }

    def compute(given):
        arguments = {k: v for k, v in given.items() if k != "seq_len_max"}
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = getattr(raw_ops, op.name)(**given, **attrs)
            total = tf.add_n([tf.reduce_sum(o) for o in outputs])
        return tape.gradient(total, arguments, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    compute = run_modes.in_mode(mode, compute, input_signature=[unknown])
    cases = (((3, 2, 5, 4), 2), ((1, 1, 4, 3), 1), ((4, 0, 2, 2), 4), ((0, 3, 2, 2), 0))
    for dims, valid in run_modes.fewer(mode, cases, slice(None, None, 2)):
        dims = dims[-len(op.sizes) :]
        inputs = _inputs(op, dims, "double", valid=valid)
        got = compute(block_cells.tensors_of(inputs))
        ones = [np.ones(shape) for shape in op.output_shapes(dims).values()]
        want = op.vjp(**inputs, cotangents=ones, **attrs)
        bound = tolerances.composed_bound("double", 4 * max(dims) * 5)
        assert_gradients(op, attrs, inputs, got, want, bound, f"{dims}")


def check_one_pass(raw_ops, op, attrs, used) -> None:
    """One Grad op and no GEMM besides it, but for the weights of a cell, which its op leaves out.

    used: names of outputs. Counted in the graph as it is built, before any optimiser.
    """
    inputs = block_cells.tensors_of(_inputs(op, (3, 2, 4, 5)[-len(op.sizes) :], "float"))
    fixed = {k: inputs.pop(k) for k in ("seq_len_max",) if k in inputs}

    @tf.function
    def compute(arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            outputs = getattr(raw_ops, op.name)(**fixed, **arguments, **attrs)
            targets = [getattr(outputs, name) for name in used]
        return tape.gradient(targets, arguments)

    counts = collections.Counter(
        node.op for node in compute.get_concrete_function(inputs).graph.as_graph_def().node
    )
    grad_op = op.name.replace("V2", "GradV2") if op.name.endswith("V2") else f"{op.name}Grad"
    assert counts[f"BlockRNN>{op.name}"] == counts[f"BlockRNN>{grad_op}"] == 1, dict(counts)
    assert sum(n for k, n in counts.items() if k.startswith("BlockRNN>") and "Grad" in k) == 1
    cell = not fixed
    gemms = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
    assert sum(counts[kind] for kind in gemms) == 2 * cell, dict(counts)
    # No element-wise pass of zeros; h_prev ∘ r, for the weights of a GRU cell, is the only Mul.
    assert counts["Mul"] <= cell, dict(counts)
    for kind in () if cell else ("AddV2", "AddN", "While"):
        assert counts[kind] == 0, dict(counts)
