"""Figures of the README of `experiments.private_embeddings`."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.cells import Line
from experiments.markdown import Figures
from experiments.private_embeddings.report import ON_THE_MAP, committed

figures = Figures()


def _attacks(mu: float, *, is_map: bool) -> list[Line]:
    return [line for line in committed() if line["mu"] == mu and (line["attack"] in ON_THE_MAP) == is_map]


def _best(mu: float, *, is_map: bool) -> Line:
    return max(_attacks(mu, is_map=is_map), key=lambda line: line["success"]["estimate"])


@figures
def radius() -> Sequence[float]:
    """Mean squared error of a success."""
    return (committed()[0]["mse"],)


@figures
def success() -> Sequence[float]:
    """Of the better attack on the noisy record at mu = 10, and of the better one on the map at mu = 100."""
    return [_best(mu, is_map=is_map)["success"]["estimate"] for mu, is_map in ((10, False), (100, True))]


@figures
def bound(mu: str) -> Sequence[float]:
    """The bound at a guarantee."""
    return (_attacks(float(mu), is_map=False)[0]["bound"],)


@figures
def best_at_1() -> Sequence[float]:
    """At mu = 1: the better attack on the noisy record with its interval, and the best guess without the release."""
    line = _best(1, is_map=False)
    return *(line["success"][end] for end in ("estimate", "low", "high")), line["kappa"]


@figures
def guesses() -> Sequence[float]:
    """What no guess has more than, the best that was found, and what the formula makes of that at mu = 1."""
    line = _best(1, is_map=False)
    return line["kappa_of_all"], line["kappa"], line["estimate"]
