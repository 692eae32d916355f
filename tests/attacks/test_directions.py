"""Attacks on maps by other metrics: libraries' releases, and records from directions."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.manifold
from scipy.spatial.distance import squareform
from scipy.stats import chi2
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.manifold._t_sne import _joint_probabilities
from sklearn.metrics import pairwise_distances

from drjax import dr
from drjax.attacks.reconstruction import directions, geodesics, inversion, stationarity, tsne_affinities
from drjax.attacks.reconstruction.equations import Rest, TSNERest
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.registry import ATTACKS
from drjax.core.types import Reconstruction
from drjax.dr import metrics

X = np.random.default_rng(0).permutation(load_digits().data / 16)
KNOWN, TARGETS, PUBLIC = X[:80], X[500:503], X[600:1200]
OTHER = [metric for metric in metrics.METRICS if metric != "euclidean"]
KEY = jax.random.key(0)


def seen_by(metric, known=KNOWN, bounds=(0, 1)):
    threat = types.SimpleNamespace(known=known, expected_of=PUBLIC, bounds=bounds)
    return directions.seen(metric, threat)


def errors(x, targets=TARGETS):
    return ((x - targets) ** 2).mean(axis=1) / ((PUBLIC.mean(axis=0) - targets) ** 2).mean(axis=1)


@pytest.mark.parametrize("metric", metrics.OF_DIRECTIONS)
def test_directions_of_records_tell_their_sizes(metric):
    sizes = directions.fit(metric, PUBLIC)
    found = sizes.records(metrics.prepared(metric, TARGETS))
    np.testing.assert_allclose(metrics.prepared(metric, found), metrics.prepared(metric, TARGETS), atol=1e-12)
    # The most probable record on a ray under the Gaussian prior is too near the origin: 30% of the mean's error.
    assert errors(found).max() < 0.03


@pytest.mark.parametrize("metric", metrics.OF_DIRECTIONS)
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine, load_diabetes, load_digits])
def test_errors_to_expect_of_sizes_hold_answer_by_answer(metric, load):
    x = np.random.default_rng(0).permutation(load().data)
    public, own = x[:100], x[100:600]
    sizes, seen = directions.fit(metric, public), metrics.prepared(metric, own)
    squared = ((sizes.records(seen) - own) ** 2).sum(axis=1)
    expected = sizes.feature_mse(seen).sum(axis=1)
    # One number for all answers is 8 times too little for breast cancer, 1,800 times for its largest record.
    assert 0.5 < (squared / expected).mean() < 1.5
    assert 0.85 < (squared < chi2(1).ppf(0.9) * expected).mean() < 0.99


def test_what_was_found_of_directions_becomes_records():
    sizes, own = directions.fit("cosine", PUBLIC), metrics.prepared("cosine", TARGETS)
    own[1] = np.nan
    found = Reconstruction(own, None, np.stack([own, 2 * own], axis=1), np.full(3, 0.1), np.zeros(3, np.uint32))
    applied = sizes.applied(found, (0, 0.5))
    assert np.isnan(applied.x[1]).all()
    np.testing.assert_allclose(applied.x[[0, 2]], np.clip(sizes.records(own[[0, 2]]), 0, 0.5))
    np.testing.assert_allclose(applied.candidates[:, 1], applied.x, atol=1e-12)
    least = sizes.feature_mse(own[[0, 2]])
    assert (applied.residual_norm[[0, 2]] ** 2 > least.sum(axis=1)).all()
    assert np.isnan(applied.residual_norm[1])
    assert applied.feature_mse is None
    # What is open of a direction is open of the record that long; the size adds its own.
    errors = sizes.applied(found._replace(feature_mse=np.full(own.shape, 1e-4)), None).feature_mse
    squared = (sizes.records(own[[0]]) ** 2).sum()
    np.testing.assert_allclose(errors[0], 1e-4 * squared + least[0])


def test_bounds_of_directions_are_those_of_what_is_not_negative():
    assert directions.bounds_of("cosine", (0, 255)) == (0, 1)
    assert directions.bounds_of("cosine", (-1, 1)) is None
    assert directions.bounds_of("correlation", (0, 1)) is None
    seen = seen_by("manhattan")
    assert seen.known is KNOWN
    assert seen.sizes is None


def test_records_where_directions_are_wanted_are_refused():
    with pytest.raises(ValueError, match="known must be directions"):
        inversion.reconstruct(
            KEY, dr.MDS(metric="cosine"), KNOWN, np.zeros((1, 81, 2)), prior=GaussianPrior.fit(PUBLIC)
        )
    with pytest.raises(ValueError, match="known must be directions"):
        stationarity.reconstruct_mds(
            KNOWN, np.zeros((1, 81, 2)), prior=GaussianPrior.fit(PUBLIC), scale=0.0, metric="correlation"
        )
    with pytest.raises(ValueError, match="public must have two records with a direction, got 1"):
        directions.fit("correlation", np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 1.0]]))


def test_attacks_say_which_methods_they_are_of():
    attacks = ATTACKS["embedding"]
    behind = dr.Pipeline(before=(dr.Standardise(),), method=dr.MDS(metric="cosine"))
    assert attacks["inversion"].suits(behind, seed_known=False) is not None
    manhattan = dr.Pipeline(before=(dr.Standardise(),), method=dr.MDS(metric="manhattan"))
    assert attacks["inversion"].suits(manhattan, seed_known=False) is None
    for metric in OTHER:
        assert attacks["closed-form"].suits(dr.ClassicalMDS(metric=metric), seed_known=False) is not None
        assert attacks["inversion"].suits(dr.ClassicalMDS(metric=metric), seed_known=False) is None
        assert attacks["stationarity"].suits(dr.MDS(metric=metric), seed_known=False) is None


@pytest.mark.parametrize("metric", OTHER)
def test_a_converged_mds_of_scikit_learn_gives_the_record_away(metric):
    maps = [
        sklearn.manifold.MDS(metric=metric, init="random", n_init=1, random_state=i, eps=1e-13, max_iter=20_000)
        for i in range(2)
    ]
    coords = np.stack([fit.fit_transform(np.vstack([x, KNOWN])) for fit, x in zip(maps, TARGETS, strict=False)])
    expected = pairwise_distances(TARGETS[:2], KNOWN, metric=metric)
    np.testing.assert_allclose(stationarity.target_distances(KNOWN, coords, metric=metric), expected, rtol=2e-3)
    scale, seen = stationarity.calibrate(KNOWN, coords, TARGETS[:2], metric=metric), seen_by(metric)
    found = stationarity.reconstruct_mds(
        seen.known, coords, prior=GaussianPrior.fit(seen.expected), scale=scale, bounds=seen.bounds, metric=metric
    )
    x = seen.record(found).x
    # What is left of cosine and correlation is the size; manhattan distances bend wherever a pixel equals another's.
    assert errors(x, TARGETS[:2]).max() < (0.2 if metric == "manhattan" else 0.03)
    if metric != "manhattan":
        np.testing.assert_allclose(metrics.prepared(metric, x), metrics.prepared(metric, TARGETS[:2]), atol=0.01)


@pytest.mark.parametrize("metric", OTHER)
def test_equations_of_tsne_are_those_of_its_objective(metric):
    known, target = metrics.prepared(metric, KNOWN[:29]), metrics.prepared(metric, TARGETS[:1])[0]
    release = np.random.default_rng(0).normal(size=(30, 2))
    with jax.enable_x64(True):
        between = jnp.asarray(metrics.squared_among_records(metric, known))
        own = TSNERest(known=jnp.asarray(known), between=between, perplexity=8.0, metric=metric)
        general = Rest(method=dr.TSNE(perplexity=8.0, metric=metric), known=jnp.asarray(known))
        r, jacobian = jax.jit(general.linearise)(release, target)
        scale = float(jnp.max(jnp.abs(r)))
        found, derivative = jax.jit(own.linearise)(release, target)
        # The kernel's bandwidths meet their entropy to 1e-5 nats only.
        np.testing.assert_allclose(found, r, atol=1e-4 * scale)
        along = np.random.default_rng(1).normal(size=64)
        if metric != "manhattan":
            along = along - (along @ target) * target  # a direction that stays one
        moved = derivative @ own.forward(target, jnp.asarray(along))
        np.testing.assert_allclose(moved, jacobian @ along, atol=1e-4 * float(jnp.max(jnp.abs(jacobian @ along))))
        rows = jax.vmap(lambda row: own.backward(target, row))(jnp.eye(29))
        np.testing.assert_allclose(rows @ along, own.forward(target, jnp.asarray(along)), atol=1e-12)
        covariance = jnp.asarray(np.cov(PUBLIC.T))
        expected = rows @ covariance @ rows.T
        np.testing.assert_allclose(own.gram(jnp.asarray(target), own.loading(covariance)), expected, atol=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "manhattan"])
def test_maps_of_scikit_learns_tsne_give_their_targets_away(metric):
    known = KNOWN[:39]
    fits = [
        sklearn.manifold.TSNE(perplexity=8, method="exact", init="random", metric=metric, random_state=i)
        for i in range(2)
    ]
    coords = np.stack([fit.fit_transform(np.vstack([x, known])) for fit, x in zip(fits, TARGETS, strict=False)])
    seen = seen_by(metric, known)
    found = inversion.reconstruct(
        KEY,
        dr.TSNE(perplexity=8, metric=metric),
        seen.known,
        coords,
        prior=GaussianPrior.fit(seen.expected),
        bounds=seen.bounds,
    )
    assert errors(seen.record(found).x, TARGETS[:2]).max() < 0.5


@pytest.mark.parametrize("metric", OTHER)
def test_estimated_affinities_follow_those_of_the_metric(metric):
    record = np.vstack([TARGETS[0], KNOWN[:50]])
    fitted = sklearn.manifold.TSNE(perplexity=8, method="exact", init="random", metric=metric, random_state=1)
    coords = fitted.fit_transform(record).astype(np.float64)
    distances = pairwise_distances(record, metric=metric)
    joint = squareform(_joint_probabilities((distances**2).astype(np.float32), 8.0, 0))
    found = tsne_affinities.estimate(KNOWN[:50], coords[None], 8.0, metric=metric)[0]
    assert np.corrcoef(found, joint[0, 1:])[0, 1] > 0.85


@pytest.mark.parametrize("metric", OTHER)
def test_distances_to_neighbours_leak_from_an_isomap_of_scikit_learn(metric):
    known, public = KNOWN[:50], PUBLIC[:150]

    def released(x):
        return sklearn.manifold.Isomap(metric=metric, n_neighbors=5).fit_transform(np.vstack([x, known]))

    coords, starts = (np.stack([released(x) for x in rows]) for rows in (TARGETS, public[:60]))
    found = geodesics.recover(known, coords, public[:60], starts, precision=1e-10, metric=metric)
    certified = found.is_certified
    assert certified.sum() >= 2
    linked = np.isfinite(found.lengths) & (found.lengths <= found.paths * (1 + 1e-9)) & certified[:, None]
    np.testing.assert_allclose(
        found.lengths[linked], pairwise_distances(TARGETS, known, metric=metric)[linked], rtol=1e-8
    )
    model = geodesics.fit(known, public, metric=metric)
    given = model.reconstruct(found, bounds=(0, 1)).x
    alone = model.regression.predict(geodesics._features(found.paths, model.reach))[:, :-1]
    assert errors(given).max() < 0.7
    assert errors(given)[certified].mean() < errors(np.clip(alone, 0, 1))[certified].mean()
