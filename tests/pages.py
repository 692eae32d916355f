"""Pages of the documentation that people write. Those of commands and packages appear while the site is built."""

from pathlib import Path

ROOT = Path(__file__).parents[1]

BUILT = ("api", "commands")
"""Folders of pages that are made from docstrings and parsers."""

WRITTEN = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name not in BUILT]
