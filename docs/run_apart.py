"""Runs the blocks of the pages that take too long for the tests, and keeps a row of each.

    python docs/run_apart.py                     # pages with a block that has no row as it stands
    python docs/run_apart.py README.md docs/...  # these

They stand behind a comment `<!-- run apart: REASON -->`. A page is run from its first block to its last, in an empty
folder, and what is printed is compared with what it shows, as `tests/test_snippets.py` says. A page that passes has a
row for each such block in `docs/run_apart.jsonl`, with the commit and the machine; one that fails keeps those it had.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from drjax.core.store import atomic_open  # noqa: E402 (found from the root)
from drjax.reports import records  # noqa: E402
from tests import test_snippets as snippets  # noqa: E402


def run(page: str, came_from: dict[str, object]) -> str | None:
    """Runs a page and keeps its rows; what is wrong with it, if anything.

    Args:
        page: The page, from the root of the repository.
        came_from: Commit and machine, taken before the first row was written.
    """
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        try:
            snippets.check(ROOT / page, apart=True)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - begun)
    new = [{"page": page, "block": block, "page_s": seconds, **came_from} for block in snippets.apart(ROOT / page)]
    rows = sorted([row for row in snippets.rows() if row["page"] != page] + new, key=lambda row: str(row["page"]))
    with atomic_open(snippets.ROWS) as file:
        file.write(b"".join(records.encoded_line(row) for row in rows))
    return None


def main() -> int:
    """Runs pages, and says which of them show something else."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="Markdown files; those that have to be run if none is named")
    pages = [str(Path(page).resolve().relative_to(ROOT)) for page in parser.parse_args().pages]
    os.environ["COLUMNS"] = "100"
    came_from = records.provenance()
    if not pages:
        for page in (str(path.relative_to(ROOT)) for path in snippets.PAGES):
            if [row["block"] for row in snippets.rows() if row["page"] == page] != snippets.apart(ROOT / page):
                pages.append(page)
    failed = 0
    for page in pages:
        begun = time.perf_counter()
        wrong = run(page, came_from)
        failed += wrong is not None
        print(f"{page}: {time.perf_counter() - begun:.0f} s{'' if wrong is None else chr(10) + wrong}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
