"""Published maps of many kinds, made by the libraries themselves: what the attacks leave, and what they say of it.

    python -m experiments.pipelines.run                  # four data sets, twenty kinds of maps, 199 known records
    python -m experiments.pipelines.run --scale smoke    # one table, four kinds, in a minute

A cell is one kind of map of one data set. Its targets share the known records; each is in a map of its own. The attack
is told how the map was made; of the first maps it is also asked what the records show of it (`recognise`). Errors are
in units of the known records' features, constant ones left out, and over those of the mean record.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from drjax.attacks import certificate
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.recognition import recognise
from drjax.attacks.recognition.agreement import Stated, agreeing
from drjax.attacks.recognition.belief import Belief
from drjax.attacks.registry import ATTACKS, answer
from drjax.core import validate
from drjax.core.types import DRMethod, Reconstruction, Status, count_status
from drjax.reports import records
from drjax.reports.ladder import number, percent
from experiments import command
from experiments.cells import Cell, Computed, Group, LeftOut, Line, by, cell_of
from experiments.pipelines.releases import RELEASES, Release, drawn, made, sources, threat_of
from experiments.pipelines.report import to_markdown
from experiments.sweep import RESULTS, Asked, Sweep, cell_name

REFUSED = np.uint32(Status.MISFIT | Status.NOT_CONVERGED)
"""Statuses of answers that nobody should rely on."""

NINE_TENTHS = 1.6449
"""Standard deviations about a normal mean that hold 90%."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        data: Keys of `releases.TABLES`, or names of data sets as `drjax.data.load` takes them.
        maps: Keys of `RELEASES`.
        n_known: Records that the adversary knows; fewer where a set is smaller.
        n_public: Other records of the same kind that it has, where the attack cannot do without.
        targets: Records attacked, each in a map of its own.
        dear_targets: Targets of attacks that take seconds each, the first ones.
        recognised: Maps of a cell that are to be recognised, the first ones.
        seed: Seed of the draws, the maps and the attacks.
    """

    data: tuple[str, ...] = ("breast cancer", "census", "adult", "digits")
    maps: tuple[str, ...] = tuple(RELEASES)
    n_known: int = 199
    n_public: int = 300
    targets: int = 40
    dear_targets: int = 40
    recognised: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        for name in self.maps:
            validate.one_of(RELEASES, maps=name)
        validate.integer(n_known=self.n_known, targets=self.targets, dear_targets=self.dear_targets)
        validate.integer(minimum=0, n_public=self.n_public, recognised=self.recognised, seed=self.seed)


SMOKE = Config(
    data=("breast cancer",),
    maps=("PCA", "StandardScaler, PCA", "PCA whitened", "MDS"),
    n_known=60,
    targets=4,
    dear_targets=2,
    recognised=1,
)


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """A cell of every kind of map of every data set, those first that take least."""
    config = asked.config
    rows = sorted(enumerate(config.maps), key=lambda row: RELEASES[row[1]].is_dear)
    for place, kind in rows:
        for i, name in enumerate(config.data):
            cell = cell_of(cell_name(place, i, kind, name), map=kind, data=name)
            yield Group(cells=(cell,), compute=functools.partial(_compute, config))


def _compute(config: Config, missing: Sequence[Cell]) -> Iterator[Computed]:
    for cell in missing:
        release = RELEASES[str(cell.fields["map"])]
        known, targets, others = drawn(str(cell.fields["data"]), config.n_known, config.targets, config.seed)
        targets = targets[: config.dear_targets] if release.is_dear else targets
        coords = made(release, known, list(targets), config.seed)
        key, attack = jax.random.key(config.seed), ATTACKS["embedding"][release.attack]
        threat = threat_of(key, release, known, coords, None)
        reason = attack.fits(threat)
        if reason is not None and config.n_public:
            threat = threat_of(key, release, known, coords, others[: config.n_public])
            reason = attack.fits(threat)
        if reason is not None:
            yield cell, LeftOut(f"the attack {reason} (--n-public)")
            continue
        with jax.enable_x64(True):
            yield (
                cell,
                {
                    "n_known": len(known),
                    "n_public": 0 if threat.public is None else len(threat.public),
                    "n_features": known.shape[1],
                    **attacked(key, release, threat, targets),
                    **_recognised(key, release, known, targets, coords, config.recognised),
                },
            )


def attacked(key: jax.Array, release: Release, threat: EmbeddingThreat, targets: np.ndarray) -> dict[str, Any]:
    """How far the attack's answers are from the targets, and what it says of them."""
    known = threat.known
    begun = time.perf_counter()
    found = threat.settled(certificate.checked(threat, answer(ATTACKS["embedding"][release.attack], key, threat)))
    seconds = time.perf_counter() - begun
    unit = known.std(axis=0)
    varies = unit > 1e-9 * np.abs(known).max(axis=0)

    def errors(x: np.ndarray) -> np.ndarray:
        return (((x - targets)[:, varies] / unit[varies]) ** 2).mean(axis=1)

    error, mean = errors(np.asarray(found.x)), errors(known.mean(axis=0))
    status = np.asarray(found.status, np.uint32)
    is_ok, is_refused = status == 0, (status & REFUSED) != 0
    expected = found.expected_mse
    squared = ((np.asarray(found.x) - targets) ** 2).mean(axis=1)
    return {
        "n_targets": len(targets),
        "error": float(error.mean() / mean.mean()),
        "error_median": float(np.median(error / mean)),
        "ok": float(is_ok.mean()),
        "answered": float((~is_refused).mean()),
        "worse_ok": int((is_ok & (error > mean)).sum()),
        "worse_answered": int((~is_refused & (error > mean)).sum()),
        # Of a calibrated attack about 1, in the mean over its answers.
        "calibration": None
        if expected is None or is_refused.all()
        else float(squared[~is_refused].mean() / max(float(np.mean(expected[~is_refused])), 1e-300)),
        "coverage": _coverage(found, targets, varies, ~is_refused),
        "errors": (error / mean).tolist(),
        "statuses": status.tolist(),
        "status_counts": count_status(status),
        "seconds_per_target": seconds / len(targets),
    }


def _coverage(found: Reconstruction, targets: np.ndarray, varies: np.ndarray, which: np.ndarray) -> float | None:
    """Share of features of answers `which` that are within the 90% of a normal error as it is expected of each."""
    if found.feature_mse is None or not which.any():
        return None
    limit = NINE_TENTHS * np.sqrt(np.asarray(found.feature_mse))
    return float((np.abs(np.asarray(found.x) - targets) <= limit)[which][:, varies].mean())


def _recognised(
    key: jax.Array, release: Release, known: np.ndarray, targets: np.ndarray, coords: np.ndarray, count: int
) -> dict[str, Any]:
    """Of how many of the first maps the records show how they were made."""
    count, right, beliefs = min(count, len(targets)), 0, []
    for x, own in zip(targets[:count], coords, strict=False):
        belief = recognise(key, known, own, decimals=release.decimals)
        right += is_right(belief, release.method, np.concatenate([x[None], known]))
        beliefs.append(belief.title)
    return {"n_recognised": count, "recognised": right, "beliefs": beliefs}


def is_right(belief: Belief, truth: DRMethod, x: np.ndarray) -> bool:
    """Whether a belief, or what the release does not tell from it, is how a map of records (n, d) was made."""
    return agreeing(belief, Stated.whole(truth), x) is not None


def _said(line: Line) -> str:
    return (
        f"{line['map']}, {line['data']}: {number(line['error'])} of the mean record's error, {percent(line['ok'])} OK, "
        f"{line['worse_ok']} OK and worse, {line['recognised']} of {line['n_recognised']} recognised, "
        f"{line['seconds_per_target']:.2g} s a target"
    )


SWEEP = Sweep(
    name="pipelines",
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
