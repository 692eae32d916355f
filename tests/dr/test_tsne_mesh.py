"""t-SNE of many records: the mesh's forces, affinities of near records, and maps equal in distribution."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.manifold import TSNE as SklearnTSNE
from sklearn.manifold import trustworthiness
from sklearn.manifold._t_sne import _joint_probabilities_nn
from sklearn.neighbors import NearestNeighbors

import drjax
from drjax.core.types import Status
from drjax.dr import TSNE, metrics, neighbors
from drjax.dr.tsne import method as tsne_module
from drjax.dr.tsne import near_affinities
from drjax.dr.tsne.mesh import Mesh

KEY = jax.random.key(0)


def clustered(n: int, extent: float) -> np.ndarray:
    """Points in clumps, as maps have them, within `extent` of 0."""
    rng = np.random.default_rng(0)
    middle = rng.uniform(-1, 1, (12, 2))
    return extent * (middle[rng.integers(0, 12, n)] + 0.1 * rng.normal(size=(n, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("extent", [1e-4, 1.0, 20.0])
def test_the_mesh_repels_as_all_pairs_do(extent, dtype):
    y = clustered(2000, extent).astype(dtype)
    found = np.empty_like(y)
    normaliser = Mesh(len(y), y.dtype).repulsion(y, found)
    step = y[:, None].astype(np.float64) - y
    w = 1 / (1 + (step**2).sum(-1))
    wanted = (w[..., None] ** 2 * step).sum(1)
    assert np.linalg.norm(found - wanted) < 0.01 * np.linalg.norm(wanted)
    np.testing.assert_allclose(normaliser, w.sum() - len(y), rtol=1e-4)


def test_a_mesh_that_is_kept_forgets_the_last_map():
    mesh = Mesh(400, np.dtype(np.float64))
    for extent in (1.0, 30.0, 30.5, 2.0):
        y = clustered(400, extent)
        kept, fresh = np.empty_like(y), np.empty_like(y)
        assert mesh.repulsion(y, kept) == Mesh(400, y.dtype).repulsion(y, fresh)
        np.testing.assert_array_equal(kept, fresh)


def test_affinities_of_near_records_are_those_of_scikit_learn():
    x = drjax.load("digits").x[:300]
    k = near_affinities.n_near(300, 12.0)
    lists = neighbors.nearest("euclidean", metrics.prepared("euclidean", x), k)
    graph = near_affinities.of_lists(*lists, 12.0, np.dtype(np.float64))
    squared = NearestNeighbors(n_neighbors=k).fit(x).kneighbors_graph(mode="distance")
    squared.data **= 2
    wanted = _joint_probabilities_nn(squared, 12.0, verbose=0).toarray()
    found = np.zeros((300, 300))
    for i in range(300):
        found[i, graph.ends[graph.start[i] : graph.start[i + 1]]] = graph.values[graph.start[i] : graph.start[i + 1]]
    np.testing.assert_array_equal(found, found.T)
    # scikit-learn searches in float32.
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=1e-9)


def test_first_steps_are_those_of_the_exact_gradient():
    # With so many neighbours none is left out.
    x = drjax.load("digits").x[:150]
    options = {"perplexity": 50.0, "max_iter": 3}
    exact = TSNE(gradient="exact", **options).fit_transform(KEY, x)
    by_mesh = TSNE(gradient="mesh", **options).fit_transform(KEY, x)
    scale = np.abs(exact.coords).max()
    np.testing.assert_allclose(by_mesh.coords, exact.coords, atol=0.002 * scale)
    np.testing.assert_allclose(by_mesh.objective, exact.objective, rtol=0.001)


def test_maps_are_as_good_as_scikit_learns():
    x = np.asarray(drjax.load("digits").x[:500])
    method = TSNE(gradient="mesh", init="random", max_iter=500)
    made = [method.fit_transform(jax.random.key(seed), x) for seed in range(4)]
    theirs = [SklearnTSNE(init="random", max_iter=500, random_state=seed) for seed in range(4)]
    coords = [one.fit_transform(x) for one in theirs]
    ours, other = [float(one.objective) for one in made], [one.kl_divergence_ for one in theirs]
    assert abs(np.mean(ours) - np.mean(other)) < 0.1 * np.mean(other)
    quality = [trustworthiness(x, one.coords) for one in made], [trustworthiness(x, one) for one in coords]
    assert np.mean(quality[0]) > np.mean(quality[1]) - 0.005


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_an_inserted_record_makes_the_map_of_all_records_bit_by_bit(metric):
    x = np.array(drjax.load("digits").x[:120])
    x[40:43] = x[0]  # copies of the target
    method = TSNE(gradient="mesh", init="random", perplexity=10.0, max_iter=60, metric=metric)
    whole = method.fit_transform(KEY, x)
    inserted = method.insert(KEY, method.prepare(x[1:]), x[0])
    for one, other in zip(jax.tree.leaves(inserted), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(one, other)


def test_shadows_of_many_records():
    x = np.array(drjax.load("digits").x[:100])
    targets = x[:3].copy()
    targets[1, 0] = np.nan
    method = TSNE(gradient="mesh", perplexity=10.0, max_iter=3)
    made = method.insert_batch(jax.random.split(KEY, 3), method.prepare(x[3:]), targets)
    assert list((np.asarray(made.status) & Status.NON_FINITE) > 0) == [False, True, False]
    assert made.coords.shape == (3, 98, 2)
    assert not np.array_equal(made.coords[0], made.coords[2])
    again = drjax.shadow_embeddings(KEY, method, x[3:], targets[::2])
    np.testing.assert_allclose(again.coords, np.asarray(made.coords)[::2], rtol=1e-3, atol=1e-6)


def test_all_neighbours_of_a_small_data_set():
    x = drjax.load("digits").x[:20]
    method = TSNE(gradient="mesh", perplexity=19.0, max_iter=30, init="random")
    made = method.insert(KEY, method.prepare(x[1:]), x[0])
    np.testing.assert_array_equal(made.coords, method.fit_transform(KEY, x).coords)


def test_many_records_take_the_mesh_by_themselves(monkeypatch):
    monkeypatch.setattr(tsne_module, "MESH_FROM", 100)
    x = drjax.load("digits").x[:100]
    options = {"perplexity": 10.0, "max_iter": 3}
    by_itself, named = TSNE(**options).fit_transform(KEY, x), TSNE(gradient="mesh", **options).fit_transform(KEY, x)
    np.testing.assert_array_equal(by_itself.coords, named.coords)
    assert TSNE().by_mesh(100)
    assert not TSNE().by_mesh(99)
    assert not TSNE(gradient="exact").by_mesh(100)
    assert not TSNE(n_components=3).by_mesh(100)
    many = TSNE(**options).fit_batch(jax.random.split(KEY, 2), np.stack([x, x]))
    np.testing.assert_allclose(many.coords[1], named.coords, rtol=1e-3, atol=1e-6)


def test_records_without_variance_have_no_map():
    made = TSNE(gradient="mesh", perplexity=5.0, max_iter=20).fit_transform(KEY, np.ones((30, 4), np.float32))
    assert int(made.status) & Status.DEGENERATE


@pytest.mark.parametrize(
    ("options", "rule"), [({"gradient": "fft"}, "gradient"), ({"n_components": 3}, "n_components")]
)
def test_bad_settings_are_refused(options, rule):
    with pytest.raises(ValueError, match=rule):
        TSNE(**{"gradient": "mesh", **options})
