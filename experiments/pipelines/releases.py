"""What people publish: twenty kinds of maps, each as a library makes it and as drjax believes it to be made."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import umap
from scipy.spatial.distance import pdist, squareform
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.manifold import MDS, TSNE, Isomap
from sklearn.preprocessing import MinMaxScaler, Normalizer, RobustScaler, StandardScaler

from drjax import dr
from drjax.attacks.attack import EmbeddingThreat, Shadows
from drjax.attacks.shadow_sets import shadows_of, stand_in_shadows
from drjax.core.types import DRMethod
from drjax.data import Dataset, load
from drjax.dr import FirstPCA, MinMax, Pipeline, Robust, Standardise, UnitRows, UnitVariance

Fit = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class Release:
    """One kind of published map.

    Attributes:
        fit: Function that makes the map (n, k) of records (n, d) and a seed, by a library.
        method: How it is made, in drjax's terms.
        attack: Name of the attack that is run on it.
        decimals: Decimals that coordinates are rounded to; None if they are not.
    """

    fit: Fit
    method: DRMethod
    attack: str
    decimals: int | None = None

    @property
    def is_dear(self) -> bool:
        """Whether the attack takes seconds a target."""
        return self.attack not in ("behind-steps", "closed-form-known")


def in_turn(*steps: Any) -> Fit:
    """Estimators in turn; those that draw are given the seed."""

    def fit(x: np.ndarray, seed: int) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in steps:
                made = step() if "random_state" not in step().get_params() else step().set_params(random_state=seed)
                x = made.fit_transform(x)
        return np.asarray(x)

    return fit


def _pca(
    scaler: Any = None, k: int = 2, *, whiten: bool = False, decimals: int | None = None, dtype: Any = float
) -> Fit:
    own = in_turn(*([] if scaler is None else [scaler]), lambda: PCA(k, whiten=whiten))

    def fit(x: np.ndarray, seed: int) -> np.ndarray:
        scores = own(x, seed).astype(dtype)
        return scores if decimals is None else np.round(scores, decimals)

    return fit


def _scores(*before: Any, k: int = 2, whiten: bool = False) -> Pipeline:
    return Pipeline(before=before, method=dr.PCA(n_components=k), after=(UnitVariance(),) if whiten else ())


def _manhattan_mds(x: np.ndarray, seed: int) -> np.ndarray:
    own = lambda: MDS(dissimilarity="precomputed", n_init=1, init="random")  # noqa: E731
    return in_turn(own)(squareform(pdist(x, "cityblock")), seed)


STANDARD, MIN_MAX = Standardise(), MinMax()

RELEASES = {
    "PCA": Release(_pca(), dr.PCA(), "closed-form-known"),
    "StandardScaler, PCA": Release(_pca(StandardScaler), _scores(STANDARD), "behind-steps"),
    "StandardScaler, PCA, k = 1": Release(_pca(StandardScaler, 1), _scores(STANDARD, k=1), "behind-steps"),
    "StandardScaler, PCA, k = 10": Release(_pca(StandardScaler, 10), _scores(STANDARD, k=10), "behind-steps"),
    "StandardScaler, PCA whitened": Release(
        _pca(StandardScaler, whiten=True), _scores(STANDARD, whiten=True), "behind-steps"
    ),
    "StandardScaler, PCA, 3 decimals": Release(
        _pca(StandardScaler, decimals=3), _scores(STANDARD), "behind-steps", decimals=3
    ),
    "StandardScaler, PCA, float32": Release(_pca(StandardScaler, dtype=np.float32), _scores(STANDARD), "behind-steps"),
    "MinMaxScaler, PCA": Release(_pca(MinMaxScaler), _scores(MIN_MAX), "behind-steps"),
    "RobustScaler, PCA": Release(_pca(RobustScaler), _scores(Robust()), "behind-steps"),
    "Normalizer, PCA": Release(_pca(Normalizer), _scores(UnitRows()), "behind-steps"),
    "PCA whitened": Release(_pca(whiten=True), _scores(whiten=True), "behind-steps"),
    "MDS": Release(in_turn(lambda: MDS(n_init=1, init="random")), dr.MDS(), "stationarity"),
    "StandardScaler, MDS": Release(
        in_turn(StandardScaler, lambda: MDS(n_init=1, init="random")),
        Pipeline(before=(STANDARD,), method=dr.MDS()),
        "inversion",
    ),
    "MDS, manhattan": Release(_manhattan_mds, dr.MDS(metric="manhattan"), "stationarity"),
    "StandardScaler, Isomap": Release(
        in_turn(StandardScaler, Isomap), Pipeline(before=(STANDARD,), method=dr.Isomap()), "moving-geodesics"
    ),
    "Isomap, cosine": Release(in_turn(lambda: Isomap(metric="cosine")), dr.Isomap(metric="cosine"), "geodesics"),
    "StandardScaler, t-SNE": Release(
        in_turn(StandardScaler, TSNE), Pipeline(before=(STANDARD,), method=dr.TSNE()), "inversion-behind-steps"
    ),
    "t-SNE, perplexity 10": Release(in_turn(lambda: TSNE(perplexity=10)), dr.TSNE(perplexity=10.0), "inversion"),
    "StandardScaler, PCA(10), t-SNE": Release(
        in_turn(StandardScaler, lambda: PCA(10), TSNE),
        Pipeline(before=(STANDARD, FirstPCA(n_components=10)), method=dr.TSNE()),
        "inversion-behind-steps",
    ),
    "UMAP, cosine": Release(in_turn(lambda: umap.UMAP(metric="cosine")), dr.UMAP(metric="cosine"), "invariant"),
}
"""The kinds of maps by name."""


def _file(read: Callable[[], Any]) -> Callable[[], np.ndarray]:
    return lambda: np.asarray(read().data, np.float64)


TABLES: dict[str, Callable[[], np.ndarray]] = {
    "breast cancer": _file(datasets.load_breast_cancer),
    "wine": _file(datasets.load_wine),
    "diabetes": _file(lambda: datasets.load_diabetes(scaled=False)),
}
"""Tables that come with scikit-learn, as they are; every other name is one of `drjax.data.load`."""


def records_of(name: str) -> np.ndarray:
    """Records (n, d) of a data set, float64.

    Raises:
        ValueError, FileNotFoundError: what `drjax.data.load` raises.
    """
    return TABLES[name]() if name in TABLES else np.asarray(load(name).x, np.float64)


def drawn(name: str, n_known: int, n_targets: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Known records, targets and the others of a data set, all different.

    Args:
        name: Key of `TABLES`, or what `drjax.data.load` takes.
        n_known: Records that the adversary knows; fewer where the set has not as many beside the targets.
        n_targets: Targets.
        seed: Seed of the order.
    """
    x = np.unique(records_of(name), axis=0)
    x = x[np.random.default_rng(seed).permutation(len(x))]
    known, targets, others = np.split(x, np.cumsum([min(n_known, len(x) - n_targets), n_targets]))
    return known, targets, others


def made(release: Release, known: np.ndarray, targets: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """Maps (m, n, k) of each target with the known records, the target first; each has a seed of its own."""
    return np.stack([release.fit(np.concatenate([x[None], known]), seed + i) for i, x in enumerate(targets)])


def sources(names: Iterable[str]) -> dict[str, Dataset]:
    """Data sets that are read from `drjax.data`, for their provenance."""
    return {name: load(name) for name in names if name not in TABLES}


def threat_of(
    key: jax.Array,
    release: Release,
    known: np.ndarray,
    coords: np.ndarray,
    public: np.ndarray | None,
    *,
    n_validation: int = 0,
) -> EmbeddingThreat:
    """What the adversary has of maps (m, n, k) of a kind, told how they were made.

    Args:
        key: PRNG key of shadow releases.
        release: Kind of the maps.
        known: (n-1, d).
        coords: (m, n, k), targets in row 0.
        public: (s, d) other records; None if the adversary has none.
        n_validation: How many of them, the last ones, are kept to try attacks on.
    """
    dtype = "float32" if coords.dtype == np.float32 else "float64"

    @functools.cache
    def shadows() -> Shadows:
        rounding = {"decimals": release.decimals, "dtype": dtype}
        if public is None:
            return stand_in_shadows(key, release.method, known, **rounding)
        return shadows_of(key, release.method, known, public, n_validation=n_validation, **rounding)

    return EmbeddingThreat(
        method=release.method,
        known=known,
        coords=coords,
        shadows=shadows,
        public=public,
        decimals=release.decimals,
        dtype=dtype,
        alike=False,
    )
