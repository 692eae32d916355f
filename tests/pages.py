"""Pages of the documentation that people write, and the scripts of docs/ that work on them."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def script(name):
    """A module of docs/. By path: another package of the environment may be named "docs"."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        spec.loader.exec_module(module)
    return module


WRITTEN = list(script("generated").written())
