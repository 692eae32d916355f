"""What a cell needs that may not be on a machine."""

from __future__ import annotations

import importlib.util

from drjax.data import describe


def data(*names: str) -> str | None:
    """The data sets among these that are not here; None if all are."""
    absent = [name for name in names if not describe(name).present]
    return f"the files of {', '.join(absent)}: --data FOLDER" if absent else None


def package(name: str, why: str) -> str | None:
    """That a package is not installed, and what it is for; None if it is."""
    return None if importlib.util.find_spec(name) is not None else f"{name}, {why}"
