"""Tables of the bench of layers: plain text for the terminal, Markdown for the pages."""

from __future__ import annotations

from typing import Any

from bench import layers
from bench.provenance import measured
from bench.tables import KINDS, dims, markdown_table, missing, number, text_table, why_missing

VARIANTS = {"plain": "plain", "masked": "masked", "recurrent_dropout": "recurrent dropout"}
_COLUMNS = {"ours_layer": "ours", "keras": "Keras", "keras_xla": "Keras, XLA", "torch": "PyTorch"}
_OTHERS = {"keras": "Keras", "torch": "PyTorch"}


def title(variant: str, kind: str) -> str:
    """The title of a table."""
    return f"{VARIANTS[variant]}, {KINDS[kind]}"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def _target(entry: dict[str, Any]) -> str:
    """A row's target relative to Keras, if it has one, and whether it was reached."""
    target = entry.get("target")
    if not target:
        return ""
    missing = entry["shapes"] - entry.get("keras", {"shapes": 0})["shapes"]
    if missing:
        return f"{target:g}, not measured at {missing} of {entry['shapes']}"
    return f"{target:g}, {_verdict(entry['keras']['geometric_mean'] >= target)}"


def _ratio(ratio: float, wanted: float, lost: str) -> str:
    return lost.format(f"{ratio:.2f}") if ratio < wanted else f"{ratio:.2f}"


def _summary(result: dict[str, Any], lost: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows; a mean below 1, or below its target, in the format `lost`."""
    rows = []
    for entry in result["summary"]:
        cell = entry["cell"] if entry["cell"] == "both" else entry["cell"].upper()
        line = [f"{cell}, {title(entry['variant'], entry['kind'])}"]
        target = entry.get("target")
        for name in _OTHERS:
            some = entry.get(name)
            if not some:
                line += ["-", "-", "-"]
                continue
            wanted = target or 1.0 if name == "keras" else 1.0
            line.append(_ratio(some["geometric_mean"], wanted, lost))
            line += [_ratio(some["lowest"], 1.0, lost), f"{some['slower']} of {some['shapes']}"]
        line.append(_target(entry))
        rows.append(line)
    head = [""]
    for name in _OTHERS.values():
        head += [f"{name} / ours, mean", "lowest", "slower at"]
    return [*head, "target over Keras"], rows


def _calls(result: dict[str, Any]) -> list[str]:
    """The cost of a call of a layer beyond the op, a sentence for each cell."""
    out, target = [], result["call_target_us"]
    for cell, cost in result["calls"].items():
        if "function_above_us" not in cost:
            out.append(f"{cell.upper()}, cost of a call: {why_missing(cost)}.")
            continue
        above = cost["function_above_us"]
        out.append(
            f"{cell.upper()} at B, T, I, H = {dims(result['call_shape'])}: a tf.function with the"
            f" layer takes {cost['function_layer_us']:.0f} us, with the op alone"
            f" {cost['function_op_us']:.0f} us; in alternating calls, the layer takes {above:.0f}"
            f" us more in the median (target under {target:g}, {_verdict(above < target)}). Called"
            f" eagerly, without a tf.function: layer {cost['eager_layer_us']:.0f} us, op"
            f" {cost['eager_op_us']:.0f} us, difference {cost['eager_above_us']:.0f} us."
        )
    return out


def _table(
    by_cell: dict[str, list[dict[str, Any]]], lost: str
) -> tuple[list[str], list[list[str]]]:
    """Head and rows of one variant and kind; a ratio below 1 is in the format `lost`."""
    rows = [row for some in by_cell.values() for row in some]
    peers = [n for n in _COLUMNS if any("median_ms" in r["peers"].get(n, {}) for r in rows)]
    others = [n for n in _OTHERS if any(n in r["layer_ratios"] for r in rows)]
    lines = []
    for row in rows:
        line = [f"{row['cell'].upper()}, {dims(row['shape'])}"]
        for name in peers:
            ms = row["peers"].get(name, {}).get("median_ms")
            line.append("-" if ms is None else number(ms))
        for name in others:
            ratio = row["layer_ratios"].get(name)
            line.append("-" if ratio is None else _ratio(ratio, 1.0, lost))
        if any(ratio < 1 for ratio in row["layer_ratios"].values()):
            line[0] = lost.format(line[0])
        lines.append(line)
    head = ["B, T, I, H", *(f"{_COLUMNS[name]} ms" for name in peers)]
    return [*head, *(f"{_OTHERS[name]} / ours" for name in others)], lines


def _tables(result: dict[str, Any]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """By title, then by cell."""
    out: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for (variant, kind, cell), rows in layers.groups(result).items():
        out.setdefault(title(variant, kind), {})[cell] = rows
    return out


def text(result: dict[str, Any]) -> str:
    """All of the result as text; << marks times slower than a peer or than the target."""
    parts = []
    for name, by_cell in _tables(result).items():
        parts += [name, text_table(*_table(by_cell, "<< {}")), ""]
    parts += ["geometric means", text_table(*_summary(result, "<< {}")), ""]
    return "\n".join(parts + _calls(result) + missing(result["rows"]))


def summary_markdown(result: dict[str, Any]) -> list[str]:
    """The paragraphs that summarise all rows: means, losses, and the cost of a call."""
    return [markdown_table(*_summary(result, "**{}**")), *_calls(result)]


def markdown(result: dict[str, Any]) -> str:
    """All rows; those where we are slower are bold."""
    parts = [
        "Our layers, Keras' in a `tf.function`, the same with `jit_compile=True`, and PyTorch's;"
        " float32, all contenders alternating in one run; training is forward and backward to the"
        " input and all weights. `/ ours` is the other's time over ours: above 1 we are faster,"
        " bold where we are slower or below the target. For Keras the faster of its two paths"
        " counts. `masked`: rows of random lengths, T / 2 on average, padded on the right, which"
        " PyTorch takes as a packed sequence. `recurrent dropout`: 0.3, which PyTorch does not"
        " have. Means are geometric. `python -m bench layers` measures again.",
        *summary_markdown(result),
    ]
    for name, by_cell in _tables(result).items():
        parts += [
            f"**Layers, {name}**: median ms of one call",
            markdown_table(*_table(by_cell, "**{}**")),
        ]
    parts += [f"{line}." for line in missing(result["rows"])]
    return "\n\n".join([*parts, measured(result)])
