"""Which errors a user can mend, and each in one line. A mistake of drjax itself keeps its traceback."""

from __future__ import annotations

import re
import struct
import traceback
import zipfile
import zlib

import pyarrow as pa

from drjax.core import memory

_JAX_ERRORS = ("XlaRuntimeError", "JaxRuntimeError")
_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "Out of memory", "MemoryError", "bad_alloc")
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError)

LONGEST = 1000
"""Most characters of a message that are shown: those of libraries may quote whole cells."""


def one_line(error: BaseException) -> str | None:
    """What to print for an error that a user can mend; None for any other, which is a bug and shows where it is."""
    text = _joined(error)
    if _is_out_of_memory(error):
        return _without_memory(error, text)
    if isinstance(error, pa.ArrowException):
        return f"the data cannot be read ({text}): convert or leave out the column, or save the file again"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return text
    if isinstance(error, _DAMAGE):
        return f"a file is damaged or of another kind than its name says ({text})"
    if isinstance(error, OverflowError):
        return f"a number is too large ({text}): give a smaller one"
    if isinstance(error, RecursionError) and _is_in_json(error):
        return "a JSON file is nested too deeply: give one that drjax or you wrote"
    return None


def _joined(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    # A callback's MemoryError and what XLA cannot allocate arrive as one class, which has had two names.
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & set(_JAX_ERRORS)) and any(word in str(error) for word in _OUT_OF_MEMORY)


def _without_memory(error: BaseException, text: str) -> str:
    if isinstance(error, memory.NotEnoughMemory):
        return text
    asked = re.search(r"allocat\w*\s+([\d.,]+\s*(?:[KMGTPE]i?B|bytes))", text)
    what = f" (asked for {asked[1]} at once)" if asked else ""
    left, expected = memory.available(), memory.expected()
    there = "" if left is None else f", {memory.in_words(left)} are available now"
    said = f"; {expected}" if expected else ""
    return f"out of memory{what}{there}{said}: use fewer records, features, releases or shadows"


def _is_in_json(error: BaseException) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return any("/json/" in frame.filename.replace("\\", "/") for frame in frames[-20:])
