"""Markdown, as the experiments print it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of words; a bar within a cell is escaped.

    Args:
        heads: Words of the first line.
        rows: Cells of each further line, as many as heads.

    Example:
        >>> print(markdown_table(["n", "error"], [["9", "0.1"]]))
        | n | error |
        | --- | --- |
        | 9 | 0.1 |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
