"""Checks the README: its examples run, its tables and names match the code."""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest
from helpers import registered_kernels
from helpers.children import ROOT
from helpers.markdown import promised, python_blocks, run_block

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/benchmarks.md",
    "docs/cudnn.md",
    "docs/freeze.md",
    "docs/inference.md",
    "docs/low_precision.md",
    "docs/serving.md",
    "docs/speed.md",
    "docs/tensorflow_errors.md",
    "docs/xla.md",
)


def test_there_are_examples():
    assert len(python_blocks(README)) >= 4
    assert README.count("```python") == len(python_blocks(README))


def test_examples_run_and_print_what_they_say(tfb, tmp_path, monkeypatch):
    """In their order, in one folder: a later one loads the model that an earlier one saved."""
    del tfb
    monkeypatch.chdir(tmp_path)
    for number, code in enumerate(python_blocks(README), 1):
        assert run_block(code, f"<example {number} of README.md>") == promised(code)


def test_a_wrong_promise_is_seen():
    code = "print(1 + 1)  # 3\n"
    assert run_block(code, "<wrong>") == ["2"]
    assert promised(code) == ["3"]


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = re.split(rf"^## {heading}$", README, flags=re.MULTILINE)[1]
    rows = re.search(r"(?:^\|.*\n)+", section, flags=re.MULTILINE).group().splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_op_table_is_complete_and_right(tf, tfb):
    """The ops, their types, devices and gradients, against TensorFlow's registries."""
    from tensorflow.python.framework import op_def_registry, ops

    rows = {name: row for row in table("Ops") for name in re.findall(r"`(\w+)`", row[0])}
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
    documented = {row[0].strip("`") for row in table("Environment variables")}
    assert used
    assert used == {name for name in documented if name.startswith("TF_BLOCKRNN_")}


def anchors(page: pathlib.Path) -> set[str]:
    """The names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    """To files, seen from the page's folder, and to headings in them."""
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", path.read_text(encoding="utf-8"))
    for target, heading in links:
        if target.startswith("https://"):
            continue
        file = (path.parent / target) if target else path
        assert file.exists(), target
        assert not heading or heading in anchors(file), heading


@pytest.mark.parametrize("page", PAGES)
def test_named_files_and_verbs_exist(page):
    """`make verb`, and `path/to/file` where the path has a folder of this checkout in front."""
    text = (ROOT / page).read_text(encoding="utf-8")
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^make (\S+)  ", listed, flags=re.MULTILINE)
    for verb in re.findall(r"`make\s+([a-z-]+)", text):
        assert verb in verbs, verb
    folders = "|".join(f.name for f in ROOT.iterdir() if f.is_dir() and f.name[0] != ".")
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
        assert (ROOT / pathlib.Path(path)).exists(), path
