"""Tables of the pages that are made from committed rows, or computed from formulas.

    python docs/generated.py            # writes every table anew
    python docs/generated.py --check    # writes nothing; exit 1 and the names of pages that say something else

In a page a table stands between two marks, of which the first says what makes it:

    <!-- begin: python -m bench.device_table -->
    ...
    <!-- end -->

The module has a function `block`, which gets the words after the module's name and returns Markdown; run as a command
it prints the same. It reads committed rows only, or evaluates formulas, and takes at most a second or two.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MARKED = re.compile(
    r"(?P<begin><!-- begin: python -m (?P<command>[^\n]+?) -->\n)(?P<content>.*?)(?P<end><!-- end -->)", re.S
)
"""A table with its marks."""

BUILT = ("api", "commands")
"""Folders of pages that are made from docstrings and parsers while the site is built."""


def written() -> Iterator[Path]:
    """Pages of docs/ that people write."""
    yield from (page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name not in BUILT)


def pages() -> Iterator[Path]:
    """Markdown files of the repository that have marks."""
    for folder, pattern in ((".", "*.md"), ("docs", "**/*.md"), ("experiments", "**/*.md"), ("bench", "**/*.md")):
        for page in sorted((ROOT / folder).glob(pattern)):
            if MARKED.search(page.read_text(encoding="utf-8")):
                yield page


def table(command: str) -> str:
    """What a module of the repository makes of its rows.

    Args:
        command: Its name and the words that its `block` gets.
    """
    module, *words = shlex.split(command)
    return importlib.import_module(module).block(*words).strip()


def renewed(text: str) -> str:
    """The text of a page with every table made anew."""
    return MARKED.sub(lambda found: f"{found['begin']}\n{table(found['command'])}\n\n{found['end']}", text)


def main() -> int:
    """Writes the tables, or says which pages are not what their rows give."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page would change")
    check = parser.parse_args().check
    sys.path.insert(0, str(ROOT))
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            changed.append(page.relative_to(ROOT))
            if not check:
                page.write_text(new, encoding="utf-8")
    for page in changed:
        print(f"{page}: {'its tables are not what the rows give' if check else 'written'}")
    return int(check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
