"""Figures in the sentences of docs/bounds."""

from __future__ import annotations

from collections.abc import Sequence

from bench import part_tables, tables
from drjax.bounds import rero
from drjax.bounds.gdp import epsilon_of
from experiments.informed_adversary import pages
from experiments.markdown import Figures
from experiments.pages import report
from experiments.private_embeddings.report import ON_THE_MAP, committed

figures = Figures()


@figures
def audits() -> Sequence[float]:
    """Of mu from 0.2 to 9: the least share of it that an audit has, and epsilon at both ends; the shares of epsilon to
    mu = 2."""
    last = part_tables.last_audits()
    wide = [row for mu, row in last.items() if 0.2 <= mu <= 9]
    near = [row["epsilon_share_mean"] for mu, row in last.items() if 0.2 <= mu <= 2]
    ends = [epsilon_of(mu, 1e-5) for mu in (0.2, 9.0)]
    return min(row["mu_share_least"] for row in wide), *ends, min(near), max(near)


@figures
def exact_noise() -> Sequence[float]:
    """Microseconds a coordinate of Laplace and of Gaussian noise."""
    found = [
        tables.newest(tables.rows_of("bounds.jsonl"), name="bounds/release", noise=n) for n in ("Laplace", "Gaussian")
    ]
    return [1e6 * row["run_s"] / row["coordinates"] for row in found]


@figures
def once_in_a_thousand() -> Sequence[float]:
    """Success at kappa = 0.001 and mu = 1, at most, and what corollary 4 allows."""
    return float(rero.success_of_mu(1e-3, 1.0)), float(rero.from_zcdp(1e-3, 0.5))


@figures
def kappa() -> Sequence[float]:
    """Radius, best guess on MNIST with its interval, and the most of any guess."""
    found = report.line_of("bound", "kappa")
    return [found[name] for name in ("radius", "kappa", "lower", "upper", "upper_of_all")]


@figures
def inverted_networks() -> Sequence[float]:
    """Share of targets that inversion rebuilds at mu = 1, 30 and 100, and the bound at 1 and 3."""
    found = report.line_of("bound", "kappa")
    shares = []
    for mu in (1.0, 30.0, 100.0):
        (cell,) = (
            row
            for row in pages.committed()
            if row.get("factor") == "privacy" and row["attack"] == "inversion" and row["of"]["mu"] == mu
        )
        shares.append(sum(error <= found["radius"] for error in cell["errors"]) / len(cell["errors"]))
    return *shares, *(float(rero.success_of_mu(found["upper_of_all"], mu)) for mu in (1.0, 3.0))


@figures
def noisy_embeddings() -> Sequence[float]:
    """Best share on the noisy records at mu = 10, on the map at 100, and the bound at 5."""
    lines = committed()
    best = [
        max(
            line["success"]["estimate"]
            for line in lines
            if line["mu"] == mu and (line["attack"] in ON_THE_MAP) == is_map
        )
        for mu, is_map in ((10, False), (100, True))
    ]
    return *best, next(line["bound"] for line in lines if line["mu"] == 5)
