"""JSON that a person wrote or a program left: read strictly, and refused in one sentence.

`json.loads` lets the last of two equal keys win, takes NaN, and raises RecursionError on deep nesting. What a privacy
guarantee is computed from must not be read so.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

MOST_DEPTH = 64
"""Levels of nesting that are read: no file of drjax has a tenth of them."""

_DEEP = f"lists and objects are nested more than {MOST_DEPTH} levels deep"


def read_object(path: Path, what: str, *, allow_constants: bool = False) -> dict[str, Any]:
    """The object in a JSON file, UTF-8 with or without a byte order mark.

    Args:
        path: The file.
        what: Name of the argument that gave it, such as "bounds".
        allow_constants: Take NaN, Infinity and -Infinity, which are not JSON.

    Raises:
        FileNotFoundError: no such file; names the option, --WHAT.
        OSError: the file cannot be read.
        ValueError: not JSON, no object, two equal keys in one object at any depth, nesting beyond `MOST_DEPTH`, a
            number that no float holds, text that no file holds, or a constant that is not allowed.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check --{what.replace('_', '-')}")
    found = parse(path.read_bytes(), what, str(path), allow_constants=allow_constants)
    if not isinstance(found, dict):
        raise ValueError(f"{what} must be a JSON object, got {type(found).__name__} in {path}")
    return found


def parse(blob: bytes, what: str, source: str, *, allow_constants: bool = False) -> Any:
    """The value of JSON text; see `read_object`.

    Args:
        blob: The text.
        what: Name of the argument that gave it.
        source: Where the text is from, for errors.
        allow_constants: Take NaN, Infinity and -Infinity.

    Raises:
        ValueError: as `read_object`.
    """
    try:
        found = json.loads(
            blob.decode("utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=None if allow_constants else _no_constant,
            parse_float=_finite_float,
            parse_int=_small_integer,
        )
        _check(found)
    except RecursionError:
        raise ValueError(f"{what} must be a JSON file, got {source}: {_DEEP}") from None
    except ValueError as error:
        raise ValueError(f"{what} must be a JSON file, got {source}: {_reason(error)}") from error
    return found


def _reason(error: ValueError) -> str:
    return "its text is not UTF-8" if isinstance(error, UnicodeError) else str(error)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r:.80} comes twice in one object: leave one out")
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON: write a finite number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text:.40} is too large")
    return value


def _small_integer(text: str) -> int:
    # Beyond a float's range before it is beyond the number of digits that `int` reads.
    _finite_float(text)
    return int(text)


def _check(found: Any) -> None:
    """Depth and text; without recursion, and so at any depth that the parser survived."""
    level, depth = [found], 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            raise ValueError(_DEEP)
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value.keys(), *value.values()]
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str) and not value.isascii():
                value.encode()  # half a surrogate pair is text that cannot be written
        level = inner
