"""The documentation: examples in pages and docstrings run, and what the pages name exists."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import json
import re
import subprocess

import pytest
from helpers import registered_kernels
from helpers.children import ROOT, assert_ok, run_python
from helpers.markdown import promised, python_blocks, run_block

pytestmark = pytest.mark.docs

TEXTS = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md")
    for page in sorted(ROOT.glob(pattern))
}
# Pages whose examples need more than a folder to run in: test_add_an_op.py, test_serving_page.py,
# test_keras_2_page.py.
WITH_A_TEST = {"CONTRIBUTING.md", "docs/serving.md", "docs/keras_2.md"}
EXAMPLES = [page for page in TEXTS if "```python" in TEXTS[page] and page not in WITH_A_TEST]


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run_and_print_what_they_say(tfb, tmp_path, monkeypatch, page):
    """In their order, in one folder: a later one loads the model that an earlier one saved."""
    del tfb
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(TEXTS[page])
    assert TEXTS[page].count("```python") == len(blocks)
    for number, code in enumerate(blocks, 1):
        printed = run_block(code, f"<example {number} of {page}>")
        assert printed == promised(code, TEXTS[page])


# ---- docstrings

# By their files: the package's folder also holds libraries that are no Python modules. Importing a
# program runs it.
MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in (ROOT / "tf_blockrnn").rglob("*.py")
    if file.name != "__main__.py"
)
PUBLIC = [f"tf_blockrnn{name}" for name in ("", ".inference", ".layers", ".raw_ops", ".weights")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(tfb, name):
    del tfb
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    outcome = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert outcome.failed == 0, f"{outcome.failed} of {outcome.attempted} examples in {name} fail"
    assert outcome.attempted or name not in PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_list_and_export_what_is_public(tfb, name):
    del tfb
    module, exported = importlib.import_module(name), {}
    assert sorted(dir(module)) == sorted(module.__all__)
    exec(f"from {name} import *", exported)
    assert exported.keys() - {"__builtins__"} == set(module.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_examples(tfb, name):
    """In their own docstring or in that of a method."""
    del tfb
    module = importlib.import_module(name)
    for public in module.__all__:
        value = getattr(module, public)
        # TensorFlow generates the raw ops; their module says how they are called.
        if name != "tf_blockrnn.raw_ops" and (inspect.isfunction(value) or inspect.isclass(value)):
            own = [value, *(vars(value).values() if inspect.isclass(value) else ())]
            assert any(">>>" in (getattr(one, "__doc__", None) or "") for one in own), public


# ---- the site


@pytest.fixture(scope="module")
def site(tfb, tmp_path_factory):
    """It is built with warnings as errors: of links to nowhere, pages outside of the navigation."""
    del tfb
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--site-dir", str(folder)]
    assert_ok(run_python(command, cwd=ROOT), "mkdocs")
    return folder


@pytest.mark.xdist_group("site")
def test_the_pictures_of_the_site_are_there(site):
    """mkdocs does not check those in HTML."""
    pictures = {
        page.parent / name
        for page in site.rglob("*.html")
        for name in re.findall(r'\ssrc(?:set)?="([^":]+\.png)"', page.read_text(encoding="utf-8"))
    }
    assert pictures and all(picture.is_file() for picture in pictures), pictures


@pytest.mark.xdist_group("site")
def test_the_site_has_every_public_name(site):
    for name in PUBLIC:
        module = importlib.import_module(name)
        page = site / "api" / f"{name.partition('.')[2] or 'index'}.html"
        text = page.read_text(encoding="utf-8")
        submodules = {public.rpartition(".")[2] for public in PUBLIC}
        missing = {public for public in module.__all__ if f'id="{name}.{public}"' not in text}
        assert missing <= submodules, name
        # Nothing comes from the network.
        assert not re.search(r'(<link[^>]*href|src)="(https?:)?//', text)


def _search(index: dict, query: str) -> list[str]:
    """The places that have every word, best first, as the theme finds them.

    A word is found where one begins with it; in a title it weighs a thousand times one in a text.
    """
    separator = re.compile(index["config"]["separator"])

    def words(text: str) -> list[str]:
        text = re.sub(r"<[^>]+>", " ", text).lower()
        return [word for word in separator.split(text) if word]

    def score(place: dict) -> float:
        found = [
            1000.0 * any(word.startswith(wanted) for word in words(place["title"]))
            + any(word.startswith(wanted) for word in words(place["text"]))
            for wanted in words(query)
        ]
        return min(found) and place.get("boost", 1) * sum(found)

    scores = {place["location"]: score(place) for place in index["docs"]}
    return sorted(filter(scores.get, scores), key=lambda place: -scores[place])


@pytest.mark.xdist_group("site")
@pytest.mark.parametrize(
    "query, best",
    [
        ("ragged", "docs/functions.html#ragged-tensors"),
        ("why_not_fused", "docs/keras.html#why-a-layer-is-not-fused"),
        ("fused", "docs/keras.html#why-a-layer-is-not-fused"),
        ("mask", "docs/functions.html#lengths-and-masks"),
    ],
)
def test_a_search_finds_the_guide_first(site, query, best):
    """A part of a name is a word of its own; decisions and measurements come last."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = _search(index, query)
    assert best in found[:2]
    behind = [place.startswith(("docs/adr/", "docs/notes/")) for place in found]
    assert behind == sorted(behind)


# ---- what pages name


def test_op_table_is_complete_and_right(tf, tfb):
    """The ops, their types, devices and gradients, against TensorFlow's registries."""
    from tensorflow.python.framework import op_def_registry, ops

    rows = {name: row for row in _table("ops") for name in re.findall(r"`(\w+)`", row[0])}
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


def _table(page: str) -> list[list[str]]:
    """The cells of the first table of a page, without its head."""
    rows = re.search(r"(?:^\|.*\n)+", TEXTS[f"docs/{page}.md"], flags=re.MULTILINE).group()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()[2:]]


def test_environment_variables_are_all_there():
    """Ours, read from the sources of the package and of the build."""
    used = {
        name
        for folder in ("cc", "tf_blockrnn", "third_party", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".cc", ".h", ".py", ".bzl", ".sh")
        for name in re.findall(r"TF_BLOCKRNN_[A-Z]+(?:_[A-Z]+)*", path.read_text(encoding="utf-8"))
    }
    documented = {row[0].strip("`") for row in _table("environment")}
    assert used == {name for name in documented if name.startswith("TF_BLOCKRNN_")} != set()


@pytest.mark.parametrize("page", TEXTS)
def test_named_verbs_modules_and_files_exist(page):
    """`make verb`, `python -m module`, and `path/to/file` where the path is of this checkout."""
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    verbs = re.findall(r"^(?:make | {2})(\S+)  ", listed, flags=re.MULTILINE)
    named = re.findall(r"(?:`|^)make\s+([a-z][\w-]*)", TEXTS[page], flags=re.MULTILINE)
    assert set(named) <= set(verbs)
    for module in re.findall(r"python3? -m ((?:bench|tf_blockrnn)[.\w]*)", TEXTS[page]):
        assert importlib.util.find_spec(module), module
    folders = "|".join(f.name for f in ROOT.iterdir() if f.is_dir() and f.name[0] != ".")
    for path in re.findall(rf"(?:`|python3? )((?:{folders})/[\w./-]+)[`\s]", TEXTS[page]):
        assert (ROOT / path).exists(), path
