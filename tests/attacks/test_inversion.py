"""Inversion through the kernels: exact where the release decides the record, and never worse than the prior knows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE as SklearnTSNE

from drjax.attacks.reconstruction import barnes_hut, closed_form, inversion
from drjax.attacks.reconstruction.equations import Rest, TSNERest
from drjax.attacks.reconstruction.gauss_newton import Belief, Noise, descend
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status, hyperparams
from drjax.dr import MDS, PCA, TSNE, UMAP, Isomap, SparseRandomProjection
from drjax.dr.tsne.affinity import joint_probabilities
from drjax.dr.tsne.xla import gradient

DIGITS = np.random.default_rng(0).permutation(load_digits().data / 16)
KEY = jax.random.key(3)


def digits(d=64):
    """Digits in their leading directions, scaled to [0, 1]."""
    if d == 64:
        return DIGITS
    _, _, vectors = np.linalg.svd(DIGITS - DIGITS.mean(axis=0), full_matrices=False)
    x = DIGITS @ vectors[:d].T
    return (x - x.min(axis=0)) / np.ptp(x, axis=0)


def setting(n_known, n_targets, d=64):
    """Known records, targets, and a prior on others."""
    x = digits(d)
    return x[:n_known], x[500 : 500 + n_targets], GaussianPrior.fit(x[600:1600])


def releases(method, known, targets, *, randomness="fresh"):
    with jax.enable_x64(True):
        return shadow_embeddings(KEY, method, known, targets, randomness=randomness).coords


def errors(found, targets):
    return np.mean((found.x - targets) ** 2, axis=1)


def test_pca_is_exact_where_the_closed_form_is():
    known, targets, prior = setting(80, 3)
    coords = releases(PCA(), known, targets)
    found = inversion.reconstruct(KEY, PCA(), known, coords, prior=prior, noise=1e-7)
    exact = closed_form.reconstruct_pca(known, coords, prior=prior)
    np.testing.assert_allclose(exact.x, targets, atol=1e-4)  # pixels that few records light
    # The prior pulls by the square of the noise over what the equations say, in directions that they say least of.
    assert np.mean((found.x - exact.x) ** 2, axis=1).max() < 1e-6
    mirrored = inversion.reconstruct(KEY, PCA(), known, coords * [1, -1], prior=prior, noise=1e-7)
    np.testing.assert_allclose(mirrored.x, found.x, atol=1e-6)


def test_a_projection_of_known_seed_gives_the_conditional_mean():
    known, targets, prior = setting(20, 3)
    method = SparseRandomProjection()
    coords = releases(method, known, targets, randomness="shared")
    found = inversion.reconstruct(KEY, method, known, coords, prior=prior, seed_known=True, noise=1e-7)
    with jax.enable_x64(True):
        matrix = np.asarray(method.prepare(known, shared_key=jax.random.split(KEY)[1]).matrix)
    expected = prior.condition(matrix.T, coords[:, 0], 1e-12)
    # A millionth of the prior's variance is added to it, so that it is definite.
    np.testing.assert_allclose(found.x, expected, atol=1e-4)
    assert np.abs(expected - prior.mean).max() > 0.05


def test_mds_of_known_seed_is_matched_from_its_random_start():
    known, targets, prior = setting(11, 2, d=4)
    method = MDS(max_iter=60)
    coords = releases(method, known, targets, randomness="shared")
    found = inversion.reconstruct(KEY, method, known, coords, prior=prior, seed_known=True, noise=1e-7, bounds=(0, 1))
    np.testing.assert_allclose(found.x, targets, atol=1e-4)
    other = inversion.reconstruct(
        jax.random.key(4), method, known, coords, prior=prior, seed_known=True, noise=1e-7, bounds=(0, 1)
    )
    assert errors(other, targets).min() > 100 * errors(found, targets).max()


def test_a_converged_mds_is_at_rest_whatever_its_start():
    known, targets, prior = setting(39, 3, d=6)
    method = MDS(max_iter=4000, eps=1e-14)
    coords = releases(method, known, targets)
    found = inversion.reconstruct(KEY, method, known, coords, prior=prior, bounds=(0, 1))
    assert errors(found, targets).max() < 1e-3 * np.mean((prior.mean - targets) ** 2)


@pytest.fixture(scope="module")
def tsne():
    """scikit-learn's own maps from random starts, exact gradient."""
    known, targets, prior = setting(39, 3)
    maps = [
        SklearnTSNE(perplexity=8, method="exact", init="random", random_state=i).fit_transform(np.vstack([t, known]))
        for i, t in enumerate(targets)
    ]
    return known, targets, prior, np.stack(maps)


def test_maps_that_scikit_learn_made_from_random_starts_give_their_targets_away(tsne):
    known, targets, prior, coords = tsne
    found = inversion.reconstruct(KEY, TSNE(perplexity=8, init="random"), known, coords, prior=prior, bounds=(0, 1))
    mean = np.mean((prior.mean - targets) ** 2, axis=1)
    assert np.mean(errors(found, targets)) < 0.5 * np.mean(mean)
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    assert found.candidates.shape == (3, 3, 64)
    assert (found.residual_norm > 0).all()
    # Turning and mirroring a map changes no gradient's length.
    turned = coords @ np.array([[0.6, 0.8], [0.8, -0.6]])
    again = inversion.reconstruct(KEY, TSNE(perplexity=8, init="random"), known, turned, prior=prior, bounds=(0, 1))
    np.testing.assert_allclose(again.x, found.x, atol=1e-3)


@pytest.fixture(scope="module")
def library_maps():
    """scikit-learn's own maps by its default algorithm, the last with the exact repulsion."""
    known, targets, prior = setting(59, 3)
    maps = [
        SklearnTSNE(perplexity=6, angle=angle, random_state=i).fit_transform(np.vstack([t, known]))
        for i, (t, angle) in enumerate(zip(targets, (0.5, 0.5, 0.0), strict=True))
    ]
    return known, targets, prior, np.stack(maps)


def equations_of(known, perplexity):
    between = jnp.sum((known[:, None] - known) ** 2, axis=-1)
    return TSNERest(known=known, between=between, perplexity=perplexity)


def test_maps_by_barnes_hut_are_at_rest_with_affinities_to_the_nearest(library_maps):
    known, targets, _, coords = library_maps
    with jax.enable_x64(True):
        known, target, release = (jnp.asarray(a, jnp.float64) for a in (known, targets[2], coords[2]))
        every = equations_of(known, 6)
        nearest = every.nearest()
        others, rows = nearest._neighbors(jnp.sum((target - known) ** 2, axis=1))
        assert int(others.sum()) == 19
        np.testing.assert_array_equal(rows.sum(axis=1), 19)
        cut, full = (float(jnp.linalg.norm(e.residual(release, target))) for e in (nearest, every))
        # What the descent of 1,000 iterations in float32 has left, against affinities that are not in the map.
        assert cut < 0.05 * full
        r, jacobian = jax.jit(nearest.linearise)(release, target)
        change = 1e-6 * jnp.asarray(np.random.default_rng(0).normal(size=64))
        moved = nearest.residual(release, target + change) - nearest.residual(release, target - change)
        along = jacobian @ nearest.forward(target, change)
        np.testing.assert_allclose(moved / 2, along, atol=1e-4 * float(jnp.max(jnp.abs(along))))
        np.testing.assert_allclose(r, nearest.residual(release, target), atol=1e-15)
        # Of a record elsewhere, with the neighbours of this one.
        far = jnp.zeros(64)
        assert float(jnp.max(jnp.abs(nearest.residual(release, far, target) - nearest.residual(release, far)))) > 0
        assert equations_of(known, 25).nearest().n_neighbors is None


def test_maps_by_barnes_hut_are_at_rest_with_its_repulsion(library_maps):
    known, targets, _, coords = library_maps
    with jax.enable_x64(True):
        known, coords = jnp.asarray(known, jnp.float64), coords.astype(np.float64)
        nearest = equations_of(known, 6).nearest()
        for target, release in zip(targets[:2], coords[:2], strict=True):
            own = dataclasses.replace(nearest, excess=jnp.asarray(barnes_hut.excess(release)))
            exact, tree = (float(jnp.linalg.norm(e.residual(release, target))) for e in (nearest, own))
            # The rest is where the descent ended, after 1,000 iterations.
            assert tree < 0.9 * exact, (tree, exact)
            # Nothing that the record decides has changed.
            np.testing.assert_allclose(own.linearise(release, target)[1], nearest.linearise(release, target)[1])
            np.testing.assert_allclose(
                own.linearise(release, target)[0], own.residual(release, target), atol=1e-12 * exact
            )
        ways = inversion._makings(equations_of(known, 6), coords, np.stack([targets, targets], axis=1))
        assert [(w.excess is not None, at.tolist()) for w, at in ways] == [(False, [2]), (True, [0, 1])]


def test_maps_by_barnes_hut_give_their_targets_away(library_maps):
    known, targets, prior, coords = library_maps
    exact = SklearnTSNE(perplexity=6, method="exact", random_state=0).fit_transform(np.vstack([targets[0], known]))
    mixed = np.stack([coords[0], exact, coords[1]])
    aims = targets[[0, 0, 1]]
    found = inversion.reconstruct(KEY, TSNE(perplexity=6), known, mixed, prior=prior, bounds=(0, 1))
    mean = np.mean((prior.mean - aims) ** 2, axis=1)
    assert (errors(found, aims) < 0.5 * mean).all(), errors(found, aims) / mean
    # Each is recognised by itself, whatever lies beside it.
    alone = inversion.reconstruct(KEY, TSNE(perplexity=6), known, mixed[1], prior=prior, bounds=(0, 1))
    np.testing.assert_allclose(alone.x, found.x[1], atol=1e-6)


def test_the_formulas_of_tsne_are_the_derivatives_of_its_objective(tsne):
    known, targets, _, coords = tsne
    with jax.enable_x64(True):
        known, target, release = (jnp.asarray(a, jnp.float64) for a in (known, targets[1], coords[0]))
        general = Rest(method=TSNE(perplexity=8), known=known)
        between = jnp.sum((known[:, None] - known) ** 2, axis=-1)
        own = TSNERest(known=known, between=between, perplexity=8)
        r, jacobian = jax.jit(general.linearise)(release, target)
        # The kernel's bandwidths meet their entropy to 1e-5 nats only.
        scale = float(jnp.max(jnp.abs(r)))
        residual = jax.jit(own.residual)(release, target)
        np.testing.assert_allclose(residual, r, atol=1e-4 * scale)
        found, derivative = jax.jit(own.linearise)(release, target)
        np.testing.assert_allclose(found, residual, atol=1e-12 * scale)
        rows = jax.vmap(lambda row: own.backward(target, row))(derivative)
        np.testing.assert_allclose(rows, jacobian, atol=1e-4 * float(jnp.max(jnp.abs(jacobian))))
        change = jnp.asarray(np.random.default_rng(0).normal(size=64))
        np.testing.assert_allclose(derivative @ own.forward(target, change), rows @ change, rtol=1e-9, atol=1e-12)
        covariance = jnp.asarray(np.cov(DIGITS.T))
        dense = jax.vmap(lambda row: own.backward(target, row))(jnp.eye(39))
        np.testing.assert_allclose(
            own.gram(target, own.loading(covariance)), dense @ covariance @ dense.T, rtol=1e-8, atol=1e-10
        )
        curvature = jax.jit(general.curvature)(release, target)
        np.testing.assert_allclose(
            jax.jit(own.curvature)(release, target), curvature, atol=1e-3 * float(jnp.max(curvature))
        )


@pytest.mark.parametrize("k", [1, 3])
def test_forces_of_other_dimensions_are_those_of_the_descent(k):
    known, targets, _ = setting(15, 1)
    with jax.enable_x64(True):
        x = jnp.concatenate([jnp.asarray(targets), jnp.asarray(known)])
        squared = jnp.sum((x[:, None] - x) ** 2, axis=-1)
        own = TSNERest(known=x[1:], between=squared[1:, 1:], perplexity=4)
        coords = jnp.asarray(np.random.default_rng(0).normal(size=(16, k)))
        expected = gradient(joint_probabilities(squared, 4.0, tol=1e-12), coords).ravel()
        np.testing.assert_allclose(jax.jit(own.residual)(coords, x[0]), expected, atol=1e-8)
        found, _ = jax.jit(own.linearise)(coords, x[0])
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_a_descent_on_linear_equations_ends_in_the_closed_form():
    @hyperparams
    class Linear(Rest):
        def residual(self, release, x, about=None):
            assert about is None or about.shape == x.shape
            return self.known @ x - release

        def linearise(self, release, x):
            return self.residual(release, x), self.known

    rng = np.random.default_rng(0)
    operator, values, half = rng.normal(size=(5, 8)), rng.normal(size=5), rng.normal(size=(8, 8))
    covariance, scale = half @ half.T + np.eye(8), rng.uniform(0.1, 1, 5)
    with jax.enable_x64(True):
        equations = Linear(method=PCA(), known=jnp.asarray(operator))
        belief = Belief(jnp.ones(8), jnp.asarray(covariance))
        found = descend(
            equations, jnp.asarray(values), Noise(jnp.asarray(scale), None), belief, jnp.zeros(8), max_iter=100
        )
    gain = covariance @ operator.T @ np.linalg.inv(operator @ covariance @ operator.T + np.diag(scale**2))
    # It stops when the objective has settled to a thousandth.
    np.testing.assert_allclose(found.x, 1 + gain @ (values - operator @ np.ones(8)), atol=1e-2)
    assert bool(found.converged)


def test_a_descent_that_runs_out_of_steps_says_so():
    known, targets, prior = setting(20, 3)
    method = SparseRandomProjection()
    coords = releases(method, known, targets, randomness="shared")
    found = inversion.reconstruct(KEY, method, known, coords[0], prior=prior, seed_known=True, max_iter=1)
    assert found.status == Status.NOT_CONVERGED
    assert found.x.shape == (64,)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"coords": np.zeros((2, 9, 2))}, r"coords must have shape \(m, 10, 2\)"),
        ({"coords": np.full((2, 10, 2), np.nan)}, "coords must be finite"),
        ({"prior": GaussianPrior.isotropic(np.zeros(3))}, "prior must be of 4 features"),
        ({"bounds": (1, 0)}, "bounds must be"),
        ({"noise": 0.0}, "noise must be > 0"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1"),
        ({"guesses": np.zeros((3, 4))}, r"guesses must have shape \(2, 4\)"),
        ({"match": "both"}, "match must be one of"),
        ({"match": "gradient"}, "match must not be 'gradient' for 'pca'"),
        ({"method": SparseRandomProjection()}, "seed is not known"),
        ({"method": MDS(), "match": "release"}, "whose seed is not known"),
        ({"method": TSNE(perplexity=3), "match": "release"}, "match must be 'gradient' for 'tsne'"),
        ({"method": UMAP(n_neighbors=3), "match": "release", "seed_known": True}, "must be 'gradient' for 'umap'"),
        ({"method": Isomap(n_neighbors=3), "match": "gradient"}, "match must not be 'gradient' for 'isomap'"),
        ({"key": 0}, "key must be a single key"),
    ],
)
def test_bad_input_is_refused_by_name(change, match):
    arguments = {
        "key": KEY,
        "method": PCA(),
        "known": np.random.default_rng(0).normal(size=(9, 4)),
        "coords": np.zeros((2, 10, 2)),
        "prior": GaussianPrior.isotropic(np.zeros(4)),
        **change,
    }
    positional = [arguments.pop(name) for name in ("key", "method", "known", "coords")]
    with pytest.raises(ValueError, match=match):
        inversion.reconstruct(*positional, **arguments)


def test_every_feature_keeps_its_own_variance_in_the_prior_whatever_its_units():
    covariance = np.diag([1e10, 1.0, 1e-10, 0.0])
    made = inversion.definite(covariance)
    np.testing.assert_allclose(np.diag(made)[:3], [1e10, 1.0, 1e-10], rtol=1e-5)  # 1e-6 is added
    assert np.linalg.eigvalsh(made).min() > 0
