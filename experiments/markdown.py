"""Markdown, as the experiments print it, and tables and figures of pages by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Made = TypeVar("Made")


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


def _name(maker: Callable[..., object]) -> str:
    return maker.__name__.removesuffix("_table").replace("_", "-")


def _named(makers: dict[str, Made], name: str) -> Made:
    if name not in makers:
        raise ValueError(f"name must be one of {', '.join(makers)}, got {name}")
    return makers[name]


class Tables:
    """Functions of words that return Markdown, by their names with - for _ and without a `_table` at their end.

    Example:
        >>> made = Tables()
        >>> @made
        ... def two_words():
        ...     return markdown_table(["n"], [["9"]])
        >>> made.block("two-words").splitlines()[0]
        '| n |'
    """

    def __init__(self) -> None:
        self.makers: dict[str, Callable[..., str]] = {}

    def __call__(self, maker: Callable[..., str]) -> Callable[..., str]:
        """Adds a function; a decorator."""
        self.makers[_name(maker)] = maker
        return maker

    def block(self, name: str, *words: str) -> str:
        """What the function of a name returns of some words.

        Raises:
            ValueError: a name that no function has.
        """
        return _named(self.makers, name)(*words)


class Figures:
    """Functions of words that return the figures of a sentence in their order, by their names with - for _.

    Example:
        >>> figures = Figures()
        >>> @figures
        ... def two_errors(attack):
        ...     return {"kernel": (0.04236, 0.0371)}[attack]
        >>> figures.of("two-errors", "kernel")
        (0.04236, 0.0371)
    """

    def __init__(self) -> None:
        self.makers: dict[str, Callable[..., Sequence[float]]] = {}

    def __call__(self, maker: Callable[..., Sequence[float]]) -> Callable[..., Sequence[float]]:
        """Adds a function; a decorator."""
        self.makers[_name(maker)] = maker
        return maker

    def of(self, name: str, *words: str) -> Sequence[float]:
        """What the function of a name returns of some words; a share where the page has a percentage.

        Raises:
            ValueError: a name that no function has.
        """
        return _named(self.makers, name)(*words)
