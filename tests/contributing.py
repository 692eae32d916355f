"""The examples of CONTRIBUTING.md, each as the module that it would be."""

import contextlib
import functools
import re
import sys
import types
from pathlib import Path
from unittest import mock

from drjax.attacks.registry import ATTACKS
from drjax.data import SOURCES
from drjax.defenses import DEFENSES
from drjax.defenses.dp_pca import MECHANISMS
from drjax.dr import METHODS

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
LISTS = (METHODS, ATTACKS["embedding"], DEFENSES, MECHANISMS, SOURCES)


@functools.cache
def sections():
    """Text by heading, of the sections that say how to add something."""
    parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return {head: text for head, text in zip(parts[1::2], parts[2::2], strict=True) if head.startswith("Add a")}


def block(heading, language="python"):
    """The one block of a language in a section."""
    (code,) = re.findall(rf"^```{language}\n(.*?)^```", sections()[heading], re.M | re.S)
    return code


@functools.cache
def _made(heading):
    name = re.sub(r"\W", "_", f"contributing {heading}".lower())
    module = types.ModuleType(name)
    sys.modules[name] = module  # dataclasses look their module up
    with contextlib.ExitStack() as stack:
        before = [set(known) for known in LISTS]
        for known in LISTS:
            stack.enter_context(mock.patch.dict(known))
        exec(compile(block(heading), PAGE, "exec"), module.__dict__)
        added = [
            (known, key, known[key]) for known, old in zip(LISTS, before, strict=True) for key in known.keys() - old
        ]
    return module, added


def add(monkeypatch, heading):
    """Adds the example of a section to the list that it belongs into, for one test; its module."""
    module, added = _made(heading)
    for known, key, entry in added:
        monkeypatch.setitem(known, key, entry)
    return module
