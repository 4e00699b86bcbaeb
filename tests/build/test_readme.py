"""Checks the README, and the tables that were in it: they match the code."""

from __future__ import annotations

import re

import pytest
from helpers import registered_kernels
from helpers.children import ROOT
from helpers.markdown import python_blocks

pytestmark = pytest.mark.docs

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_short_and_has_examples():
    """What is longer belongs into docs/, with a link."""
    assert len(README.splitlines()) <= 200
    assert len(python_blocks(README)) >= 4


def test_it_has_a_chart():
    (chart,) = re.findall(r"^!\[[^\]]+\]\(([^)]+)\)$", README, flags=re.MULTILINE)
    assert (ROOT / chart).exists()


def test_it_leads_to_every_guide():
    """Each page of docs/ is linked from the README, or from a page that is."""
    linked, new = set(), {"README.md"}
    while new:
        page = new.pop()
        linked.add(page)
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\(([\w./-]+\.md)", (ROOT / page).read_text(encoding="utf-8")):
            reached = str((folder / target).resolve().relative_to(ROOT))
            new |= {reached} - linked
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")} <= linked


def table(page: str) -> list[list[str]]:
    """The cells of the first table of a page, without its head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    rows = re.search(r"(?:^\|.*\n)+", text, flags=re.MULTILINE).group().splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_op_table_is_complete_and_right(tf, tfb):
    """The ops, their types, devices and gradients, against TensorFlow's registries."""
    from tensorflow.python.framework import op_def_registry, ops

    rows = {name: row for row in table("docs/ops.md") for name in re.findall(r"`(\w+)`", row[0])}
    assert sorted(rows) == sorted(tfb.raw_ops.__all__)
    built = {"CPU", "GPU"} if tfb.build_info()["cuda"]["architectures"] else {"CPU"}
    for name, (_, types, devices, gradient) in rows.items():
        found = {kernel.device_type for kernel in registered_kernels.of(f"BlockRNN>{name}")}
        assert found == built.intersection(devices.split(", ")), name
        (attr,) = [a for a in op_def_registry.get(f"BlockRNN>{name}").attr if a.name == "T"]
        registered = [tf.as_dtype(t).name for t in attr.allowed_values.list.type]
        assert registered == types.replace("half", "float16").split(", ")
        try:
            ops._gradient_registry.lookup(f"BlockRNN>{name}")
            assert gradient != "none", name
        except LookupError:
            assert gradient == "none", name


def test_environment_variables_are_all_there():
    """Ours, read from the sources of the package and of the build."""
    pattern = re.compile(r"TF_BLOCKRNN_[A-Z]+(?:_[A-Z]+)*")
    sources = [
        path
        for folder in ("cc", "tf_blockrnn", "third_party", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cc", ".h", ".py", ".bzl", ".sh")
    ]
    used = {name for path in sources for name in pattern.findall(path.read_text(encoding="utf-8"))}
    documented = {row[0].strip("`") for row in table("docs/environment.md")}
    assert used
    assert used == {name for name in documented if name.startswith("TF_BLOCKRNN_")}
