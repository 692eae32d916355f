"""Parts i/n of what is to be computed, for processes that know nothing of each other."""

from __future__ import annotations

import re

from drjax.core import validate

ALL = "1/1"
"""The part of a sweep that is the whole."""


def part_of(words: str) -> tuple[int, int]:
    """The numbers of "i/n".

    Args:
        words: A part, as a user writes it.

    Raises:
        ValueError: words of another form, or i not in 1 to n.

    Example:
        >>> from drjax.core.parts import part_of
        >>> part_of("3/16")
        (3, 16)
    """
    numbers = re.fullmatch(r"(\d+)/(\d+)", words)
    if numbers is None:
        raise ValueError(f"part must be i/n, as 3/16, got {words!r}")
    i, n = int(numbers[1]), int(numbers[2])
    validate.integer(part=i)
    validate.at_most(n, "the number of parts", part=i)
    return i, n
