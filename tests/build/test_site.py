"""The site of `make docs`: complete, its links hold, and it is readable on a desk and a phone.

What needs a browser is reported as skipped where there is none.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from helpers import browser, site
from helpers.children import ROOT

pytestmark = [pytest.mark.docs, pytest.mark.xdist_group("site")]

PHONE, DESK = 390, 1280
# Waits until each image has loaded or failed, lazy ones too, and names those that failed.
BROKEN_IMAGES = """
Promise.all([...document.images].map(async image => {
  image.loading = "eager";
  try { await image.decode(); } catch { return image.src; }
  return image.naturalWidth > 0 ? "" : image.src;
})).then(found => found.filter(src => src))
"""
# What reaches over the right edge and is not within something that scrolls.
WIDE = """
(() => {
  const page = document.documentElement, wide = [];
  if (page.scrollWidth > page.clientWidth) wide.push(`the page: ${page.scrollWidth}`);
  for (const one of document.querySelectorAll("article *")) {
    if (one.getBoundingClientRect().right <= page.clientWidth + 1) continue;
    let outer = one.parentElement;
    while (outer && getComputedStyle(outer).overflowX === "visible") outer = outer.parentElement;
    if (!outer || outer.matches("html, body, .md-container, .md-main, article"))
      wide.push(one.outerHTML.slice(0, 120));
  }
  return wide;
})()
"""
RESULTS = """
[...document.querySelectorAll("a.md-search-result__link")].map(link => link.href)
"""


@pytest.fixture(scope="module")
def window(tfb):
    """A browser, and the address of the site."""
    del tfb
    program = browser.find()
    if program is None:
        pytest.skip("not run: no Chromium on PATH (Debian, Ubuntu: apt-get install chromium)")
    with site.served() as address, browser.launched(program) as opened:
        yield opened, address


def test_every_guide_is_on_the_site(tfb):
    del tfb
    pages = site.pages()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f"{page.relative_to(ROOT).with_suffix('.html')}" in pages
    start = site.parsed("index.html").links
    missing = {page for page in pages if page.startswith(("docs/", "api/", "examples/"))} - start
    assert not {page for page in missing if "/index.html" not in page}, "not in the navigation"


def test_links_and_files_exist(tfb):
    del tfb
    wrong, count = [], 0
    for page in site.pages():
        targets = site.parsed(page).links | site.parsed(page).files
        count += len(targets)
        wrong += filter(None, (site.broken(page, target) for target in targets))
    assert not wrong
    assert count > 1000


def test_a_broken_link_is_seen(tfb):
    del tfb
    assert site.broken("docs/keras.html", "nothing.html").endswith("no such file")
    assert site.broken("docs/keras.html", "xla.html#nothing").endswith("no such anchor")
    assert not site.broken("docs/keras.html", "xla.html#which-call-is-fastest")


def test_plots_are_on_the_site(tfb):
    """Those that the guides show; none is left over in bench/results."""
    del tfb
    shown = {
        src.rsplit("/", 1)[-1]
        for page in site.pages()
        for src in site.parsed(page).files
        if "bench/results/" in src
    }
    assert shown == {plot.name for plot in (ROOT / "bench" / "results").glob("*.png")}


def test_nothing_comes_from_the_network(tfb):
    del tfb
    for page in site.pages():
        assert not [file for file in site.parsed(page).files if re.match("(https?:)?//", file)], (
            page
        )


def test_the_search_has_guides_and_api(tfb):
    del tfb
    index = json.loads((site.built() / "search" / "search_index.json").read_text("utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert {"docs/keras.html#one-model-fuse_model-unfuse_model", "api/layers.html#LSTM"} <= places


def test_every_page_is_readable_on_a_phone(window):
    """No error in the console, no broken image, nothing wider than the page."""
    opened, address = window
    opened.size(PHONE)
    wrong = {}
    for page in site.pages():
        opened.open(f"{address}/{page}")
        found = [*opened.value(BROKEN_IMAGES), *opened.value(WIDE), *opened.complaints()]
        found += [asked for asked in opened.requests() if not asked.startswith((address, "data:"))]
        if found:
            wrong[page] = found
    assert not wrong


@pytest.mark.parametrize("page", ["index.html", "docs/performance.html", "api/index.html"])
def test_pages_are_readable_on_a_desk(window, tmp_path, page):
    opened, address = window
    opened.size(DESK)
    opened.open(f"{address}/{page}")
    assert not opened.value(WIDE) and not opened.complaints()
    picture = opened.screenshot(tmp_path / "page.png", whole=True).read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.parametrize("word", ["recurrent_dropout", "cuDNN"])
def test_the_search_finds(window, word):
    """In a guide and in the reference."""
    opened, address = window
    opened.size(DESK)
    opened.open(f"{address}/index.html?q={word}")
    end = time.monotonic() + 60
    found: list[str] = []
    while not found and time.monotonic() < end:
        found = opened.value(RESULTS)
        time.sleep(0.2)
    assert [link for link in found if "/docs/" in link], found
    assert [link for link in found if "/api/" in link], found
    assert not opened.complaints()


def test_what_is_wrong_on_a_page_is_seen(window, tmp_path):
    """The checks themselves, on a page with every fault."""
    opened, _ = window
    page = tmp_path / "page.html"
    page.write_text(
        '<meta name="viewport" content="width=device-width">'
        '<article><img src="nothing.png"><div style="width: 900px">wide</div></article>'
        '<script>console.error("told"); nothing.at.all</script>'
    )
    opened.size(PHONE)
    opened.open(page.as_uri())
    assert [src for src in opened.value(BROKEN_IMAGES) if src.endswith("nothing.png")]
    assert any("900px" in one for one in opened.value(WIDE))
    told = " ".join(opened.complaints())
    assert "told" in told and "nothing" in told
