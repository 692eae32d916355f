"""A record put into a fixed map: where it comes to lie, what it is marked as, and what is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

import drjax
from drjax.core.types import Status
from drjax.dr import TSNE, UMAP

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def records() -> np.ndarray:
    return np.asarray(drjax.load("digits").x[:260], np.float64)


def test_a_place_is_a_minimum_of_the_divergence(records):
    from drjax.dr.tsne import frozen

    known, targets = records[:200], records[200:210]
    with jax.enable_x64(True):
        method = TSNE(perplexity=15.0)
        shared, coords = method.prepare_frozen(KEY, known)
        found = method.insert_frozen(jax.random.split(KEY, 10), shared, targets)
    y, around = np.asarray(coords, np.float64), np.array(shared.gaussians).view(np.float64)
    total = float(np.array(shared.normaliser).view(np.float64)[0])
    apart = ((y[:, None] - y) ** 2).sum(-1)
    np.testing.assert_allclose(total, (1 / (1 + apart)).sum() - len(y), rtol=1e-10)
    for target, place, value in zip(targets, np.asarray(found.coords), np.asarray(found.objective), strict=True):
        row = np.linalg.norm(known - target, axis=1)
        p = frozen._joint_with_known(row, 46, np.log(15.0), around)
        assert p.sum() < 2 / 201

        def divergence(at, p=p):
            square = ((at - y) ** 2).sum(1)
            return 2 * (p * np.log1p(square)).sum() + np.log(total + 2 * (1 / (1 + square)).sum())

        np.testing.assert_allclose(value, divergence(place), rtol=1e-9)
        best = minimize(divergence, place, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14})
        np.testing.assert_allclose(best.x, place, atol=1e-3)


@pytest.mark.parametrize("method", [TSNE(perplexity=15.0), UMAP(n_epochs=200)], ids=lambda method: method.name)
def test_targets_lie_where_exact_insertion_puts_them(records, method):
    known, targets = records[:200], records[200:260]
    made = drjax.shadow_embeddings(KEY, method, known, targets, approx="frozen")
    exact = np.asarray(drjax.shadow_embeddings(KEY, method, known, targets).coords)
    coords = np.asarray(made.coords)

    def near(one: np.ndarray) -> np.ndarray:
        order = np.argsort(np.linalg.norm(one[:, 1:] - one[:, :1], axis=-1), axis=1)[:, :10]
        return np.array([np.linalg.norm(known[o] - t, axis=1).mean() for o, t in zip(order, targets, strict=True)])

    # Neighbours in the map are as near as records as those of exact maps are.
    assert near(coords).mean() < 1.1 * near(exact).mean()
    assert ((np.asarray(made.status) & Status.FROZEN) > 0).all()
    assert (coords[:, 1:] == coords[0, 1:]).all()
    np.testing.assert_array_equal(made.coords[3, 0], coords[3, 0])


@pytest.mark.parametrize(
    "method", [TSNE(perplexity=8.0, max_iter=50, init="random"), UMAP(n_epochs=20)], ids=lambda method: method.name
)
def test_shadows_depend_on_key_and_place_alone(records, method):
    known, targets = records[:60], records[60:66]
    whole = drjax.shadow_embeddings(KEY, method, known, targets, approx="frozen")
    pieces = list(
        drjax.attacks.shadow.iter_shadow_embeddings(KEY, method, known, targets, batch_size=4, approx="frozen")
    )
    np.testing.assert_array_equal(
        np.asarray(whole.coords), np.concatenate([np.asarray(made.coords) for _, made in pieces])
    )


@pytest.mark.parametrize(
    "method", [TSNE(perplexity=8.0, max_iter=50), UMAP(n_epochs=20)], ids=lambda method: method.name
)
def test_a_target_that_is_not_finite_is_marked(records, method):
    shared, _ = method.prepare_frozen(KEY, records[:60])
    targets = np.array(records[60:62])
    targets[1, 3] = np.inf
    found = method.insert_frozen(jax.random.split(KEY, 2), shared, targets)
    assert list((np.asarray(found.status) & Status.NON_FINITE) > 0) == [False, True]


def test_edges_of_the_target_are_those_of_the_whole_graph(records):
    from drjax.dr.umap import cpu, frozen

    x = records[:120].copy()
    x[5] = x[0]
    settings = UMAP(n_neighbors=7)._settings(120)
    lists = cpu.lists_of(x[1:], 7, 1.0)
    row = np.linalg.norm(x[1:] - x[0], axis=1)
    ends, weight, heaviest = frozen._edges_of_target(settings, lists, row)
    whole = cpu.lists_of(x, 7, 1.0)
    union, first = cpu.union_of(whole.indices, whole.weights, 1.0)
    head, tail, weights = cpu._edges(whole.indices, union, first, union.max() / settings.n_prune)
    own = (head == 0) | (tail == 0)
    wanted = dict(zip((head + tail)[own], weights[own], strict=True))
    assert dict(zip(ends + 1, weight, strict=True)) == pytest.approx(wanted, rel=1e-12)
    assert heaviest == union.max()


@pytest.mark.parametrize(
    ("method", "approx", "rule"),
    [
        (drjax.PCA(), "frozen", "pca"),
        (TSNE(n_components=3, perplexity=5.0), "frozen", "n_components"),
        (TSNE(perplexity=5.0), "melted", "approx"),
        (UMAP(backend="umap-learn"), "frozen", "backend"),
    ],
)
def test_what_cannot_be_frozen_is_refused(records, method, approx, rule):
    with pytest.raises(ValueError, match=rule):
        drjax.shadow_embeddings(KEY, method, records[:40], records[40:44], approx=approx)
