"""How often the 90% intervals of reconstructed features hold the truth, on maps that the libraries made.

    python -m experiments.intervals.run                  # four data sets, ten attacks, 199 known records, an hour
    python -m experiments.intervals.run --scale smoke    # one table, two attacks, in a minute

A cell is one attack on one kind of map of one data set. Its targets share the known and the public records; each is in
a map of its own. The attack is told how the map was made. Features that take more than 20 values and whose error is
predicted above rounding are counted apart from the others, constant ones not at all.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
import umap
from sklearn.decomposition import PCA
from sklearn.manifold import MDS, TSNE, Isomap
from sklearn.preprocessing import StandardScaler
from sklearn.random_projection import SparseRandomProjection

from drjax import dr
from drjax.attacks import certificate, intervals, practice
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.registry import ATTACKS, answer
from drjax.core import validate
from drjax.dr import Pipeline, Standardise
from drjax.reports import records
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.intervals.report import share_words, to_markdown
from experiments.pipelines.releases import Release, drawn, in_turn, made, sources, threat_of
from experiments.sweep import RESULTS, Asked, Sweep, cell_name


def _rounded(*steps: Any) -> Any:
    own = in_turn(*steps)
    return lambda x, seed: np.round(own(x, seed), 3)


def _open_tsne(x: np.ndarray, seed: int) -> np.ndarray:
    import openTSNE  # of the extra "bench"

    return np.asarray(openTSNE.TSNE(random_state=seed, n_jobs=2).fit(x))


_UMAP, _TSNE = in_turn(umap.UMAP), in_turn(TSNE)

RELEASES = {
    "PCA, 3 decimals": Release(_rounded(lambda: PCA(2)), dr.PCA(), "closed-form", decimals=3),
    "StandardScaler, PCA, 3 decimals": Release(
        _rounded(StandardScaler, lambda: PCA(2)),
        Pipeline(before=(Standardise(),), method=dr.PCA()),
        "behind-steps",
        decimals=3,
    ),
    "random projection": Release(
        in_turn(lambda: SparseRandomProjection().set_params(n_components=2)),
        dr.SparseRandomProjection(),
        "srp-closed-form",
    ),
    "UMAP": Release(_UMAP, dr.UMAP(), "invariant"),
    "UMAP, by a network": Release(_UMAP, dr.UMAP(), "residual-network"),
    "Isomap": Release(in_turn(Isomap), dr.Isomap(), "geodesics"),
    "MDS": Release(in_turn(lambda: MDS(n_init=1, init="random")), dr.MDS(), "stationarity"),
    "t-SNE, by affinities": Release(_TSNE, dr.TSNE(), "affinities"),
    "t-SNE": Release(_TSNE, dr.TSNE(), "inversion"),
    "t-SNE by openTSNE": Release(_open_tsne, dr.TSNE(), "inversion"),
}
"""Kinds of maps and the attacks on them, those first that take least."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        data: Keys of `releases.TABLES`, or names of data sets as `drjax.data.load` takes them.
        maps: Keys of `RELEASES`.
        n_known: Records that the adversary knows.
        n_public: Other records of the same kind that it has; fewer where a set is smaller.
        targets: Records attacked, each in a map of its own.
        seed: Seed of the draws, the maps and the attacks.
    """

    data: tuple[str, ...] = ("breast cancer", "census", "adult", "digits")
    maps: tuple[str, ...] = tuple(RELEASES)
    n_known: int = 199
    n_public: int = 300
    targets: int = 40
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        for name in self.maps:
            validate.one_of(RELEASES, maps=name)
        validate.integer(n_known=self.n_known, n_public=self.n_public, targets=self.targets)
        validate.integer(minimum=0, seed=self.seed)


SMOKE = Config(data=("breast cancer",), maps=("PCA, 3 decimals", "UMAP"), n_known=60, n_public=60, targets=4)


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """A cell of every kind of map of every data set, those first that take least."""
    config = asked.config
    for place, kind in enumerate(config.maps):
        for i, name in enumerate(config.data):
            cell = cell_of(cell_name(place, i, kind, name), map=kind, data=name)
            yield Group(cells=(cell,), compute=functools.partial(_compute, config))


def _compute(config: Config, missing: Sequence[Cell]) -> Iterator[Computed]:
    for cell in missing:
        release = RELEASES[str(cell.fields["map"])]
        known, targets, others = drawn(str(cell.fields["data"]), config.n_known, config.targets, config.seed)
        coords = made(release, known, list(targets), config.seed)
        public, key = others[: config.n_public], jax.random.key(config.seed)
        n = max(2, len(public) // 10)
        threat = threat_of(key, release, known, coords, public, n_validation=n)
        with jax.enable_x64(True):
            yield cell, _measured(key, release, threat, targets)


def _measured(key: jax.Array, release: Release, threat: EmbeddingThreat, targets: np.ndarray) -> dict[str, Any]:
    """Coverage and width of the intervals, as predicted and as practice releases correct them."""
    attack, begun = ATTACKS["embedding"][release.attack], time.perf_counter()
    found = threat.settled(certificate.checked(threat, answer(attack, key, threat)))
    learned = practice.calibration(key, attack, threat)
    seconds = time.perf_counter() - begun
    x, public = np.asarray(found.x), np.asarray(threat.public)
    unit = np.asarray(public.std(axis=0))
    varies = np.asarray(unit > 1e-9 * np.abs(public).max(axis=0))
    n_values = np.array([len(np.unique(column)) for column in public.T])
    alone = intervals.with_intervals(found, threat, intervals.Calibration(feature_mse=learned.feature_mse))
    above = np.sqrt(alone.feature_mse) > intervals.FLOOR * unit
    is_usable: np.ndarray = np.isfinite(x).all(axis=1, keepdims=True) & varies
    is_counted: np.ndarray = is_usable & above & (n_values > intervals.FEW_VALUES)
    fields: dict[str, Any] = {
        "n_targets": len(targets),
        "n_counted": int(is_counted.sum()),
        "n_elsewhere": int((is_usable & ~is_counted).sum()),
        "practice_releases": learned.n_releases,
        "factors": learned.factor,
        "error": float(((x - targets)[:, varies] ** 2 / unit[varies] ** 2).mean()),
        "ok": float((np.asarray(found.status) == 0).mean()),
        "seconds": seconds,
    }
    for name, ends in (("", intervals.intervals(found, threat, learned)), ("_alone", np.asarray(alone.interval))):
        is_inside = (ends[..., 0] <= targets) & (targets <= ends[..., 1])
        width = (ends[..., 1] - ends[..., 0]) / np.where(varies, unit, 1)
        fields[f"coverage{name}"] = float(is_inside[is_counted].mean()) if is_counted.any() else None
        fields[f"width{name}"] = float(width[is_counted].mean()) if is_counted.any() else None
        rest = is_usable & ~is_counted
        fields[f"elsewhere{name}"] = float(is_inside[rest].mean()) if rest.any() else None
    return fields


def _said(line: Line) -> str:
    return (
        f"{line['map']}, {line['data']}: {share_words(line['coverage'])} of {line['n_counted']} inside, "
        f"{share_words(line['elsewhere'])} of {line['n_elsewhere']} elsewhere, {line['seconds']:.2g} s"
    )


SWEEP = Sweep(
    name="intervals",
    about=__doc__,
    scales={"smoke": SMOKE, "cpu": Config()},
    plain="cpu",
    groups=groups,
    sources=lambda asked, _: sources(asked.config.data),
    identity=by("map", "data"),
    said=_said,
    options=Config(),
    configured=command.overriding(Config()),
    report=lambda out, _: to_markdown(records.read_records(out / RESULTS)[1:]),
)


if __name__ == "__main__":
    command.main(SWEEP)
