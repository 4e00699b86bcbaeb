"""The API pages of `make docs`: every public name has its place, and nothing is lost in it."""

from __future__ import annotations

import html
import re
from types import ModuleType

import pytest
from helpers import site
from helpers.children import run_code

pytestmark = [pytest.mark.docs, pytest.mark.xdist_group("site")]

# What Markdown and the highlighter make within an article; anything else was text that looked like
# a tag.
TAGS = set(
    "a article blockquote br code div em h1 h2 h3 li ol p pre span strong table tbody td th thead"
    " tr ul".split()
)


@pytest.fixture(scope="module")
def articles(tfb) -> dict[str, str]:
    """What is written on the pages, by the name of their module."""
    del tfb
    found = {}
    for page, text in site.pages().items():
        if page.startswith("api/"):
            name = "tf_blockrnn" + f".{page[len('api/') : -len('.html')]}".removesuffix(".index")
            (found[name],) = re.findall(r"<article .*?</article>", text, flags=re.DOTALL)
    return found


def _public(name: str, module: ModuleType):
    """(module, name) of everything public, by way of __all__."""
    for member in module.__all__:
        yield name, member
        value = getattr(module, member)
        if isinstance(value, ModuleType) and hasattr(value, "__all__"):
            yield from _public(f"{name}.{member}", value)


def _text(article: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", article)))


def _section(article: str, name: str) -> str:
    """What follows the heading of a name, up to the next one."""
    return article.split(f'<h2 id="{name}">')[1].split("<h2 ")[0]


def test_every_public_name_has_its_place(tfb, articles):
    names = list(_public("tf_blockrnn", tfb))
    assert ("tf_blockrnn.layers", "GRU") in names and ("tf_blockrnn.raw_ops", "BlockGRU") in names
    missing = [
        f"{module}.{name}" for module, name in names if f'<h2 id="{name}">' not in articles[module]
    ]
    assert not missing


def test_public_methods_have_their_place(tfb, articles):
    for name in ("run", "step", "zero_state"):
        assert f'<h3 id="Session.{name}">' in articles["tf_blockrnn.inference"], name
    assert "(self" not in _text("".join(articles.values()))


def test_docstrings_arrive_whole(tfb, articles):
    """The help of an op, a signature as users write it, and examples in code blocks."""
    raw_ops = articles["tf_blockrnn.raw_ops"]
    for name in tfb.raw_ops.__all__:
        text = _text(_section(raw_ops, name))
        summary = getattr(tfb.raw_ops, name).__doc__.splitlines()[0]
        assert re.sub(r"\s+", " ", summary) in text, name
        assert f"{name}(*, " in text.replace("( *", "(*"), name
    gru = _section(articles["tf_blockrnn"], "gru")
    assert "x: tf.Tensor," in _text(gru)
    assert re.search(r'<span class="gp">&gt;&gt;&gt; ?</span>', gru)


def test_examples_are_code(articles):
    for name, article in articles.items():
        shown = re.sub(r"<pre.*?</pre>", "", article, flags=re.DOTALL)
        assert "&gt;&gt;&gt;" not in shown, name
        assert article.count(">>> ") + article.count("&gt;&gt;&gt;") > 0, name


def test_no_text_is_taken_for_a_tag(articles):
    for name, article in articles.items():
        shown = re.sub(r'<(button|svg)\b.*?</\1>', "", article, flags=re.DOTALL)  # fmt: skip
        found = set(re.findall(r"<([a-zA-Z][\w-]*)", shown)) - TAGS
        assert not found, (name, found)
        assert "&amp;lt;" not in article, name


def test_names_in_the_text_lead_to_their_place(articles):
    everything = "".join(articles.values())
    for link, name in (("index.html#lstm", "lstm"), ("layers.html", "layers")):
        assert f'<a href="{link}"><code>tf_blockrnn.{name}</code></a>' in everything


def test_what_is_loaded_on_its_first_use_is_listed_before(tfb):
    """As completion in a shell asks for it."""
    listed = run_code("import tf_blockrnn; print(*dir(tf_blockrnn))").stdout.split()
    assert listed == sorted(tfb.__all__)
