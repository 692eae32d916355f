"""Hyperparameters of any method as options of the command line, read from the classes in `METHODS`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import tyro

from drjax.dr import METHODS, SCALES

_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def fields_of(method: str) -> dict[str, dataclasses.Field]:
    """The hyperparameters of a method by name, without `n_components`, which every command takes by itself."""
    fields = dataclasses.fields(METHODS[method])
    return {field.name: field for field in fields if field.init and field.name != "n_components"}


def typed(method: str, options: Any) -> dict[str, Any]:
    """The hyperparameters that were given, as values of their types.

    Args:
        method: Key of `METHODS`.
        options: An `Options`: text by hyperparameter, None where not given.

    Raises:
        ValueError: one that the method does not have, text that is no value of its type, or one of a method that is not
            stated.
    """
    if method not in METHODS:
        for name, text in vars(options).items():
            if text is not None:
                raise ValueError(
                    f"{flag(name)} must be given with the method that it is of, got it alone: pass --method"
                )
        return {}
    fields, hints = fields_of(method), typing.get_type_hints(METHODS[method])
    found = {}
    for name, text in vars(options).items():
        if text is None:
            continue
        if name not in fields:
            own = ", ".join(map(flag, fields)) or "no options"
            raise ValueError(f"{flag(name)} must be an option of the method, got it for {method!r}, which has {own}")
        found[name] = _value(name, text, hints[name])
    return found


@contextmanager
def hinted(method: str) -> Generator[None]:
    """Adds to an error about a hyperparameter by which option it is set."""
    try:
        yield
    except ValueError as error:
        name = str(error).split(" ", 1)[0]
        if method not in METHODS or (name not in fields_of(method) and name != "n_components"):
            raise
        raise ValueError(f"{error}: pass another {flag(name)}") from error


def flag(name: str) -> str:
    """The option of a hyperparameter."""
    return f"--{name.replace('_', '-')}"


def _value(name: str, text: str, hint: Any) -> Any:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    kinds = typing.get_args(hint) if is_union else (hint,)
    if type(None) in kinds and text.lower() == "none":
        return None
    kinds = [kind for kind in (bool, int, float, str) if kind in kinds]
    for kind in kinds:
        try:
            return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"{flag(name)} must be {' or '.join(_KINDS[kind] for kind in kinds)}, got {text!r}")


def _help(name: str) -> str:
    """What each method that has the hyperparameter says of it, and its default there."""
    texts: dict[str, list[str]] = {}
    for method in METHODS:
        field = fields_of(method).get(name)
        if field is not None:
            texts.setdefault(f"{_described(method, name)} Default {field.default}.", []).append(method)
    return " ".join(f"{', '.join(methods)}: {text}" for text, methods in texts.items())


def _described(method: str, name: str) -> str:
    """The entry of a hyperparameter under "Attributes:" in the docstring of the method."""
    text = inspect.getdoc(METHODS[method]) or ""
    found = re.search(rf"^    {name}: (.*(?:\n {{8}}.*)*)", text, flags=re.MULTILINE)
    return " ".join(found[1].split()).replace("`", "") if found else ""


def _make() -> type:
    names = dict.fromkeys(name for method in METHODS for name in fields_of(method))
    kinds = [
        (name, Annotated[str | None, tyro.conf.arg(help=_help(name), metavar="VALUE", help_behavior_hint="")])
        for name in names
    ]
    none = [(name, kind, dataclasses.field(default=None)) for name, kind in kinds]
    return dataclasses.make_dataclass("Options", none, frozen=True, kw_only=True)


Options: Any = _make()
"""A dataclass with every hyperparameter of every method: text, or None where not given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps around the method.

    Attributes:
        scale: Steps on the records before the method, in their order.
        first_pca: Principal components that the method is given in place of the records; none for the records.
        whiten: Whether coordinates are scaled to unit variance.
    """

    scale: Annotated[tuple[str, ...], tyro.conf.arg(metavar=f"{{{','.join(SCALES)}}}...")] = ()
    first_pca: int | None = None
    whiten: bool = False


StepOptions = Annotated[Steps, tyro.conf.arg(name="")]
"""Annotation of a command's parameter that takes steps around the method as options of their own."""

MethodOptions = Annotated[Any, tyro.conf.arg(name="", constructor=Options)]
"""Annotation of a command's parameter that takes them all as options of their own."""
