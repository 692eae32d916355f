"""Figures in the sentences of the pages are what the committed rows give, or stated as none of ours."""

import importlib
import sys

import pytest

from experiments.markdown import Figures
from tests.pages import ROOT, script

prose = script("prose")

PAGES = list(prose.pages())
NONE = Figures()

FIGURES = """\
from experiments.markdown import Figures

figures = Figures()


@figures
def errors():
    return 0.0423, 0.5, 1350, 3.2e-5
"""

PAGE = """\
# A page

The error is 0.0423, of 50% of 1,350 records at
3.2e-5.
<!-- figures: errors_of_a_page errors: 0.0423 50% 1,350 3.2e-5 -->

The noise is 0.1.
<!-- stated: 0.1 -->
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_figures_of_a_page_are_what_its_rows_give(page):
    text = page.read_text(encoding="utf-8")
    assert prose.renewed(text) == text, "run: python docs/prose.py"
    assert prose.unaccounted(text) == [], "needs a mark, or is stated: docs/prose.py says how"
    assert prose.unfounded(text) == []
    assert text.count("<!-- figures:") == len(prose.CITED.findall(text))


def test_every_function_of_figures_has_a_mark():
    sources = [
        source.split()[:2]
        for page in PAGES
        for found in prose.CITED.finditer(page.read_text(encoding="utf-8"))
        for source, _ in prose.parts(found["sources"])
    ]
    made = {(module, name) for module, name in sources}
    declared = {
        (module, name)
        for module in {module for module, _ in made}
        for name in importlib.import_module(module).figures.makers
    }
    assert declared == made != set()


@pytest.fixture
def page(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Nothing\n", encoding="utf-8")
    (tmp_path / "errors_of_a_page.py").write_text(FIGURES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose.generated, "ROOT", tmp_path)
    page = tmp_path / "docs" / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    return page


@pytest.mark.parametrize(
    ("there", "other"), [("0.0423", "0.0777"), ("50%", "77%"), ("1,350", "7,777"), ("3.2e-5", "7.7e-5")]
)
def test_a_figure_that_says_something_else_is_found_and_written(page, monkeypatch, capsys, there, other):
    page.write_text(PAGE.replace(there, other), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["prose.py", "--check"])
    assert prose.main() == 1
    assert "docs/page.md" in capsys.readouterr().out
    assert other in page.read_text(encoding="utf-8")

    monkeypatch.setattr(sys, "argv", ["prose.py"])
    assert prose.main() == 0
    assert page.read_text(encoding="utf-8") == PAGE


def test_what_neither_a_mark_nor_the_page_accounts_for_is_named(page, monkeypatch, capsys):
    page.write_text(PAGE + "It took 12 s, for 3 of 20 records, `0.7` and\nhalf of 0.1, and 1e-3.\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["prose.py", "--left", str(page)])
    assert prose.main() == 0
    assert [line.partition(":")[2] for line in capsys.readouterr().out.splitlines()] == [
        "9: 12",
        "9: 3",
        "9: 20",
        "10: 1e-3",
    ]


def test_a_figure_of_a_made_table_or_of_a_block_that_runs_needs_no_mark():
    table = "<!-- begin: python -m bench.none -->\n\n| 0.7 |\n\n<!-- end -->\n\n"
    block = "```console\n$ drjax none\n0.8\n```\n"
    said = "\nIt is 0.7 and 0.8.\n"
    assert prose.unaccounted(table + block + said) == []
    assert prose.unaccounted(table + "<!-- not run: it takes an hour -->\n" + block + said) == ["13: 0.8"]


def test_a_mark_covers_each_figure_once():
    text = PAGE.replace("of 50%", "of 0.0423 and 50%")
    assert prose.unaccounted(text) == ["3: 0.0423"]


def test_a_stated_figure_that_the_page_does_not_have_is_named():
    assert prose.unfounded(PAGE.replace("noise is 0.1", "noise is small")) == ["0.1"]


@pytest.mark.usefixtures("page")
def test_a_mark_of_a_figure_that_is_not_said_is_an_error():
    with pytest.raises(ValueError, match=r"0\.0423 of errors_of_a_page errors does not stand"):
        prose.renewed(PAGE.replace("is 0.0423", "is small"))
    with pytest.raises(ValueError, match="gives 4 figures, and the mark has 3"):
        prose.renewed(PAGE.replace(" 3.2e-5 -->", " -->"))


@pytest.mark.usefixtures("page")
def test_a_function_of_figures_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match="must be one of errors, got none"):
        prose.renewed(PAGE.replace("page errors", "page none"))
