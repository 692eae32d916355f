"""Deviations of columns: what cutting, left-out directions and the box take off, and that it is put back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from drjax.synthesis import correction
from drjax.synthesis.contract import Box
from drjax.synthesis.frame import CLIP_FACTORS
from drjax.synthesis.pca_gauss import PCAGauss
from drjax.synthesis.ron_gauss import RONGauss

N, M = 4000, 8
PLENTY, DELTA = 1e6, 1e-6
DEVIATIONS = np.array([0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.03, 0.02])
BOX = Box.of(-1.0, 1.0, M)


def gaussians(seed=0, n=N):
    """Gaussian columns, well within the box, in rotated pairs so that components are not columns."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, M)) * DEVIATIONS
    turn = np.kron(np.eye(M // 2), np.array([[0.8, -0.6], [0.6, 0.8]]))
    return (z @ turn + 0.05).astype(np.float32)


def method(**fields):
    return PCAGauss(**{"neighbouring": "replace_one", "box": BOX, "n_components": 3, **fields})


def ratios(fit, x):
    return np.asarray(fit.sample(jax.random.key(1), 20_000).x).std(axis=0) / x.std(axis=0)


@pytest.mark.parametrize(("fields", "tolerance"), [({}, 0.05), ({"clip_factor": 0.8}, 0.2)])
def test_with_a_huge_epsilon_columns_of_gaussians_have_their_deviations(fields, tolerance):
    x = gaussians()
    found = method(**fields).fit(jax.random.key(0), x, None, PLENTY, DELTA)
    # 20,000 draws: 0.5%. At 0.8 two records in three are cut, strong directions more than weak ones: 4% less, 16% more.
    np.testing.assert_allclose(ratios(found, x), 1, atol=tolerance)


def test_without_the_correction_cutting_and_left_out_directions_shrink_columns():
    x = gaussians()
    found = method(clip_factor=0.8, correct=False).fit(jax.random.key(0), x, None, PLENTY, DELTA)
    assert ratios(found, x).max() < 0.9
    assert ratios(found, x).min() < 0.3


def test_a_release_is_corrected_as_a_fit_is_and_so_are_classes_and_private_counts():
    x = gaussians()
    y = (x[:, 0] > 0).astype(np.int32)
    published = method().release(x, None, PLENTY, DELTA)
    np.testing.assert_allclose(ratios(published, x), 1, atol=0.05)
    made = method(n_classes=2, n_components=M, composition="parallel", neighbouring="add_or_remove")
    # Three records in ten tell of the columns, the others of the components.
    np.testing.assert_allclose(ratios(made.fit(jax.random.key(0), x, y, PLENTY, DELTA), x), 1, atol=0.06)


def test_columns_that_crowd_at_an_end_of_the_box_keep_mean_and_deviation():
    rng = np.random.default_rng(0)
    x = gaussians()
    x[:, 3] = np.where(rng.uniform(size=N) < 0.08, rng.uniform(-1, 1, N), -1)
    x[:, 4] = np.clip(0.9 + 0.3 * rng.normal(size=N), -1, 1)
    y = (rng.uniform(size=N) < np.where(x[:, 3] > -1, 0.8, 0.2)).astype(np.int32)
    found = method(n_classes=2, n_components=M).fit(jax.random.key(0), x, y, PLENTY, DELTA)
    made = found.sample(jax.random.key(1), 20_000)
    mx, my = np.asarray(made.x), np.asarray(made.y)
    # 40,000 draws of a column that is nearly always at its end.
    np.testing.assert_allclose(mx.std(axis=0) / x.std(axis=0), 1, atol=0.05)
    np.testing.assert_allclose(mx.mean(axis=0), x.mean(axis=0), atol=0.01)
    for k in (0, 1):
        np.testing.assert_allclose(mx[my == k].mean(axis=0), x[y == k].mean(axis=0), atol=0.02)
    plain = method(n_classes=2, n_components=M, correct=False).fit(jax.random.key(0), x, y, PLENTY, DELTA)
    assert np.asarray(plain.sample(jax.random.key(1), 20_000).x)[:, 3].std() < 0.8 * x[:, 3].std()


def test_random_directions_and_records_of_norm_one_keep_the_total_variance():
    x = gaussians() + np.float32(0.3)
    for made in (method(projection="random"), RONGauss(neighbouring="replace_one", box=BOX, n_components=3)):
        drawn = np.asarray(made.fit(jax.random.key(0), x, None, PLENTY, DELTA).sample(jax.random.key(1), 20_000).x)
        # Norms of RON-Gauss are one mean norm for all, and those of its directions.
        assert np.trace(np.cov(drawn.T)) / np.trace(np.cov(x.T)) == pytest.approx(1, abs=0.15)


def test_however_large_the_noise_corrections_are_finite_and_records_within_the_box():
    found = method().fit(jax.random.key(0), gaussians(), None, 1e-4, DELTA)
    for leaf in jax.tree.leaves(found.correction):
        assert np.isfinite(leaf).all()
    assert np.abs(np.asarray(found.sample(jax.random.key(1), 500).x)).max() <= 1


# ---- the clip factor


def test_the_chosen_clip_factor_depends_on_no_record_and_grows_with_epsilon():
    x = gaussians()
    other = x.copy()
    other[0] = -1
    factors = []
    for epsilon in (0.01, 1.0, 10.0, 1e3, 1e6):
        pair = []
        for records in (x, other, np.zeros_like(x)):
            frame = method().fit(jax.random.key(0), records, None, epsilon, DELTA).frame
            pair.append(float(frame.radius / np.sqrt(frame.spread)))
        np.testing.assert_allclose(pair, pair[0], rtol=1e-5)  # float32
        factors.append(pair[0])
    assert factors == sorted(factors)
    assert (factors[0], factors[-1]) == pytest.approx(CLIP_FACTORS, rel=1e-5)
    assert len({round(factor, 3) for factor in factors}) >= 3
    frame = method(clip_factor=1.7).fit(jax.random.key(0), x, None, 1.0, DELTA).frame
    assert float(frame.radius / np.sqrt(frame.spread)) == pytest.approx(1.7, rel=1e-5)


# ---- parts


@pytest.mark.parametrize(("dof", "trace"), [(1.0, 0.3), (6.0, 1.2), (40.0, 0.8)])
def test_the_trace_before_cutting_is_found_from_that_after(dof, trace):
    draws = np.random.default_rng(0).gamma(dof / 2, 2 / dof, 400_000) * trace
    cut = np.minimum(draws, 1).mean()
    assert float(correction.uncut_trace(jnp.asarray(cut), dof, 16.0)) == pytest.approx(trace, rel=0.02)
    assert float(correction.uncut_trace(jnp.asarray(cut), dof, cut)) == pytest.approx(cut, rel=1e-4)


def test_moments_of_cut_normal_variables_are_those_of_draws():
    normal = np.random.default_rng(0).normal(size=400_000)
    for mean, deviation in ((0.0, 0.1), (-0.9, 0.4), (-3.0, 1.5), (2.0, 0.7)):
        drawn = np.clip(mean + deviation * normal, -1, 1)
        first, square = correction.cut_moments(jnp.asarray(mean), jnp.asarray(deviation))
        assert float(first) == pytest.approx(drawn.mean(), abs=3e-3)  # 400,000 draws
        assert float(square) == pytest.approx((drawn**2).mean(), abs=3e-3)


def test_a_line_changes_nothing_where_nothing_is_cut_and_stops_at_what_a_box_can_hold():
    weights = jnp.array([1.0])
    slope, offset = correction.line_to_box(weights, jnp.array([[0.1, 0.0]]), jnp.array([[0.01, 4.0]]))
    assert float(slope[0]) == pytest.approx(1, abs=1e-3)
    assert float(offset[0, 0]) == pytest.approx(0, abs=1e-3)
    assert float(slope[1]) == pytest.approx(correction.MOST_SLOPE, rel=1e-3)


def test_the_mean_of_a_positive_number_seen_with_noise_is_positive_and_the_number_where_noise_is_small():
    values = np.array([-3.0, 0.0, 1.0, 50.0])
    found = np.asarray(correction.positive_mean(jnp.asarray(values), 1.0))
    expected = [scipy.stats.truncnorm.mean(-value, np.inf, loc=value) for value in values]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
