"""What the kernels' pages say of MNIST and of other libraries: no times."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import jax
import numpy as np

from drjax.core.lanes import SMALLEST
from drjax.data import load
from drjax.dr import MDS, PCA, TSNE, metrics
from drjax.dr.isomap import path_insertion, shortest_paths
from drjax.dr.tsne.mesh import Mesh

LANES = {
    "50-classical": (50, 256, "classical", 1e-6),
    "100-classical": (100, 128, "classical", 1e-6),
    "50-random": (50, 256, "random", 1e-4),
    "100-random": (100, 128, "random", 1e-4),
    "100-random-strict": (100, 64, "random", 1e-6),
}
"""Records of a map, lanes, start and tolerance of SMACOF."""


@functools.cache
def mnist() -> np.ndarray:
    """Its records, (70000, 784), in their order."""
    return np.asarray(load("mnist").x, np.float32)


def heads(n: int, is_toy: bool) -> dict[str, Any]:
    """How many poles of an insertion into PCA of n records are met one by one, of how many."""
    del is_toy
    poles = PCA(n_components=2).prepare(mnist()[: n - 1]).poles
    return {"head": int(poles.gaps.shape[1]), "poles": int(poles.values.shape[0])}


def steps_of(counts: np.ndarray) -> tuple[float, float]:
    """Steps that lanes take over those they need, under `vmap` and by `while_lanes`, from what each needs."""
    needed, width, taken, now = counts.sum(), len(counts), 0, 0
    ends = np.sort(counts)[::-1]
    while True:
        half = (width + 1) // 2 if width > SMALLEST else 0
        end = int(ends[half]) if half < len(ends) else now
        taken, now = taken + width * max(end - now, 0), max(end, now)
        if not half:
            break
        width = half
    return float(len(counts) * ends[0] / needed), float(taken / needed)


def lanes(n: int, count: int, init: str, eps: float, is_toy: bool) -> dict[str, Any]:
    """Iterations of SMACOF's lanes, and steps of all lanes over what they need."""
    x, count = mnist(), SMALLEST if is_toy else count
    method = MDS(init=init, eps=eps)
    shared, keys = method.prepare(x[: n - 1]), jax.random.split(jax.random.key(0), count)
    found = np.asarray(method.insert_batch(keys, shared, x[1000 : 1000 + count]).n_iter)
    by_vmap, compacted = steps_of(found)
    spread = {"least": int(found.min()), "median": float(np.median(found)), "most": int(found.max())}
    return {**spread, "vmap": by_vmap, "compacted": compacted}


def changed_paths(n: int, is_toy: bool) -> dict[str, Any]:
    """Share of the known records' pairs whose shortest path one more record changes, Isomap with 5 neighbours."""
    x = mnist()
    between = metrics.among_records(metrics.EUCLIDEAN, x[: n - 1], np.dtype(np.float64))
    graph = shortest_paths.graph_of_distances(np.ascontiguousarray(between, np.float64), 5)
    edges, m, shares = path_insertion.adjacency(graph.neighbors, graph.between), n - 1, []
    reach, linked, pairs = np.empty(m), np.empty(m, np.bool_), np.empty((m * m, 2), np.int32)
    for target in x[1000 : 1002 if is_toy else 1050].astype(np.float64):
        row, own = np.linalg.norm(x[: n - 1] - target, axis=1), graph.paths.copy()
        count = path_insertion.change(*graph, *edges, row, 5, own, reach, linked, pairs)
        shares.append(2 * count / (m * (m - 1)))
    return {"share": float(np.mean(shares)), "most": float(np.max(shares)), "targets": len(shares)}


def spectral_starts(is_toy: bool) -> dict[str, Any]:
    """Of how many MNIST sets of 100 records umap-learn's start leaves out the leading nontrivial eigenvector."""
    import scipy.sparse.csgraph
    import umap
    from umap.spectral import spectral_layout

    x, sets, missed, connected = mnist(), 2 if is_toy else 30, 0, 0
    for i in range(sets):
        graph = umap.UMAP(n_epochs=0, random_state=i, n_jobs=1).fit(x[100 * i : 100 * (i + 1)]).graph_.tocoo()
        # As umap-learn does before it starts: an edge that no epoch of 500 would meet is left out.
        graph.data[graph.data < graph.data.max() / 500] = 0
        graph.eliminate_zeros()
        if scipy.sparse.csgraph.connected_components(graph)[0] > 1:
            continue
        connected += 1
        weights = graph.toarray()
        root = 1 / np.sqrt(weights.sum(axis=1))
        leading = np.linalg.eigh(root[:, None] * weights * root)[1][:, -2]
        start = spectral_layout(None, graph, 2, np.random.RandomState(i))
        basis, _ = np.linalg.qr(start)
        missed += bool(np.linalg.norm(basis.T @ leading) < 0.5)
    return {"missed": missed, "sets": connected, "scipy": scipy.__version__, "umap_learn": umap.__version__}


def repulsion(n: int, is_toy: bool) -> dict[str, Any]:
    """Errors of the repulsion between the points of a t-SNE map, and of its normaliser, by three ways."""
    from openTSNE.quad_tree import QuadTree  # of the extra "bench"

    compiled = importlib.import_module("openTSNE._tsne")

    made = TSNE(gradient="mesh").fit_transform(jax.random.key(0), mnist()[: 500 if is_toy else n])
    y = np.ascontiguousarray(made.coords, np.float64)
    exact, total = np.empty_like(y), 0.0
    for i in range(len(y)):
        step = y[i] - y
        w = 1 / (1 + np.square(step).sum(axis=1))
        exact[i], total = (w[:, None] ** 2 * step).sum(axis=0), total + w.sum() - 1
    found = {"mesh": np.empty(y.shape, np.float32), "fft": np.zeros_like(y), "tree": np.zeros_like(y)}
    single = y.astype(np.float32)
    sums = {
        "mesh": Mesh(len(y), single.dtype).repulsion(single, found["mesh"]),
        "fft": compiled.estimate_negative_gradient_fft_2d(y, found["fft"]),
        "tree": compiled.estimate_negative_gradient_bh(QuadTree(y), y, found["tree"], theta=0.5, dof=1, num_threads=1),
    }
    out: dict[str, Any] = {}
    for name, force in found.items():
        # openTSNE's is divided by the normaliser, and of the other sign.
        force = force if name == "mesh" else force * sums[name] * np.sign((force * exact).sum())
        out |= {name: float(np.linalg.norm(force - exact) / np.linalg.norm(exact))}
        out |= {f"{name}_normaliser": float(abs(sums[name] / total - 1))}
    return out


TABLES = {
    "pca-head": {str(n): functools.partial(heads, n) for n in (100, 1000)},
    "lanes": {name: functools.partial(lanes, *setting) for name, setting in LANES.items()},
    "isomap-changes": {str(n): functools.partial(changed_paths, n) for n in (1000,)},
    "umap-start": {"mnist": spectral_starts},
    "tsne-repulsion": {str(n): functools.partial(repulsion, n) for n in (5000,)},
}
"""What computes the facts of a cell, by table and cell."""
