"""Are drjax's t-SNE and UMAP the reference libraries' in distribution? Equivalence tests and a classifier.

    python -m experiments.equivalence.run                  # MNIST: 200 sets of 100, 60 of 500 records for each method
    python -m experiments.equivalence.run --scale smoke    # digits: the same code in about a minute

Both methods are chaotic, so that coordinates cannot be compared. Every data set is embedded by drjax and by the
reference, each by its own random start, and what the tests take of the pair is kept when it is done; the same command
goes on with an interrupted run. Tests of a method at a size are one line of `results.jsonl`. Margins and figures:
README.md in this folder.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from joblib import Parallel, delayed
from scipy.spatial.distance import cdist, pdist

from drjax.core import host, validate
from drjax.core.statistics import mean_interval, share_interval
from drjax.core.types import DRMethod
from drjax.data import load
from drjax.dr import TSNE, UMAP
from drjax.dr.quality import trustworthiness
from drjax.reports import records
from experiments import command
from experiments.cells import Cell, Computed, Group, by, cell_of
from experiments.equivalence.report import to_markdown
from experiments.sweep import RESULTS, Asked, Sweep, cell_name

PAIRS = "pairs.jsonl"
"""Record file whose cells are the pairs of maps; an interrupted run goes on with them."""

N_NEIGHBORS = 5
"""Of trustworthiness."""

MARGINS = {"objective": 0.02, "n_iter": 0.05, "trustworthiness": 0.005}
"""Largest mean difference that counts as none: of the first two as a share of the reference's mean."""

TREES = 500
"""Trees of the forest that tells maps apart."""

LEVEL = 0.05
"""Of each of the two one-sided tests: the interval shown has 1 - 2 LEVEL."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        data: Name of a data set or path of a file, as `drjax.data.load` takes it.
        method: Methods to compare.
        n: Records per data set.
        n_sets: Data sets of each size, drawn without replacement from `data` independently of each other.
        seed: Of the draws; data set i has reference seed i.
    """

    data: str = "mnist"
    method: tuple[str, ...] = ("tsne", "umap")
    n: tuple[int, ...] = (100, 500)
    n_sets: tuple[int, ...] = (200, 60)
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        for name in self.method:
            validate.one_of(("tsne", "umap"), method=name)
        if len(self.n) != len(self.n_sets):
            raise ValueError(f"n_sets must have one entry for each of n = {self.n}, got {self.n_sets}")
        for n, n_sets in zip(self.n, self.n_sets, strict=True):
            validate.integer(minimum=16, n=n)
            validate.integer(minimum=2, n_sets=n_sets)
        validate.integer(minimum=0, seed=self.seed)


SMOKE = Config(data="digits", n=(40,), n_sets=(12,))


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The tests of each method at each size, whose data sets the reference embeds in processes of its own."""
    config = asked.config
    for place, name in enumerate(config.method):
        for n, n_sets in zip(config.n, config.n_sets, strict=True):
            cell = cell_of(cell_name(place, n, name), kind="stage", method=name, n=n)
            compute = functools.partial(_compute, config, asked.out / PAIRS, name, n, n_sets)
            yield Group(cells=(cell,), compute=compute, share=n_sets * n)


def _compute(config: Config, file: Path, name: str, n: int, n_sets: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    names = [cell_name(n, i, name) for i in range(n_sets)]
    left = [i for i, own in enumerate(names) if records.find_record(file, "stage", own) is None]
    data = load(config.data)
    sets = [_draw(data.x, n, config.seed, i) for i in left]
    with Parallel(n_jobs=host.n_cores(), return_as="generator") as pool:
        theirs: Any = pool(delayed(_reference)(name, x, i) for i, x in zip(left, sets, strict=True))
        for i, x, reference in zip(left, sets, theirs, strict=True):
            records.put_record(file, "stage", names[i], **_pair(name, x, i, *reference))
    pairs = [found for own in names if (found := records.find_record(file, "stage", own)) is not None]
    for cell in missing:
        yield cell, summary(pairs)


def summary(pairs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tests of one method at one size, from the records of its pairs."""
    tests = {}
    for measure, margin in MARGINS.items():
        if measure in pairs[0]["ours"]:
            ours, theirs = (np.array([r[side][measure] for r in pairs]) for side in ("ours", "theirs"))
            limit = margin if measure == "trustworthiness" else margin * abs(theirs.mean())
            tests[measure] = {"ours": ours.mean(), "theirs": theirs.mean(), **equivalence(ours - theirs, limit)}
    told_apart = [
        {"side": side, "view": view}
        | two_sample_accuracy(*(np.array([r[s][view] for r in pairs]) for s in (side, "theirs")))
        for side in ("ours", "control")
        for view in VIEWS
    ]
    return {"n_sets": len(pairs), "tests": tests, "classifier": told_apart}


def equivalence(differences: np.ndarray, margin: float) -> dict[str, Any]:
    """Two one-sided t-tests that the mean of paired differences lies within +-margin.

    Returns:
        margin; difference, its mean; low and high, ends of its interval at 1 - 2 LEVEL; equivalent, both tests reject.
    """
    mean, low, high = mean_interval(differences, level=1 - 2 * LEVEL)
    return {
        "margin": margin,
        "difference": mean,
        "low": low,
        "high": high,
        "equivalent": bool(-margin < low and high < margin),
    }


def two_sample_accuracy(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """How often a random forest says whose a map is; a pair of maps is never split between training and test.

    Args:
        ours: (m, features).
        theirs: (m, features), of the same data sets.

    Returns:
        accuracy, and the ends low and high of its Clopper-Pearson interval at 95%: at chance, one half is inside.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import GroupKFold, cross_val_predict

    m = len(ours)
    x, y = np.concatenate([ours, theirs]), np.repeat([0, 1], m)
    forest = RandomForestClassifier(n_estimators=TREES, min_samples_leaf=3, random_state=0, n_jobs=1)
    folds = GroupKFold(n_splits=min(10, m))
    right = int(np.sum(cross_val_predict(forest, x, y, groups=np.tile(np.arange(m), 2), cv=folds) == y))
    accuracy, low, high = share_interval(right, 2 * m)
    return {"accuracy": accuracy, "low": low, "high": high}


def features(coords: np.ndarray) -> np.ndarray:
    """What a classifier sees of a map (n, 2): shape, size, place, orientation and crowding, not its order."""
    centred = coords - coords.mean(axis=0)
    distances = cdist(coords, coords)
    np.fill_diagonal(distances, np.inf)
    levels = np.linspace(0.02, 0.98, 13)
    spread = centred.std(axis=0)
    return np.concatenate(
        [
            np.log(np.quantile(pdist(coords), levels)),
            np.quantile(np.log(distances.min(axis=1) + 1e-6), levels),
            np.quantile(np.linalg.norm(centred, axis=1), levels),
            spread,
            coords.mean(axis=0),
            ((centred / spread) ** 3).mean(axis=0),
            ((centred / spread) ** 4).mean(axis=0),
            [np.prod(centred / spread, axis=1).mean()],
        ]
    )


def upright(coords: np.ndarray) -> np.ndarray:
    """A map (n, 2) in the one of its places and reflections that is centred and has a positive skew along both axes."""
    centred = coords - coords.mean(axis=0)
    return centred * np.where((centred**3).sum(axis=0) < 0, -1, 1)


VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"as released": np.asarray, "upright": upright}
"""How a classifier sees a map. t-SNE starts from the same principal components, signs included. Of UMAP's start the
sign is drjax's convention here and whatever ARPACK ends with there; only the upright view leaves it out.
"""


def _draw(x: np.ndarray, n: int, seed: int, index: int) -> np.ndarray:
    chosen = np.random.default_rng([seed, n, index]).choice(len(x), n, replace=False)
    return np.asarray(x[chosen], np.float32)


def _perplexity(n: int) -> float:
    return min(30.0, (n - 1) / 3)


def _ours(name: str, n: int, share: float = 1.0) -> DRMethod:
    """drjax's method, with a share of the usual iterations."""
    if name == "tsne":
        return TSNE(perplexity=_perplexity(n), max_iter=round(1000 * share))
    return UMAP(n_epochs=round(500 * share))


@functools.cache
def _fit() -> Any:
    return jax.jit(lambda method, key, x: method.fit_transform(key, x))


def _pair(name: str, x: np.ndarray, index: int, theirs: np.ndarray, objective: float, n_iter: int) -> dict[str, Any]:
    key = jax.random.key(index)
    embedding = _fit()(_ours(name, len(x)), key, x)
    control = _fit()(_ours(name, len(x), 0.7), key, x)
    sides = {"ours": np.asarray(embedding.coords), "theirs": theirs, "control": np.asarray(control.coords)}
    pair: dict[str, Any] = {
        side: {"trustworthiness": _trust(x, coords)}
        | {view: features(show(coords.astype(np.float64))).tolist() for view, show in VIEWS.items()}
        for side, coords in sides.items()
    }
    if name == "tsne":  # UMAP's number of updates is fixed, and umap-learn does not say its cross entropy
        pair["ours"] |= {"objective": float(embedding.objective), "n_iter": int(embedding.n_iter)}
        pair["theirs"] |= {"objective": objective, "n_iter": n_iter}
    return pair | {"status": int(embedding.status)}


def _trust(x: np.ndarray, coords: np.ndarray) -> float:
    return float(trustworthiness(x, np.asarray(coords, np.float32), n_neighbors=N_NEIGHBORS))


def _reference(name: str, x: np.ndarray, seed: int) -> tuple[np.ndarray, float, int]:
    """Coordinates, divergence and iterations of the reference library; runs in a process of its own."""
    import threadpoolctl

    with threadpoolctl.threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap-learn's on fixed seeds and one thread, which are wanted
        if name == "tsne":
            from sklearn.manifold import TSNE as ReferenceTSNE

            fitted = ReferenceTSNE(method="exact", perplexity=_perplexity(len(x)), random_state=seed).fit(x)
            return np.asarray(fitted.embedding_), float(fitted.kl_divergence_), int(fitted.n_iter_) + 1
        import umap

        coords = umap.UMAP(n_epochs=500, random_state=seed, n_jobs=1).fit_transform(x)
        return np.asarray(coords), float("nan"), 500


SWEEP = Sweep(
    name="equivalence",
    about=__doc__,
    scales={"smoke": SMOKE, "cpu": Config()},
    plain="cpu",
    groups=groups,
    sources=lambda asked, _: load(asked.config.data),
    identity=by("method", "n"),
    said=lambda line: f"{line['method']}, n = {line['n']}: {line['n_sets']} data sets",
    options=Config(),
    configured=command.overriding(Config()),
    report=lambda out, _: to_markdown(records.read_records(out / RESULTS)),
)


if __name__ == "__main__":
    command.main(SWEEP)
