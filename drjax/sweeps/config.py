"""What a sweep crosses, and the cells that come of it."""

from __future__ import annotations

import dataclasses
import itertools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drjax.attacks.registry import ATTACKS
from drjax.audits import AuditConfig, choice
from drjax.core import validate
from drjax.core.parts import part_of
from drjax.core.store import key_of
from drjax.dr import METHODS

FIXED = ("data_dir", "hyperparameters", "released", "defense", "defense_scale", "options")
"""Fields of audits that a sweep does not cross: where data lie, and what only a report shows."""

LANES = 64
"""Releases of a task, where nobody says how many."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One audit of a sweep.

    Attributes:
        name: What is its own, such as "method=tsne perplexity=20".
        settings: The same as values; None for a hyperparameter that its method does not have.
        config: The audit.

    Example:
        >>> from drjax import sweeps
        >>> from drjax.audits import AuditConfig
        >>> config = sweeps.SweepConfig(base=AuditConfig(), over={"method": ("pca", "tsne"), "perplexity": (5, 50)})
        >>> [cell.name for cell in config.cells if isinstance(cell, sweeps.Cell)]  # PCA has no perplexity
        ['method=pca', 'method=tsne perplexity=5', 'method=tsne perplexity=50']
    """

    name: str
    settings: Mapping[str, Any]
    config: AuditConfig

    @property
    def key(self) -> str:
        """Name of its file."""
        return key_of(self.name)


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """Audits with settings crossed: every value of one with every value of the others.

    Attributes:
        base: What all audits have in common; hyperparameters are in `common`.
        over: Values by setting: fields of `AuditConfig`, or hyperparameters of methods. One that a method does not have
            is left out of its cells, and so is an attack that is none on it.
        common: Hyperparameters that all cells have, whose methods have them.
        lanes: Releases of a task, at most. Results do not depend on workers, and on this up to rounding.
    """

    base: AuditConfig
    over: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    common: Mapping[str, Any] = field(default_factory=dict)
    lanes: int = LANES

    def __post_init__(self) -> None:
        """Checks the values, and makes all cells once."""
        validate.integer(lanes=self.lanes)
        if self.base.released is not None or self.base.defense != "none" or self.base.options:
            name = next(n for n in ("released", "defense", "options") if getattr(self.base, n) not in (None, "none"))
            raise ValueError(
                f"{name} must be left out of a sweep, got {getattr(self.base, name)!r}: audit it by itself"
            )
        own, of_methods = _fields(), _hyperparameters()
        for name, values in self.over.items():
            if name not in own and name not in of_methods:
                named = ", ".join(sorted({*own, *of_methods}))
                raise ValueError(f"over must name fields of audits or hyperparameters ({named}), got {name!r}")
            if not values or len({repr(value) for value in values}) < len(values):
                raise ValueError(f"over must have one or more different values of {name!r}, got {values}")
        methods = self.over.get("method", (self.base.method,))
        for name in {*self.over, *self.common} - own:
            if not any(method in METHODS and name in _hyperparameters(method) for method in methods):
                raise ValueError(f"over must name hyperparameters of {' or '.join(methods)}, got {name!r}")
        _ = self.cells

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells, in the order of the values; the last setting varies first.

        Raises:
            ValueError: settings that do not go together.
        """
        found: dict[str, Cell] = {}
        for values in itertools.product(*self.over.values()):
            cell = self._cell(dict(zip(self.over, values, strict=True)))
            found.setdefault(cell.name, cell)
        return tuple(found.values())

    @property
    def types(self) -> dict[str, str]:
        """Type of every setting in the files of cells, the same in all of them, whose readers put them together."""
        return {name: _type_of(values) for name, values in self.over.items()}

    def part(self, words: str) -> tuple[Cell, ...]:
        """Every n-th cell from the i-th on, of "i/n", so that what is alike is spread over all parts.

        Raises:
            ValueError: words of another form, or i not in 1 to n.
        """
        i, n = part_of(words)
        return self.cells[i - 1 :: n]

    def _cell(self, settings: dict[str, Any]) -> Cell:
        own, method = _fields(), settings.get("method", self.base.method)
        has = _hyperparameters(method) if method in METHODS else frozenset()
        settings = {name: value if name in own or name in has else None for name, value in settings.items()}
        words = [f"{name}={_word(value)}" for name, value in settings.items() if name in own or name in has]
        fields = {name: _as_field(name, value) for name, value in settings.items() if name in own}
        further = {**self.common, **{n: v for n, v in settings.items() if n not in own}}
        fields["hyperparameters"] = {name: value for name, value in further.items() if name in has}
        name = " ".join(words) or "all"
        try:
            config = dataclasses.replace(self.base, **fields)
            if "attacks" not in self.over:
                config = _with_own_attacks(config)
            choice.check(config)
        except ValueError as error:
            raise ValueError(f"{error} (in the cell {name})") from error
        return Cell(name=name, settings=settings, config=config)


def _with_own_attacks(config: AuditConfig) -> AuditConfig:
    """Without the attacks that are none on its method, but on others; as it is if none is left."""
    usual = choice.possible(config.believed.dr_method, seed_known=config.seed_known)
    left = tuple(name for name in config.attacks if name in usual or name not in ATTACKS["embedding"])
    is_left = any(name not in usual or not usual[name].is_baseline for name in left)
    return dataclasses.replace(config, attacks=left) if is_left else config


def _type_of(values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values if value is not None}
    for name, own in (("bool", {bool}), ("int64", {int}), ("float64", {int, float})):
        if kinds <= own:
            return name
    return "string"


def _fields() -> frozenset[str]:
    """Fields of audits that can be crossed."""
    return frozenset(entry.name for entry in dataclasses.fields(AuditConfig)) - {*FIXED}


def _hyperparameters(*methods: str) -> frozenset[str]:
    """Hyperparameters of some methods, or of all."""
    kinds = [METHODS[name] for name in methods or METHODS]
    return frozenset(entry.name for kind in kinds for entry in dataclasses.fields(kind) if entry.init) - _fields()


def _as_field(name: str, value: Any) -> Any:
    """A value of a field that takes several, where one is given by itself."""
    if typing.get_type_hints(AuditConfig)[name] != tuple[str, ...] or isinstance(value, tuple):
        return value
    return () if value is None else (value,)


def _word(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
