"""Checks every page of the documentation: its examples run, its commands, files and links exist."""

from __future__ import annotations

import functools
import pathlib
import re
import shlex
import subprocess

import pytest
from helpers.children import ROOT, assert_ok, run_python
from helpers.markdown import commands, promised, python_blocks, run_block

pytestmark = pytest.mark.docs

TOP = ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")
PAGES = [f"{name}.md" for name in TOP] + sorted(
    str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")
)
# Pages whose examples another test runs, with that test.
EXAMPLES_OF = {
    "CONTRIBUTING.md": "tests/build/test_add_an_op.py",
    "docs/gru_variants.md": "tests/weights/test_gru_variants.py",
    "docs/inference.md": "tests/inference/test_inference_docs.py",
    "docs/serving.md": "tests/build/test_serving_page.py",
    "docs/xla.md": "tests/build/test_xla_page.py",
}


# Pages whose ```sh fences another test runs.
COMMANDS_OF = {"docs/serving.md": "tests/build/test_serving_page.py"}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


WITH_EXAMPLES = [page for page in PAGES if python_blocks(text_of(page)) and page not in EXAMPLES_OF]


def test_pages_are_found():
    assert {"docs/keras.md", "docs/ops.md", "docs/adr/0018-xla.md"} <= set(PAGES)
    assert {"README.md", "docs/functions.md", "docs/cudnn.md"} <= set(WITH_EXAMPLES)
    for page, test in [*EXAMPLES_OF.items(), *COMMANDS_OF.items()]:
        assert pathlib.Path(page).name in text_of(test), f"{test} runs the examples of {page}"


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_examples_run_and_print_what_they_say(tfb, tmp_path, monkeypatch, page):
    """In their order, in one folder: a later one loads the model that an earlier one saved."""
    del tfb
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(text_of(page))
    assert text_of(page).count("```python") == len(blocks)
    for number, code in enumerate(blocks, 1):
        assert run_block(code, f"<example {number} of {page}>") == promised(code)


def test_a_wrong_promise_is_seen():
    code = "print(1 + 1)  # 3\n"
    assert run_block(code, "<wrong>") == ["2"]
    assert promised(code) == ["3"]


@functools.cache
def make_verbs() -> list[str]:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return re.findall(r"^(?:make | {2})(\S+)  ", listed, flags=re.MULTILINE)


@functools.cache
def help_of(*arguments: str) -> str:
    """What a program says of its arguments."""
    done = run_python([*arguments, "--help"], cwd=ROOT, CUDA_VISIBLE_DEVICES="-1")
    return assert_ok(done, f"{' '.join(arguments)} --help")


def wrong_in_make(words: list[str]) -> list[str]:
    """The arguments that make does not know: verbs, or variables that the Makefile has none of."""
    makefile = text_of("Makefile")
    return [
        word
        for word in words
        if word not in make_verbs() and not ("=" in word and word.split("=")[0] in makefile)
    ]


def wrong_in_python(words: list[str]) -> list[str]:
    """What the program's help does not have: its verb, options and their choices."""
    length = 2 if words[0] == "-m" else 1
    program, rest = words[:length], words[length:]
    if words[0] != "-m":
        assert (ROOT / words[0]).exists(), words[0]
    if rest and program[-1] in ("bench", "tf_blockrnn"):
        verb = rest.pop(0)
        if not re.search(rf"\b{re.escape(verb)}\b", help_of(*program)):
            return [verb]
        if rest:
            program = [*program, verb]
    rest = rest[: rest.index("--")] if "--" in rest else rest
    names = [name for word in rest for name in word.split("|")]
    # The others are values that no help lists: IN, 256x20x64x512, 0.4.
    names = [name for name in names if name.startswith("--") or re.fullmatch("[a-z]+", name)]
    return [name for name in names if name not in help_of(*program)] if names else []


def wrong_in_pytest(words: list[str]) -> list[str]:
    own = text_of("tests/conftest.py")
    return [w for w in words if w.startswith("--") and f'"{w.split("=")[0]}"' not in own]


# What a page may tell its reader to run: the first word, and the check of the others. A page with
# other commands needs a test of its own that runs them, and an entry above.
KINDS = {
    "make": wrong_in_make,
    "python": wrong_in_python,
    "python3": wrong_in_python,
    "pytest": wrong_in_pytest,
    # What pip does in a checkout, tests/build/test_wheel.py does with the source distribution.
    "pip": lambda words: [] if words in (["install"], ["install", "."]) else words,
}


@pytest.mark.parametrize("page", [page for page in PAGES if commands(text_of(page))])
def test_commands_exist(page):
    for command in commands(text_of(page), fences=page not in COMMANDS_OF):
        first, *words = shlex.split(command)
        assert first in KINDS, f"no test checks commands of this kind: {command}"
        assert not KINDS[first](words), command


def test_a_wrong_command_is_seen():
    assert wrong_in_make(["nonsense", "COLOUR=red", "test", "ISA=native"]) == [
        "nonsense",
        "COLOUR=red",
    ]
    assert wrong_in_python(["-m", "bench", "nonsense"]) == ["nonsense"]
    assert wrong_in_python(["-m", "bench", "layers", "--nonsense"]) == ["--nonsense"]
    assert wrong_in_python("-m tf_blockrnn convert IN OUT --to npz|hdf".split()) == ["hdf"]
    assert wrong_in_pytest(["--device=/GPU:0", "--nonsense"]) == ["--nonsense"]
    assert commands("`make\nhelp` and\n```sh\nls\n```\n") == ["ls", "make help"]


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
    text = text_of(page)
    for verb in re.findall(r"`make\s+([a-z0-9-]+)", text):
        assert verb in make_verbs(), verb
    folders = "|".join(f.name for f in ROOT.iterdir() if f.is_dir() and f.name[0] != ".")
    for path in re.findall(rf"`((?:{folders})/[\w./-]+)`", text):
        assert (ROOT / pathlib.Path(path)).exists(), path
