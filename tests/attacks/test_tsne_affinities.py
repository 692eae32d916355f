"""Affinities of the target estimated from maps at rest: against scikit-learn's, and what a regression makes of them."""

import functools

import jax
import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE as SklearnTSNE
from sklearn.manifold._t_sne import _joint_probabilities, _joint_probabilities_nn
from sklearn.neighbors import NearestNeighbors

from drjax.attacks.reconstruction import barnes_hut, invariant, tsne_affinities
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.dr import TSNE
from drjax.dr.tsne.xla import gradient

X = np.random.default_rng(0).permutation(load_digits().data.astype(np.float32) / 16)
KNOWN, PERPLEXITY = X[:50], 8.0


@pytest.fixture(scope="module")
def maps():
    method = TSNE(perplexity=PERPLEXITY, init="random")
    return [shadow_embeddings(jax.random.key(i), method, KNOWN, part).coords for i, part in enumerate(PARTS)]


PARTS = (X[100:500], X[500:600])


def test_estimates_follow_the_affinities_that_scikit_learn_worked_with():
    record = np.concatenate([X[700:701], KNOWN])
    peer = SklearnTSNE(perplexity=PERPLEXITY, method="exact", init="random", random_state=1)
    coords = peer.fit_transform(record).astype(np.float64)
    squared = squareform(pdist(record, "sqeuclidean")).astype(np.float32)
    joint = squareform(_joint_probabilities(squared, PERPLEXITY, 0))
    found = tsne_affinities._of_map([joint[1:, 1:]], coords)
    np.testing.assert_allclose(found, joint[0, 1:], atol=0.05 * joint[0, 1:].max())  # a map all but at rest
    # From the known records alone: the target's effect on the other affinities is left out.
    alone = tsne_affinities.estimate(KNOWN, coords[None], PERPLEXITY)[0]
    assert np.corrcoef(alone, joint[0, 1:])[0, 1] > 0.9


@pytest.mark.parametrize("angle", [0.0, 0.5])
def test_estimates_follow_those_of_barnes_hut(angle, monkeypatch):
    record = np.concatenate([X[700:701], KNOWN])
    coords = SklearnTSNE(perplexity=5, angle=angle, random_state=1).fit_transform(record)
    graph = NearestNeighbors(n_neighbors=16).fit(record).kneighbors_graph(mode="distance")
    graph.data **= 2
    joint = _joint_probabilities_nn(graph, 5, 0).toarray()
    found = tsne_affinities.estimate(KNOWN, coords[None], 5)[0]
    assert np.corrcoef(found, joint[0, 1:])[0, 1] > (0.8 if angle else 0.9)
    if angle:
        with monkeypatch.context() as patch:
            patch.setattr(barnes_hut, "repulsion", functools.partial(barnes_hut.repulsion, angle=0))
            with_exact_repulsion = tsne_affinities.estimate(KNOWN, coords[None], 5)[0]
        assert np.linalg.norm(found - joint[0, 1:]) < np.linalg.norm(with_exact_repulsion - joint[0, 1:])
    monkeypatch.setattr(tsne_affinities, "_ways", lambda squared, _: [squared])
    taken_for_exact = tsne_affinities.estimate(KNOWN, coords[None], 5)[0]
    assert np.linalg.norm(found - joint[0, 1:]) < 0.8 * np.linalg.norm(taken_for_exact - joint[0, 1:])


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_forces_are_those_of_the_descent(k, monkeypatch):
    # A map that is not at rest is nobody's; it is taken for an exact one.
    monkeypatch.setattr(barnes_hut, "repulsion", functools.partial(barnes_hut.repulsion, angle=0))
    rng = np.random.default_rng(k)
    joint = np.triu(rng.random((12, 12)), 1)
    joint = (joint + joint.T) / (2 * joint.sum())
    coords = rng.normal(size=(12, k))
    with jax.enable_x64(True):
        slope = np.asarray(gradient(joint, coords))[1:]
    own = coords[1:] - coords[0]
    freedom = max(k - 1, 1)
    own *= (1 + np.sum(own**2, axis=1, keepdims=True) / freedom) ** (-(freedom + 1) / 2)
    # What the estimate misses is the force that is left, along the way to the target.
    left = np.sum(slope * own, axis=1) / np.sum(own**2, axis=1) / (2 * (freedom + 1) / freedom)
    np.testing.assert_allclose(tsne_affinities._of_map([joint[1:, 1:]], coords), joint[0, 1:] - left, atol=1e-12)


def test_they_tell_a_regression_more_than_the_distances_of_the_map(maps):
    train, test = maps
    model = tsne_affinities.fit(KNOWN, train, PARTS[0], perplexity=PERPLEXITY)
    by_map = invariant.fit(train, PARTS[0])
    error = np.mean((model.reconstruct(test).x - PARTS[1]) ** 2)
    assert error < 0.95 * np.mean((by_map.reconstruct(test).x - PARTS[1]) ** 2)
    assert model.regression.choice.loo_mse == pytest.approx(error, rel=0.3)


def test_rotation_and_reflection_change_nothing(maps):
    turned = maps[1][:5] @ np.array([[0.6, 0.8], [0.8, -0.6]]) + 3
    before, after = (tsne_affinities.estimate(KNOWN, c, PERPLEXITY) for c in (maps[1][:5], turned))
    np.testing.assert_allclose(after, before, atol=1e-6)  # of maps in float32


def test_bad_releases_are_flagged(maps):
    model = tsne_affinities.fit(KNOWN, maps[0][:50], PARTS[0][:50], perplexity=PERPLEXITY)
    coords = maps[1][:3].copy()
    coords[1, 0, 0] = np.inf
    result = model.reconstruct(coords)
    assert result.status.tolist() == [0, Status.NON_FINITE, 0]
    assert np.isnan(result.x[1]).all()
    np.testing.assert_allclose(result.x[2], model.reconstruct(coords[2:]).x[0], atol=1e-9)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"coords": np.zeros((4, 9, 2))}, r"coords must have shape \(m, 51, k\)"),
        ({"coords": np.full((4, 51, 2), np.nan)}, "coords must be finite"),
        ({"targets": np.zeros((3, 64))}, "targets must have one row per release, 4, got 3"),
        ({"perplexity": 51.0}, "perplexity must be < n = 51 records"),
        ({"perplexity": 0.5}, "perplexity must be >= 1"),
    ],
)
def test_bad_input_is_refused_by_name(change, match):
    arguments = {"coords": np.zeros((4, 51, 2)), "targets": np.zeros((4, 64)), "perplexity": PERPLEXITY, **change}
    with pytest.raises(ValueError, match=match):
        tsne_affinities.fit(KNOWN, **arguments)


def test_releases_of_another_shape_are_refused(maps):
    model = tsne_affinities.fit(KNOWN, maps[0][:50], PARTS[0][:50], perplexity=PERPLEXITY)
    with pytest.raises(ValueError, match=r"coords must have shape \(b, 51, 2\)"):
        model.reconstruct(np.zeros((3, 8, 2)))
