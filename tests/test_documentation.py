"""What the README shows runs and stays short; pages stay short; links between pages lead somewhere."""

import contextlib
import importlib.metadata
import io
import re

import pytest

import drjax
from tests.pages import ROOT, WRITTEN

README = ROOT / "README.md"
WORDS = 1200  # of a page
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *WRITTEN]


def anchors(page):
    """Names that GitHub gives to the headings of a page."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL), re.M
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page):
    """Relative links of a page to files or headings that are not there."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", text, re.M):
        link = found[1] or found[2]
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not link.startswith("http") and (not target.exists() or (anchor and anchor not in anchors(target))):
            yield link


def test_the_readme_is_short():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1400
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short(page):
    # A table that is generated is as long as its rows.
    text = re.sub(r"<!-- begin: .*?<!-- end -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(text.split()) <= WORDS


def test_the_lines_of_python_in_the_readme_print_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    said = re.search(r"print\(.*\)  # (\S+),", code)
    assert said
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    # Rounding of the float32 release is amplified, another one on each type of processor.
    assert float(printed.getvalue()) == pytest.approx(float(said[1]), rel=0.5)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](#one-two) [b](#three) [c](page.md) [d](no.md#x) [e](https://e.org)\n\n[f]: none\n"
    )
    assert list(broken_links(page)) == ["#three", "no.md#x", "none"]


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (\S+)$", text, re.M)[1] == drjax.__version__
    assert re.search(r"^license: (\S+)$", text, re.M)[1] == importlib.metadata.metadata("drjax")["License-Expression"]
