"""`make docs`: every public name has its place in the API reference, and nothing is lost in it."""

from __future__ import annotations

import html
import re
from types import ModuleType

import pytest
from helpers.children import ROOT, assert_ok, run_code, run_python

# What pdoc's template and Markdown make; anything else was text that looked like a tag.
TAGS = set(
    "a blockquote body br code div em footer h1 h2 h3 h4 h6 head html img input label li main meta"
    " nav ol p path pre script section small span strong style summary details svg table tbody td"
    " th thead title tr ul wbr".split()
)


@pytest.fixture(scope="module")
def pages(tfb, tmp_path_factory) -> dict[str, str]:
    """The pages by the name of their module."""
    del tfb
    folder = tmp_path_factory.mktemp("reference")
    program = str(ROOT / "tools" / "docs.py")
    assert_ok(run_python([program, "--output", str(folder)]), "docs.py, warnings as errors")
    assert (folder / "index.html").exists() and (folder / "search.js").exists()
    return {
        ".".join(page.relative_to(folder).with_suffix("").parts): page.read_text("utf-8")
        for page in folder.rglob("*.html")
        if page != folder / "index.html"
    }


def _public(name: str, module: ModuleType):
    """(module, name) of everything public, by way of __all__."""
    for member in module.__all__:
        yield name, member
        value = getattr(module, member)
        if isinstance(value, ModuleType) and hasattr(value, "__all__"):
            yield from _public(f"{name}.{member}", value)


def test_every_public_name_has_its_place(tfb, pages):
    names = list(_public("tf_blockrnn", tfb))
    assert ("tf_blockrnn.layers", "GRU") in names and ("tf_blockrnn.raw_ops", "BlockGRU") in names
    missing = [
        f"{module}.{name}"
        for module, name in names
        if f"{module}.{name}" not in pages and f'id="{name}"' not in pages[module]
    ]
    assert not missing


def test_docstrings_arrive_whole(tfb, pages):
    """The help of an op, a signature as users write it, and examples in code blocks."""
    raw_ops = pages["tf_blockrnn.raw_ops"]
    for name in tfb.raw_ops.__all__:
        section = raw_ops.split(f'<section id="{name}">')[1].split("</section>")[0]
        text = html.unescape(re.sub(r"<[^>]+>", "", section))
        assert getattr(tfb.raw_ops, name).__doc__.splitlines()[0] in text, name
        assert f"{name}(*, " in re.sub(r"\s+", " ", text).replace("( *", "(*"), name
    gru = pages["tf_blockrnn"].split('<section id="gru">')[1].split("</section>")[0]
    text = html.unescape(re.sub(r"<[^>]+>", "", gru))
    assert "x: tf.Tensor," in text
    assert re.search(r'<span class="gp">&gt;&gt;&gt; </span>', gru)
    assert not any("<blockquote>\n  <blockquote>" in page for page in pages.values())


def test_no_text_is_taken_for_a_tag(pages):
    for name, page in pages.items():
        found = set(re.findall(r"<([a-zA-Z][\w-]*)", page)) - TAGS
        assert not found, (name, found)


def test_pages_need_no_network(pages):
    for name, page in pages.items():
        assert not re.search(r"(?:src|href)=\"https?://[^\"]*\.(?:js|css)", page), name


def test_what_is_loaded_on_its_first_use_is_listed_before(tfb):
    """As completion in a shell asks for it."""
    listed = run_code("import tf_blockrnn; print(*dir(tf_blockrnn))").stdout.split()
    assert listed == sorted(tfb.__all__)
