"""Maps of methods that drjax does not know, and maps of no records at all: all are to be "none of these".

python -m experiments.pipelines.foreign                                # 24 kinds of four data sets, ten minutes
python -m experiments.pipelines.foreign --data wine --n-known 99       # of one, a minute
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from scipy.spatial.distance import pdist, squareform
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import NMF, PCA, FactorAnalysis, FastICA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.manifold import MDS, TSNE, LocallyLinearEmbedding, SpectralEmbedding
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import QuantileTransformer, minmax_scale, scale

from drjax.attacks.recognition import recognise
from experiments.markdown import markdown_table
from experiments.pipelines.releases import drawn

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
    "FastICA": lambda x, _, seed: FastICA(2, random_state=seed).fit_transform(scale(x)),
    "NMF": lambda x, _, seed: NMF(2, random_state=seed).fit_transform(minmax_scale(x)),  # pyright: ignore[reportArgumentType]
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
"""The kinds by name. Others stand in for the records where a map is of other records."""


def believed(name: str, kinds: Sequence[str], *, n_known: int, seed: int) -> list[str]:
    """Titles of what is believed of a map of each kind of a data set; "not made" where its method fails."""
    known, targets, others = drawn(name, n_known, 1, seed)
    x, titles = np.concatenate([targets, known]), []
    rest = others if len(others) >= len(x) else x[np.random.default_rng(seed).permutation(len(x))]
    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                coords = np.asarray(KINDS[kind](x, rest, seed), np.float64)
            except (ValueError, np.linalg.LinAlgError) as error:
                titles.append(f"not made ({str(error).splitlines()[0]})")
                continue
        titles.append(recognise(jax.random.key(seed), known, coords).title)
    return titles


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints what is believed of every kind of map of every data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["breast cancer", "wine", "census", "digits"], help="data sets")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), help="kinds of maps")
    parser.add_argument("--n-known", type=int, default=149, help="records known, fewer where a set is smaller")
    parser.add_argument("--seed", type=int, default=0, help="seed of draws and maps")
    asked = parser.parse_args(arguments)
    columns = {name: believed(name, asked.kinds, n_known=asked.n_known, seed=asked.seed) for name in asked.data}
    rows = [[kind, *(columns[name][i] for name in asked.data)] for i, kind in enumerate(asked.kinds)]
    print(markdown_table(["map", *asked.data], rows))
    made = [title for titles in columns.values() for title in titles if not title.startswith("not made")]
    wrong = sum(title != "none of these" for title in made)
    print(f"\n{len(made)} maps, {wrong} taken for a method's that did not make them")


if __name__ == "__main__":
    main()
