"""Releases that PCA-Gauss is compared with: sensitivities by search, budgets by audit, limits, closed forms."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from drjax.bounds import auditing, tradeoff
from drjax.synthesis.budget import Budget, plan
from drjax.synthesis.contract import Box, SynthesisMethod, Synthesizer
from drjax.synthesis.frame import components_in_frame, in_unit_ball
from experiments.pca_gauss import baselines
from experiments.pca_gauss.baselines import (
    BASELINES,
    MODIPS,
    BernoulliIdentity,
    ExponentialMechanism,
    LDAIdentity,
    PCAIdentity,
    RandomProjectionGauss,
)
from experiments.pca_gauss.baselines.identity import projected

KEY = jax.random.key(0)
D = 4
BOX = Box.of(-1.0, 3.0, d=D)
COMMON = {"neighbouring": "replace_one", "box": BOX}
N_PAIRS = 100_000


def records(seed: int = 0, n: int = 40, d: int = D) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 3, size=(n, d))


def classes(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] > 1).astype(np.int32)


def methods(**labels):
    x = records(9, n=60)
    found = {
        "bernoulli": BernoulliIdentity(**COMMON, n_components=2, **labels),
        "private-pca": PCAIdentity(**COMMON, n_components=2, **labels),
        "public-pca": PCAIdentity.from_public(x, **COMMON, n_components=2, **labels),
        "exponential": ExponentialMechanism(**COMMON, n_candidates=20, n_records=10, n_queries=15, **labels),
        "modips": MODIPS(**COMMON, **labels),
        "random-projection": RandomProjectionGauss(**COMMON, n_components=2, **labels),
    }
    if labels.get("n_classes"):
        found["lda"] = LDAIdentity.from_public(x, classes(x), **COMMON, **labels)
    return found


def neighbours(rng: np.random.Generator, n: int, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of records in the box: corners, points inside, and opposite ones."""
    pairs = rng.uniform(-1.5, 3.5, size=(2, n, d))
    corners = rng.uniform(size=(2, n, 1)) < 0.7
    pairs = np.where(corners, np.where(pairs > 1, 3.0, -1.0), pairs)
    opposite = rng.uniform(size=n) < 0.3
    pairs[1, opposite] = 2 - pairs[0, opposite]
    return pairs[0], pairs[1]


def release_of(method, x, y, key):
    fit_key, sample_key = jax.random.split(key)
    synthesizer = method.fit(fit_key, x, y, 1.0, 1e-5)
    return synthesizer, synthesizer.sample(sample_key, 50)


@pytest.mark.parametrize("name", list(methods(n_classes=2)))
def test_a_batch_over_keys_is_a_loop_and_wild_records_are_cut_before_anything_is_released(name):
    x, y = records(), jnp.full(40, 7)
    x[0], x[1] = np.nan, 1e9
    method = methods(n_classes=2)[name]
    made = functools.partial(release_of, method)
    batch, drawn = jax.jit(jax.vmap(made, in_axes=(None, None, 0)))(x, y, jax.random.split(KEY, 3))
    one, (one_x, one_y) = jax.jit(made)(x, y, jax.random.split(KEY, 3)[1])
    assert isinstance(method, SynthesisMethod)
    assert isinstance(one, Synthesizer)
    width = one.transform(x).shape[1]
    assert drawn.x.shape == (3, 50, width)
    # Factorisations of a batch round differently; the noise is ten times the records and more.
    np.testing.assert_allclose(drawn.x[1], one_x, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(drawn.y[1], one_y)
    assert np.isfinite(drawn.x).all()
    assert set(np.unique(drawn.y)) <= {0, 1}
    assert batch.guarantee.epsilon(1e-5) <= 1 + 1e-6
    assert batch.guarantee.curve.neighbouring == "replace_one"
    if width == D:
        assert float(drawn.x.min()) >= -1
        assert float(drawn.x.max()) <= 3


@pytest.mark.parametrize("name", list(methods()))
def test_every_method_serves_records_alone_and_records_with_numbers(name):
    x = records()
    alone = methods()[name]
    drawn = jax.eval_shape(functools.partial(release_of, alone, x, None), KEY)[1]
    assert drawn.y is None
    assert drawn.x.shape[0] == 50
    numbers = dataclasses.replace(alone, target_range=(-1.0, 3.0))
    made = jax.jit(functools.partial(release_of, numbers))(x, x[:, 0], KEY)[1]
    assert made.x.shape == drawn.x.shape
    assert made.y.shape == (50,)
    assert float(made.y.min()) >= -1
    assert float(made.y.max()) <= 3
    assert set(alone.tasks) == {"unsupervised", "classification", "regression"}


def test_registry_has_every_baseline_of_the_paper():
    assert sorted(BASELINES) == sorted(m.name for m in BASELINES.values())
    assert len(BASELINES) == 6
    assert set(baselines.__all__) >= {method.__name__ for method in BASELINES.values()}


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
@pytest.mark.parametrize("p", [1, 4])
def test_no_neighbour_moves_a_projected_record_by_more_than_its_sensitivity_and_some_by_as_much(relation, p):
    rng = np.random.default_rng(p)
    x, z = neighbours(rng, N_PAIRS)
    if relation == "zero_out":
        z = np.ones_like(z)  # the middle of the box
    # Along the axes, or for p = 1 along the diagonal, the corners of the box are the extreme points.
    components = np.eye(D) if p == D else np.full((1, D), 1 / math.sqrt(D))
    method = PCAIdentity(neighbouring=relation, box=BOX, n_components=p, components=components)
    moved = np.asarray(projected(BOX, x, components, method.bound)) - np.asarray(
        projected(BOX, z, components, method.bound)
    )
    l1, l2 = np.abs(moved).sum(axis=1).max(), np.linalg.norm(moved, axis=1).max()
    laplace = method.mechanism(p, 1.0, 0.0).sensitivity
    # Single precision.
    assert l1 <= laplace * (1 + 1e-6)
    assert l1 >= 0.999 * laplace
    assert l2 <= laplace / math.sqrt(p) * (1 + 1e-6)
    assert l1 > laplace / 1.01  # a sensitivity that is one per cent too small is caught


@pytest.mark.parametrize("row_norm", [None, 0.7])
def test_clipping_holds_for_projections_that_lengthen_records(row_norm):
    rng = np.random.default_rng(0)
    x, z = neighbours(rng, N_PAIRS)
    method = BernoulliIdentity(**COMMON, n_components=2, row_norm=row_norm)
    longest = 0.0
    for seed in range(3):
        fit = method.fit(jax.random.key(seed), x[:5], None, 1.0, 0.0)
        np.testing.assert_allclose(np.abs(fit.components), 1 / math.sqrt(2), rtol=1e-6)
        moved = np.asarray(fit.transform(x)) - np.asarray(fit.transform(z))
        longest = max(longest, np.abs(moved).sum(axis=1).max())
    assert longest <= method.mechanism(2, 1.0, 0.0).sensitivity * (1 + 1e-6)  # single precision


def test_paper_takes_sqrt_p_times_the_noise_and_releases_labels_with_a_guarantee_that_says_so():
    x = records()
    sound, paper = (BernoulliIdentity(**COMMON, n_components=4, n_classes=2, paper=p) for p in (False, True))
    ratio = paper.mechanism(4, 1.0, 0.0).scale / sound.mechanism(4, 1.0, 0.0).scale
    assert ratio == pytest.approx(2)
    with pytest.warns(UserWarning, match="not private"):
        fit = paper.fit(KEY, x, classes(x), 1.0, 0.0)
    np.testing.assert_array_equal(fit.y, classes(x))
    assert fit.guarantee.epsilon(1e-3) == math.inf
    assert "as they are" in fit.guarantee.proven
    without = dataclasses.replace(paper, n_classes=None).fit(KEY, x, None, 1.0, 0.0)
    assert without.guarantee.epsilon(0.0) == pytest.approx(1)


def test_gaussian_noise_is_taken_where_it_has_the_smaller_variance():
    few, many = BernoulliIdentity(**COMMON, n_components=1), BernoulliIdentity(**COMMON, n_components=4)
    laplace, gaussian = few.mechanism(1, 1.0, 1e-5), many.mechanism(40, 1.0, 1e-5)
    assert isinstance(laplace.curve, tradeoff.Laplace)
    assert isinstance(gaussian.curve, tradeoff.Gaussian)
    assert gaussian.scale**2 < 2 * many.mechanism(40, 1.0, 0.0).scale ** 2


def test_identity_without_noise_is_the_projection_and_labels_are_the_labels():
    x = records()
    for name, method in methods(n_classes=2).items():
        if name not in ("bernoulli", "public-pca", "lda"):
            continue
        fit = jax.jit(functools.partial(method.fit, epsilon=1e9, delta=0.0))(KEY, x, classes(x))
        np.testing.assert_allclose(fit.x, fit.transform(x), atol=1e-5, err_msg=name)  # noise of 1e-8 and rounding
        np.testing.assert_array_equal(fit.y, classes(x))
    numbers = dataclasses.replace(methods()["bernoulli"], target_range=(-1.0, 3.0)).fit(KEY, x, x[:, 1], 1e9, 0.0)
    np.testing.assert_allclose(numbers.y, x[:, 1], atol=1e-5)


def test_public_components_are_those_of_scikit_learn():
    x = records(3, n=200) * [1.0, 0.5, 0.3, 0.1]
    found = PCAIdentity.from_public(x, **COMMON, n_components=2).components
    theirs = PCA(2).fit(np.asarray(BOX.encode(x), np.float64)).components_
    np.testing.assert_allclose(np.abs(found @ theirs.T), np.eye(2), atol=1e-5)  # single precision of the encoding
    flat = PCAIdentity.from_public(np.ones((5, D)), **COMMON, n_components=3).components
    np.testing.assert_allclose(flat @ flat.T, np.eye(3), atol=1e-12)


def test_discriminant_directions_are_those_of_scikit_learn_without_shrinkage_where_records_are_many():
    x = records(3, n=20_000)
    y = np.digitize(x @ [1.0, 2, 0, -1], [1, 3])
    for kept in (y < 2, y < 3):
        found = LDAIdentity.from_public(x[kept], y[kept], **COMMON, n_classes=3).components
        theirs = LinearDiscriminantAnalysis(solver="svd").fit(np.asarray(BOX.encode(x[kept]), np.float64), y[kept])
        # The same subspace; shrinkage goes with the number of records.
        other = np.linalg.qr(theirs.scalings_)[0]
        assert found.shape == (len(np.unique(y[kept])) - 1, D)
        np.testing.assert_allclose(np.linalg.svd(found @ other)[1], 1, atol=1e-3)


def test_randomised_response_keeps_a_class_as_often_as_its_budget_allows():
    method = BernoulliIdentity(**COMMON, n_components=1, n_classes=3)
    y = jnp.ones(20_000, jnp.int32)
    found = np.bincount(method.with_noise(KEY, y, math.log(2), float), minlength=3) / 20_000
    # exp(epsilon) = 2: shares 1/4, 2/4, 1/4; four deviations of a share are 0.014.
    np.testing.assert_allclose(found, [0.25, 0.5, 0.25], atol=0.014)


def test_the_identity_survives_an_audit_of_its_claim_and_not_one_of_half_of_it():
    x = np.concatenate([np.full((1, D), -1.0), records(n=3)])
    other = np.concatenate([np.full((1, D), 3.0), x[1:]])
    # Two equal features as components: all of the distance between the corners is in one coordinate.
    method = PCAIdentity(**COMMON, n_components=1, components=np.full((1, D), 0.5))

    def run(key, x):
        return method.fit(key, x, None, 1.0, 0.0).x[0]

    claim = jax.eval_shape(lambda: method.fit(KEY, x, None, 1.0, 0.0)).guarantee.curve
    options = {"n": 20_000, "delta": 0.0}
    kept = auditing.audit_mechanism(KEY, run, x, other, claim=claim, **options)
    assert not kept.is_refuted
    assert kept.epsilon_lower > 0.8
    half = tradeoff.Laplace(0.5, neighbouring="replace_one")
    assert auditing.audit_mechanism(KEY, run, x, other, claim=half, **options).is_refuted


TINY = {"n_candidates": 5, "n_records": 3, "n_queries": 8, "levels": 3}


@functools.partial(jax.jit, static_argnums=0)
def candidates_of(method):
    return jnp.stack([method.candidate(i, jnp.float32)[0] for i in range(5)])


def test_exponential_mechanism_chooses_by_the_closed_form():
    x = records(n=6)
    method = ExponentialMechanism(**COMMON, **TINY)
    candidates = np.asarray(candidates_of(method))
    assert set(np.unique(np.abs(candidates))) <= {0.0, 1.0}
    z = np.asarray(BOX.encode(x))
    group = np.zeros(6, int)
    answers = jax.jit(method.answers)
    truth = np.asarray(answers(z, group))
    errors = [np.abs(np.asarray(answers(c, np.zeros(3, int))) - truth).max() for c in candidates]
    expected = softmax(3.0 * 6 / 2 * -np.array(errors))
    fits = jax.jit(jax.vmap(lambda key, x: method.fit(key, x, None, 3.0, 0.0).x, in_axes=(0, None)))
    chosen = fits(jax.random.split(KEY, 20_000), x)
    shown = np.asarray(jax.jit(BOX.decode)(candidates))
    counts = np.array([(np.abs(np.asarray(chosen) - c).max(axis=(1, 2)) < 1e-6).mean() for c in shown])
    assert counts.sum() == 1
    # Four deviations of a share of 20,000.
    np.testing.assert_allclose(counts, expected, atol=0.014)


def test_queries_of_the_exponential_mechanism_are_shares_of_half_spaces_and_classes():
    method = ExponentialMechanism(**COMMON, **TINY, n_classes=2)
    z, group = np.asarray(BOX.encode(records(n=30))), np.arange(30) % 2
    answers = jax.jit(method.answers)
    both, first = answers(z, group), answers(z[group == 0], group[group == 0])
    of_all = np.arange(8) % 3 == 2
    of_first = np.arange(8) % 3 == 0
    np.testing.assert_allclose(np.asarray(both)[of_first], np.asarray(first)[of_first] / 2, atol=1e-6)
    anybody = answers(z, np.ones(30, int))
    np.testing.assert_allclose(np.asarray(both)[of_all], np.asarray(anybody)[of_all], atol=1e-6)


def test_no_neighbour_moves_a_quality_by_more_than_one_over_n_and_some_by_as_much():
    method = ExponentialMechanism(**COMMON, **TINY, n_classes=2)
    rng = np.random.default_rng(0)
    n, n_pairs = 4, 20_000  # five candidates each: 1e5 qualities
    old, new = neighbours(rng, n_pairs)
    rest, groups = rng.uniform(-1, 3, size=(n_pairs, n - 1, D)), rng.integers(2, size=(2, n_pairs, n))
    groups[1, :, 1:] = groups[0, :, 1:]
    qualities = jax.jit(jax.vmap(method.qualities))
    first, second = (
        np.asarray(qualities(np.concatenate([x[:, None], rest], axis=1), g))
        for x, g in zip((old, new), groups, strict=True)
    )
    largest = np.abs(first - second).max()
    assert largest <= 1 / n + 1e-6  # single precision
    assert largest >= 1 / n - 1e-6


def test_exponential_mechanism_survives_an_audit_of_its_claim_and_not_one_of_a_quarter_of_it():
    method = ExponentialMechanism(**COMMON, **TINY)
    shown = BOX.decode(candidates_of(method))
    # Of many pairs of neighbours the one that is told apart best.
    first, second = (
        np.stack([side, np.full_like(side, -1)], axis=1) for side in neighbours(np.random.default_rng(0), 500)
    )
    logs = jax.jit(jax.vmap(lambda x: jax.nn.log_softmax(method.log_weights(x, None, 4.0))))
    ratios = logs(second) - logs(first)
    worst = int(jnp.argmax(jnp.abs(ratios).max(axis=1)))
    assert 2 < float(jnp.abs(ratios[worst]).max()) <= 4

    def score(released):
        return ratios[worst][jnp.argmin(jnp.abs(shown - released).max(axis=(1, 2)))]

    def run(key, x):
        return method.fit(key, x, None, 4.0, 0.0).x

    curve = tradeoff.EpsilonDelta(4.0, 0.0, neighbouring="replace_one")
    options = {"n": 20_000, "delta": 0.0, "score": score}
    kept = auditing.audit_mechanism(KEY, run, first[worst], second[worst], claim=curve, **options)
    assert not kept.is_refuted
    wrong = tradeoff.EpsilonDelta(1.0, 0.0, neighbouring="replace_one")
    assert auditing.audit_mechanism(KEY, run, first[worst], second[worst], claim=wrong, **options).is_refuted


@pytest.mark.parametrize("relation", ["replace_one", "zero_out", "add_or_remove"])
@pytest.mark.parametrize("n_classes", [None, 2])
def test_no_neighbour_moves_the_sums_of_modips_by_more_than_their_sensitivity(relation, n_classes):
    method = MODIPS(neighbouring=relation, box=BOX, n_classes=n_classes, mean_weight=1.5)
    rng = np.random.default_rng(0)
    x, z = neighbours(rng, N_PAIRS)
    group = rng.integers(2, size=(2, N_PAIRS)) if n_classes else np.zeros((2, N_PAIRS), int)

    def w(x):
        u = np.asarray(BOX.encode(x))
        return np.concatenate([np.full((len(u), 1), 1.5), u], axis=1)

    rows, columns = np.triu_indices(D + 1)
    first, second = (v[:, rows] * v[:, columns] for v in (w(x), w(z)))
    if relation != "replace_one":
        second = np.zeros_like(second)
    same = group[0] == group[1]
    apart = np.abs(first).sum(axis=1) + np.abs(second).sum(axis=1)
    l1 = np.where(same, np.abs(first - second).sum(axis=1), apart).max()
    twice = np.where(rows == columns, 1, 2)
    frobenius = (((first - second) ** 2) @ twice, (first**2 + second**2) @ twice)
    l2 = math.sqrt(np.where(same, *frobenius).max())
    pure = plan(1.0, 0.0, Budget(), steps=("moments",), neighbouring=relation)
    mixed = plan(1.0, 1e-5, Budget(), steps=("moments",), neighbouring=relation)
    noise_l1, noise_l2 = method.scale(pure) * pure.spend["moments"], method.scale(mixed) * mixed.spend["moments"]
    # Single precision.
    assert l1 <= noise_l1 * (1 + 1e-6)
    assert l2 <= noise_l2 * (1 + 1e-6)
    # Within a class a record's replacement cannot change its count, nor all products at once.
    assert l1 >= (0.7 if relation == "replace_one" and n_classes is None else 0.999) * noise_l1
    # What `sums` adds up is this.
    one = MODIPS(neighbouring=relation, box=BOX, mean_weight=1.5).sums(x[:1], None)[0]
    np.testing.assert_allclose(np.asarray(one)[rows, columns], first[0], atol=1e-5)


def test_modips_without_noise_has_the_moments_of_the_records_of_each_class():
    x = records(n=500)
    y = classes(x)
    fit = jax.jit(lambda key: MODIPS(**COMMON, n_classes=2).fit(key, x, y, 1e9, 0.0))(KEY)
    z = np.asarray(BOX.encode(x), np.float64)
    for k in range(2):
        # Single precision of second moments.
        np.testing.assert_allclose(fit.mixture.means[k], z[y == k].mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(fit.mixture.covariances[k], np.cov(z[y == k].T, bias=True), atol=1e-5)
    np.testing.assert_allclose(fit.mixture.weights, np.bincount(y) / 500, atol=1e-5)
    np.testing.assert_allclose(fit.transform(x), x, atol=1e-5)


def test_random_projection_keeps_every_record_in_the_ball_that_its_noise_is_for():
    method = RandomProjectionGauss(**COMMON, n_components=2)
    x, _ = neighbours(np.random.default_rng(0), N_PAIRS)
    fits = jax.jit(jax.vmap(lambda key: method.fit(key, records(), None, 1.0, 1e-5)))(jax.random.split(KEY, 200))
    fit = jax.tree.map(lambda leaf: leaf[0], fits)
    v, _ = in_unit_ball(BOX.encode(x), False)
    # A projection that lengthens everything tenfold.
    z = components_in_frame(v, fit.frame, 10 * fit.components, False)
    norms = np.linalg.norm(z, axis=1)
    assert norms.max() <= 1 + 1e-6
    assert norms.max() >= 1 - 1e-6
    # Entries of variance 1 / p keep norms on average: |R u|^2 has deviation |u|^2 over the draws of R.
    assert np.mean(np.sum(fits.components**2, axis=(1, 2))) / D == pytest.approx(1, abs=0.15)


def test_synthetic_records_show_every_released_record_before_any_twice():
    fit = BernoulliIdentity(**COMMON, n_components=2).fit(KEY, records(), None, 1.0, 0.0)
    drawn = np.asarray(fit.sample(KEY, 100).x)
    np.testing.assert_array_equal(np.unique(drawn[:40], axis=0), np.unique(fit.x, axis=0))
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert set(counts) == {2, 3}


def test_what_cannot_be_private_or_fitted_is_refused():
    x = records()
    method = BernoulliIdentity(**COMMON, n_components=2)
    with pytest.raises(ValueError, match="neighbouring must be one of"):
        BernoulliIdentity(neighbouring="add_or_remove", box=BOX, n_components=2)
    with pytest.raises(ValueError, match="neighbouring must be one of"):
        ExponentialMechanism(neighbouring="add_or_remove", box=BOX)
    for epsilon, delta, name in (
        (0.0, 0.0, "epsilon"),
        (math.nan, 0.0, "epsilon"),
        (1.0, 1.0, "delta"),
        (1.0, -0.1, "delta"),
    ):
        with pytest.raises(ValueError, match=name):
            method.fit(KEY, x, None, epsilon, delta)
    with pytest.raises(ValueError, match="must have 4 columns"):
        method.fit(KEY, x[:, :2], None, 1.0, 0.0)
    with pytest.raises(ValueError, match="n_classes or target_range must be given"):
        method.fit(KEY, x, classes(x), 1.0, 0.0)
    with pytest.raises(ValueError, match="y must have an entry"):
        dataclasses.replace(method, n_classes=2).fit(KEY, x, None, 1.0, 0.0)
    with pytest.raises(ValueError, match="must not both be given"):
        dataclasses.replace(method, n_classes=2, target_range=(0.0, 1.0))
    with pytest.raises(ValueError, match="orthonormal"):
        PCAIdentity(**COMMON, n_components=1, components=np.ones((1, D)))
    with pytest.raises(ValueError, match="decode must be False"):
        RandomProjectionGauss(**COMMON, n_components=2, decode=True)
