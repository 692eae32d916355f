"""Tables of the pages are what the committed rows give."""

import importlib
import re
import sys

import pytest

from bench import device_table
from experiments.markdown import Tables
from tests.pages import ROOT, script

generated = script("generated")

PAGES = list(generated.pages())
NONE = Tables()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_a_page_are_what_its_rows_give(page):
    text = page.read_text(encoding="utf-8")
    assert generated.renewed(text) == text, "run: python docs/generated.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_mark_has_its_other_one(page):
    text = page.read_text(encoding="utf-8")
    n_tables = len(generated.MARKED.findall(text))
    assert text.count("<!-- begin: ") == text.count("<!-- end -->") == n_tables > 0


def test_every_table_that_a_module_declares_stands_in_a_page():
    commands = {found["command"] for page in PAGES for found in generated.MARKED.finditer(page.read_text("utf-8"))}
    modules = {name: importlib.import_module(name) for name in {command.split()[0] for command in commands}}
    declared = {f"{name} {table}" for name, module in modules.items() for table in getattr(module, "made", NONE).makers}
    assert declared - {" ".join(command.split()[:2]) for command in commands} == set()
    assert len(declared) > 30


def test_a_table_that_no_function_makes_is_an_error():
    with pytest.raises(ValueError, match="must be one of"):
        generated.table("bench.speed_tables nothing")


def test_a_table_that_says_something_else_is_found_and_written(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    text = f"before\n<!-- begin: python -m bench.device_table -->\n\n{device_table.block()}\n\n<!-- end -->\nafter\n"
    wrong = re.sub(r"\d", "7", text)
    page.write_text(wrong, encoding="utf-8")
    monkeypatch.setattr(generated, "ROOT", tmp_path)

    monkeypatch.setattr(sys, "argv", ["generated.py", "--check"])
    assert generated.main() == 1
    assert page.read_text(encoding="utf-8") == wrong
    assert "docs/page.md" in capsys.readouterr().out

    monkeypatch.setattr(sys, "argv", ["generated.py"])
    assert generated.main() == 0
    assert page.read_text(encoding="utf-8") == text
