"""What the known records show of how maps were made: of maps of drjax's kinds, and of maps that are none of these.

    python -m experiments.pipelines.recognition foreign       # 23 kinds that are none of these, ten minutes
    python -m experiments.pipelines.recognition published     # the twenty kinds of `releases`, ten minutes
    python -m experiments.pipelines.recognition pca --draws 4 --n-known 99
    python -m experiments.pipelines.recognition multiplied --data wine
    python -m experiments.pipelines.recognition mixed                    # components behind a linear map

Each says how many maps are named right, and what is believed of the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from scipy.spatial.distance import pdist, squareform
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import NMF, PCA, FactorAnalysis, FastICA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.manifold import MDS, TSNE, LocallyLinearEmbedding, SpectralEmbedding
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, RobustScaler, StandardScaler, minmax_scale, scale

from drjax import dr
from drjax.attacks.recognition import recognise
from drjax.attacks.recognition.belief import Belief
from drjax.core.types import DRMethod
from drjax.dr.pipeline.steps import Step
from experiments.markdown import markdown_table
from experiments.pipelines.releases import RELEASES, drawn, made
from experiments.pipelines.run import is_right

Fit = Callable[[np.ndarray, np.ndarray, int], Any]
"""Makes a map (n, 2) of records (n, d), beside others (s, d) of their kind, and a seed."""


def _thirds(x: np.ndarray) -> np.ndarray:
    """A label 0, 1 or 2 of each record, by thirds of the last feature that varies."""
    last = x[:, np.flatnonzero(np.ptp(x, axis=0))[-1]]
    return np.argsort(np.argsort(last, kind="stable")) * 3 // len(x)


def _bottleneck(x: np.ndarray, seed: int) -> np.ndarray:
    """What an autoencoder with two units in the middle makes of standardised records."""
    rows = scale(x)
    net = MLPRegressor(hidden_layer_sizes=(16, 2, 16), activation="tanh", max_iter=400, random_state=seed).fit(
        rows, rows
    )
    for weights, shift in zip(net.coefs_[:2], net.intercepts_[:2], strict=True):
        rows = np.tanh(rows @ weights + shift)
    return rows


def _walks(x: np.ndarray) -> np.ndarray:
    """Probabilities (n, n) of the steps of a random walk among standardised records."""
    squares = squareform(pdist(scale(x), "sqeuclidean"))
    weights = np.exp(-squares / np.median(squares))
    return weights / weights.sum(axis=1, keepdims=True)


def _diffusion(x: np.ndarray) -> np.ndarray:
    """Diffusion map: eigenvectors of the walk but the constant one, times their eigenvalues."""
    values, vectors = np.linalg.eig(_walks(x))
    order = np.argsort(-np.real(values))[1:3]
    return np.real(vectors[:, order] * values[order])


def _potentials(x: np.ndarray, seed: int) -> np.ndarray:
    """MDS of the logarithms of a walk's probabilities after eight steps, as PHATE does it."""
    logs = np.log(np.linalg.matrix_power(_walks(x), 8) + 1e-7)
    return np.asarray(MDS(2, n_init=1, init="random", random_state=seed).fit_transform(logs))


def _features(x: np.ndarray, seed: int) -> np.ndarray:
    """Components of random features of standardised records."""
    directions = np.random.default_rng(seed).normal(size=(x.shape[1], 200)) / np.sqrt(x.shape[1])
    return PCA(2).fit_transform(np.cos(2 * scale(x) @ directions))


def _tsne(x: np.ndarray, seed: int) -> np.ndarray:
    return TSNE(random_state=seed).fit_transform(scale(x))


SHEAR = np.array([[1.0, 0.5], [0.0, 1.3]])

KINDS: dict[str, Fit] = {
    "kernel PCA, rbf": lambda x, _, seed: KernelPCA(2, kernel="rbf", random_state=seed).fit_transform(scale(x)),
    "kernel PCA, polynomial": lambda x, _, seed: KernelPCA(2, kernel="poly", random_state=seed).fit_transform(scale(x)),
    "kernel PCA, sigmoid": lambda x, _, seed: KernelPCA(2, kernel="sigmoid", random_state=seed).fit_transform(scale(x)),
    "NMF": lambda x, _, seed: NMF(2, random_state=seed).fit_transform(minmax_scale(x)),
    "factor analysis": lambda x, _, seed: FactorAnalysis(2, random_state=seed).fit_transform(scale(x)),
    "discriminants": lambda x, *_: LinearDiscriminantAnalysis(n_components=2).fit_transform(scale(x), _thirds(x)),
    "partial least squares": lambda x, *_: PLSRegression(2).fit(scale(x)[:, :-1], x[:, -1]).x_scores_,
    "bottleneck": lambda x, _, seed: _bottleneck(x, seed),
    "locally linear": lambda x, _, seed: LocallyLinearEmbedding(
        n_neighbors=12, eigen_solver="dense", random_state=seed
    ).fit_transform(scale(x)),
    "locally linear, modified": lambda x, _, seed: LocallyLinearEmbedding(
        n_neighbors=12, method="modified", eigen_solver="dense", random_state=seed
    ).fit_transform(scale(x)),
    "spectral": lambda x, _, seed: SpectralEmbedding(2, random_state=seed).fit_transform(scale(x)),
    "diffusion map": lambda x, *_: _diffusion(x),
    "walk potentials, MDS": lambda x, _, seed: _potentials(x, seed),
    "random features, PCA": lambda x, _, seed: _features(x, seed),
    "quantiles, PCA": lambda x, _, seed: PCA(2).fit_transform(
        QuantileTransformer(n_quantiles=50, random_state=seed).fit_transform(x)
    ),
    "square roots, PCA": lambda x, *_: PCA(2).fit_transform(np.sqrt(np.abs(x - x.min(axis=0)))),
    "t-SNE, sheared": lambda x, _, seed: _tsne(x, seed) @ SHEAR,
    "t-SNE, signed squares": lambda x, _, seed: np.sign(_tsne(x, seed)) * _tsne(x, seed) ** 2,
    "t-SNE of others": lambda x, others, seed: _tsne(others[: len(x)], seed),
    "PCA of others": lambda x, others, _: PCA(2).fit_transform(scale(others[: len(x)])),
    "MDS of others": lambda x, others, seed: MDS(2, n_init=1, init="random", random_state=seed).fit_transform(
        scale(others[: len(x)])
    ),
    "normal noise": lambda x, _, seed: 10 * np.random.default_rng(seed).normal(size=(len(x), 2)),
    "uniform noise": lambda x, _, seed: np.random.default_rng(seed).uniform(size=(len(x), 2)),
}
"""Kinds that are none of these, by name."""

SCALERS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "": (None, ()),
    "StandardScaler, ": (StandardScaler, (dr.Standardise(),)),
    "MinMaxScaler, ": (MinMaxScaler, (dr.MinMax(),)),
    "RobustScaler, ": (RobustScaler, (dr.Robust(),)),
}
"""Scalers by what they add to a kind's name: scikit-learn's, and drjax's step."""

MIXTURES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "FastICA": lambda rows, seed: FastICA(3, random_state=seed, max_iter=2000).fit_transform(rows),
    "PCA scaled to [0, 1]": lambda rows, _: minmax_scale(PCA(3).fit_transform(rows)),
    "PCA sheared": lambda rows, _: PCA(2).fit_transform(rows) @ SHEAR,
}
"""Linear maps of components, by name."""

MOVED = dr.Linear, dr.UnitVariance
"""Steps that say so; components may be independent as they are, and are whitened ones then."""

FACTORS = (0.013, 7.7)
"""What maps are multiplied by."""

NEAR, NEAR_OF_TSNE = 0.01, 0.1
"""Share by which a factor may be off and count as named right; maps of t-SNE still grow where a library ends them."""

Verdict = tuple[str, str, bool]
"""Kind of a map, what is believed of it, and whether that is right."""


def _draw(name: str, n_known: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Known records (n, d), all records with a target before them, and others (s, d); [x; known] in another order where
    a data set has too few others."""
    known, targets, others = drawn(name, n_known, 1, seed)
    x = np.concatenate([targets, known])
    return known, x, others if len(others) >= len(x) else x[np.random.default_rng(seed).permutation(len(x))]


def _believed(known: np.ndarray, coords: np.ndarray, seed: int, decimals: int | None = None) -> Belief:
    return recognise(jax.random.key(seed), known, np.asarray(coords), decimals=decimals)


def foreign(name: str, *, n_known: int, seed: int) -> Iterator[Verdict]:
    """Verdicts on a map of each kind of `KINDS`; those that cannot be made of a data set are left out."""
    known, x, others = _draw(name, n_known, seed)
    for kind, fit in KINDS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                coords = np.asarray(fit(x, others, seed), np.float64)
            except ValueError:  # LinAlgError is one
                continue
        title = _believed(known, coords, seed).title
        yield kind, title, title == "none of these"


def published(name: str, *, n_known: int, seed: int) -> Iterator[Verdict]:
    """Verdicts on a map of each kind that libraries publish."""
    known, x, _ = _draw(name, n_known, seed)
    for kind, release in RELEASES.items():
        coords = made(release, known, [x[0]], seed)[0]
        belief = _believed(known, coords, seed, release.decimals)
        yield kind, belief.title, is_right(belief, release.method, x)


def pca(name: str, *, n_known: int, seed: int) -> Iterator[Verdict]:
    """Verdicts on two components behind each scaler, whitened and not."""
    known, x, _ = _draw(name, n_known, seed)
    for kind, (scaler, before) in SCALERS.items():
        rows = x if scaler is None else scaler().fit_transform(x)
        for whiten in (False, True):
            after = (dr.UnitVariance(),) if whiten else ()
            truth = dr.Pipeline(before=before, method=dr.PCA(), after=after)
            belief = _believed(known, PCA(2, whiten=whiten).fit_transform(rows), seed)
            yield (
                f"{kind}PCA{' whitened' if whiten else ''}",
                belief.title,
                is_right(belief, truth, x),
            )


def mixed(name: str, *, n_known: int, seed: int) -> Iterator[Verdict]:
    """Verdicts on linear maps of components behind the scalers but quartiles: whether the steps are named, and a linear
    map or, where it is one, whitening."""
    known, x, _ = _draw(name, n_known, seed)
    for kind, (scaler, before) in list(SCALERS.items())[:3]:
        rows = x if scaler is None else scaler().fit_transform(x)
        for title, mixture in MIXTURES.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                coords = mixture(rows, seed)
            belief = _believed(known, coords, seed)
            method = belief.method
            is_named = False
            if isinstance(method, dr.Pipeline) and isinstance(method.method, dr.PCA):
                is_named = method.before == before and any(isinstance(step, MOVED) for step in method.after)
            yield f"{kind}{title}", belief.title, is_named


def multiplied(name: str, *, n_known: int, seed: int) -> Iterator[Verdict]:
    """Verdicts on maps of records as they are and standardised, by SMACOF times each of `FACTORS`, and by t-SNE times
    these and scaled to [0, 1]."""
    known, x, _ = _draw(name, n_known, seed)
    for kind, (scaler, before) in list(SCALERS.items())[:2]:
        rows = x if scaler is None else scaler().fit_transform(x)
        coords = np.asarray(MDS(2, n_init=1, init="random", random_state=seed).fit_transform(rows))
        for factor in FACTORS:
            after = dr.Rescale(factor=factor)
            yield _of_factors(f"{kind}MDS times {factor}", known, x, factor * coords, seed, before, dr.MDS(), after)
        coords = TSNE(random_state=seed).fit_transform(rows).astype(np.float64)
        for words, factors in (
            *((f"times {factor}", (factor, factor)) for factor in FACTORS),
            ("scaled to [0, 1]", tuple(1 / np.ptp(coords, axis=0))),
        ):
            after = dr.RescaleColumns(factors=factors)
            yield _of_factors(f"{kind}t-SNE {words}", known, x, factors * coords, seed, before, dr.TSNE(), after)


def _of_factors(
    kind: str,
    known: np.ndarray,
    x: np.ndarray,
    coords: np.ndarray,
    seed: int,
    before: tuple[Step, ...],
    method: DRMethod,
    after: dr.Rescale | dr.RescaleColumns,
) -> Verdict:
    """Verdict on a map (n, 2), right where its factors are."""
    belief = _believed(known, coords, seed)
    own = belief.method.after if isinstance(belief.method, dr.Pipeline) else ()
    with jax.enable_x64(True):
        undone = [one.undo(coords) / after.undo(coords) for one in own if isinstance(one, type(after))]
    off = [float(np.abs(one - 1).max()) for one in undone]
    near = NEAR if isinstance(after, dr.Rescale) else NEAR_OF_TSNE
    is_named = is_right(belief, dr.Pipeline(before=before, method=method, after=(after,)), x)
    title = f"{belief.title}, factors off by up to {off[0]:.2g}" if off else belief.title
    return kind, title, bool(off) and off[0] < near and is_named


SETS = {"foreign": foreign, "published": published, "pca": pca, "multiplied": multiplied, "mixed": mixed}


def main(
    maps: Annotated[Literal["foreign", "published", "pca", "multiplied", "mixed"], tyro.conf.Positional],
    data: tuple[str, ...] = ("breast cancer", "wine", "census", "digits"),
    n_known: int = 149,
    draws: int = 1,
    seed: int = 0,
) -> None:
    """Says how many maps are named right, and what is believed of the others.

    Args:
        maps: Maps to make; see the functions of these names.
        data: Data sets.
        n_known: Records known; fewer where a set is smaller.
        draws: Draws of records, and maps of each kind, a data set.
        seed: Seed of the first draw.
    """
    wrong, count = [], 0
    for name in data:
        for one in range(seed, seed + draws):
            for kind, title, right in SETS[maps](name, n_known=n_known, seed=one):
                count += 1
                wrong += [] if right else [(kind, name, str(one), title)]
    if wrong:
        print(markdown_table(["map", "data", "seed", "believed"], wrong), end="\n\n")
    print(f"{count - len(wrong)} of {count} maps named right")


if __name__ == "__main__":
    tyro.cli(main)
