import dataclasses

import jax
import numpy as np
import pytest
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

from drjax import dr
from drjax.attacks import intervals, practice
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.reconstruction.closed_form import pca
from drjax.attacks.reconstruction.closed_form.pca import reconstruct_pca
from drjax.attacks.reconstruction.closed_form.srp import reconstruct_srp
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.registry import ATTACKS
from drjax.attacks.shadow_sets import shadows_of
from drjax.core.types import Reconstruction, Status

RNG = np.random.default_rng(0)


def threat_of(public, m, truth=None, bounds=None):
    """A threat whose public records alone count."""
    return EmbeddingThreat(
        method=dr.PCA(),
        known=public[:5],
        coords=np.zeros((m, 6, 2)),
        shadows=lambda: pytest.fail("no shadow is asked for"),
        public=public,
        truth=truth,
        bounds=bounds,
        alike=False,
    )


def found_of(x, feature_mse, expected_mse=None):
    m = len(x)
    nothing = np.full(m, np.nan)
    return Reconstruction(x, None, x[:, None], nothing, np.zeros(m, np.uint32), expected_mse, feature_mse=feature_mse)


def inside(ends, truth):
    return (ends[..., 0] <= truth) & (truth <= ends[..., 1])


@pytest.fixture(scope="module")
def told():
    """Public records, truths, and answers whose error has a deviation of 0.05 as predicted."""
    public, truth = RNG.normal(size=(200, 4)), RNG.normal(size=(300, 4))
    x = truth + 0.05 * RNG.normal(size=truth.shape)
    return public, truth, found_of(x, np.full(x.shape, 0.05**2))


def test_nine_of_ten_truths_are_inside_where_errors_are_as_predicted(told):
    public, truth, found = told
    ends = intervals.intervals(found, threat_of(public, 300))
    assert 0.87 < inside(ends, truth).mean() < 0.93
    np.testing.assert_allclose(ends[..., 1] - ends[..., 0], 2 * 1.6449 * 0.05, rtol=1e-3)
    wider = intervals.intervals(found, threat_of(public, 300), level=0.99)
    assert 0.975 < inside(wider, truth).mean() < 1


@pytest.mark.parametrize("times", [1.0, 3.0, 10.0])
def test_practice_releases_tell_by_how_much_an_error_is_larger_than_predicted(told, times):
    public, truth, found = told
    sure = found._replace(feature_mse=found.feature_mse / times**2)
    learned = intervals.calibrated(sure, threat_of(public, 300, truth))
    assert learned.n_releases == 300
    assert learned.factor[0] == pytest.approx(times, rel=0.12)
    assert learned.factor[1:] == (1.0, 1.0)
    ends = intervals.intervals(sure, threat_of(public, 300), learned)
    assert 0.89 < inside(ends, truth).mean() < 0.94


def test_a_few_large_errors_raise_the_error_to_expect_and_no_interval(told):
    public, truth, found = told
    x = found.x + np.where(RNG.random(truth.shape) < 0.04, 0.3 * RNG.normal(size=truth.shape), 0)
    threat = threat_of(public, 300, truth)
    learned = intervals.calibrated(found._replace(x=x), threat)
    assert learned.factor[0] < 1.3
    missed = ((x - truth) ** 2).mean()
    found = found._replace(x=x)
    given = intervals.with_intervals(found, threat_of(public, 300), learned)
    assert missed > 1.8 * 0.05**2
    np.testing.assert_allclose(given.expected_mse.mean(), missed, rtol=0.05)
    alone = intervals.with_intervals(found, threat_of(public, 300), learned._replace(excess=1.0))
    np.testing.assert_array_equal(given.interval, alone.interval)


def test_errors_smaller_than_predicted_narrow_nothing(told):
    public, truth, found = told
    loose = found._replace(feature_mse=found.feature_mse * 9)
    assert intervals.calibrated(loose, threat_of(public, 300, truth)).factor == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("error", "is_exact"), [(1e-9, True), (0.05, False), (3.0, False)])
def test_what_is_predicted_to_rounding_is_checked_as_well(told, error, is_exact):
    public, truth, found = told
    x = truth + error * RNG.normal(size=truth.shape)
    sure = found._replace(x=x, feature_mse=np.full(x.shape, 1e-24), expected_mse=np.full(300, 1e-24))
    threat = threat_of(public, 300, truth)
    learned = intervals.calibrated(sure, threat)
    whole = intervals.with_intervals(sure, threat, learned)
    assert inside(whole.interval, truth).mean() > 0.86
    if is_exact:
        assert learned.factor == (1.0, 1.0, 1.0)
        np.testing.assert_array_equal(whole.feature_mse, sure.feature_mse)
        np.testing.assert_allclose(whole.expected_mse, 1e-24)
    else:
        np.testing.assert_allclose(
            whole.feature_mse, np.minimum(error, public.std(axis=0)) ** 2 * np.ones_like(x), rtol=0.4
        )
        np.testing.assert_allclose(whole.expected_mse, whole.feature_mse.mean(axis=1))


def test_an_answer_that_is_no_better_than_none_has_the_interval_of_the_records():
    public, truth = RNG.exponential(size=(400, 3)), RNG.exponential(size=(500, 3))
    x = np.tile(public.mean(axis=0), (500, 1))
    ends = intervals.intervals(found_of(x, np.tile(public.var(axis=0), (500, 1))), threat_of(public, 500))
    assert 0.86 < inside(ends, truth).mean() < 0.94
    low, high = np.quantile(public, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(ends[0], np.stack([low, high], axis=1), atol=0.1)
    # A normal error would reach far below the least value there is.
    assert (x[0] - 1.645 * public.std(axis=0) < -0.3).all()
    assert (ends[..., 0] >= 0).all()


def test_an_answer_that_says_a_little_has_the_interval_of_records_that_go_with_it():
    public, truth = RNG.exponential(size=(500, 1)), RNG.exponential(size=(2000, 1))
    noise = 0.7
    seen = truth + noise * RNG.normal(size=truth.shape)
    share = public.var() / (public.var() + noise**2)
    x = public.mean() + share * (seen - public.mean())
    left = np.full(x.shape, public.var() * (1 - share))
    ends = intervals.intervals(found_of(x, left), threat_of(public, 2000))
    assert 0.86 < inside(ends, truth).mean() < 0.94
    normal = np.abs(x - truth) < 1.645 * np.sqrt(left)
    assert np.mean(ends[..., 1] - ends[..., 0]) < 2 * 1.645 * np.sqrt(left[0, 0])
    assert normal.mean() > 0.86


def test_features_of_few_values_have_a_factor_of_their_own(told):
    public, truth, found = told
    step = np.array([0.5, 0.5, 1e-9, 1e-9])
    coded, codes = (step * np.round(values / step) for values in (public, truth))
    x = found.x - truth + codes
    sure = found._replace(x=x, feature_mse=found.feature_mse / np.array([16, 16, 1, 1]))
    learned = intervals.calibrated(sure, threat_of(coded, 300, codes))
    assert learned.factor[0] == pytest.approx(1, abs=0.25)
    assert learned.factor[1] == pytest.approx(4, rel=0.2)


def test_an_attack_that_predicts_nothing_is_judged_by_practice_releases(told):
    public, truth, found = told
    silent = found._replace(feature_mse=None)
    threat = threat_of(public, 300, truth)
    assert np.isnan(intervals.intervals(silent, threat)).all()
    learned = intervals.calibrated(silent, threat)
    np.testing.assert_allclose(learned.feature_mse, 0.05**2, rtol=0.2)
    whole = intervals.with_intervals(silent, threat, learned)
    assert 0.87 < inside(whole.interval, truth).mean() < 0.94
    np.testing.assert_allclose(whole.expected_mse, 0.05**2, rtol=0.2)


def test_what_one_number_predicts_is_shared_as_features_vary(told):
    public, _, found = told
    whole = found._replace(feature_mse=None, expected_mse=np.full(300, 0.01))
    ends = intervals.intervals(whole, threat_of(public * np.array([1, 1, 1, 5]), 300))
    widths = (ends[..., 1] - ends[..., 0]).mean(axis=0)
    assert widths[3] == pytest.approx(5 * widths[0], rel=0.2)


def test_practice_releases_without_an_answer_teach_nothing(told):
    public, truth, found = told
    failed = found._replace(status=np.full(300, np.uint32(Status.NON_FINITE)))
    assert intervals.calibrated(failed, threat_of(public, 300, truth)) == intervals.UNCALIBRATED


def test_intervals_keep_to_the_bounds(told):
    public, _, found = told
    ends = intervals.intervals(found, threat_of(public, 300, bounds=(-1, 1)))
    assert ends.min() == -1
    assert ends.max() == 1


def test_the_level_is_a_probability(told):
    public, _, found = told
    with pytest.raises(ValueError, match="level must be in"):
        intervals.intervals(found, threat_of(public, 300), level=1.0)


def records(n, seed):
    """Correlated records of very different units."""
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, 3)) @ np.random.default_rng(7).normal(size=(3, 8)) + 0.3 * rng.normal(size=(n, 8))) * [
        1, 1, 1, 50, 50, 1000, 1000, 0.01,
    ]  # fmt: skip


def test_closed_forms_predict_the_error_of_each_feature():
    known, truth = records(40, 0), records(60, 1)
    scores = np.stack([pca_of(np.concatenate([x[None], known])) for x in truth])
    found = reconstruct_pca(known, np.round(scores, 1), prior=GaussianPrior.fit(records(300, 2)))
    errors = (found.x - truth) ** 2
    np.testing.assert_allclose(found.feature_mse.mean(axis=1), found.expected_mse, rtol=1e-6)
    ratio = errors.mean(axis=0) / found.feature_mse.mean(axis=0)
    assert (ratio > 0.2).all()
    assert (ratio < 3).all()


def pca_of(x):
    centred = x - x.mean(axis=0)
    return centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T


def test_matrix_recovery_predicts_the_error_of_each_feature():
    known, truth = records(40, 0), records(80, 1)
    made = shadows_of(jax.random.key(0), dr.SparseRandomProjection(n_components=3), known, truth)
    found = reconstruct_srp(known, made.coords, prior=GaussianPrior.fit(records(400, 2)))
    ratio = ((found.x - truth) ** 2).mean(axis=0) / found.feature_mse.mean(axis=0)
    assert (ratio > 0.3).all()
    assert (ratio < 3).all()


def test_public_records_stand_in_for_targets_where_an_attack_needs_no_shadows():
    public = records(40, 2)
    threat = dataclasses.replace(
        threat_of(public, 1), known=records(30, 0), coords=pca_of(records(31, 0))[None], decimals=2
    )
    tried = practice.fresh(jax.random.key(0), threat)
    assert len(tried.truth) == len(tried.coords) == practice.RELEASES
    np.testing.assert_array_equal(np.concatenate([tried.public, tried.truth]), public)
    np.testing.assert_array_equal(tried.coords, np.round(tried.coords, 2))
    learned = practice.calibration(jax.random.key(0), ATTACKS["embedding"]["closed-form"], threat)
    assert learned.n_releases == practice.RELEASES
    assert practice.fresh(jax.random.key(0), dataclasses.replace(threat, public=None)) is None
    assert (
        practice.calibration(
            jax.random.key(0), ATTACKS["embedding"]["closed-form-known"], dataclasses.replace(threat, public=None)
        )
        == intervals.UNCALIBRATED
    )


def practised(method, x):
    """A threat of a method, the records x (n, d) but the first known, with shadows of public ones."""
    public = records(24, 2)
    return dataclasses.replace(
        threat_of(public, 1),
        method=method,
        known=x[1:],
        coords=np.zeros((1, len(x), 2)),
        shadows=lambda: shadows_of(jax.random.key(0), method, x[1:], public, n_validation=4),
    )


def test_practice_maps_of_published_tsne_are_made_by_scikit_learn():
    x = records(30, 0)
    threat = practised(dr.Pipeline(before=(dr.Standardise(),), method=dr.TSNE(perplexity=5.0, max_iter=250)), x)
    tried = practice.practice(threat)
    first = StandardScaler().fit_transform(np.concatenate([tried.truth[:1], x[1:]]))
    peer = TSNE(perplexity=5, max_iter=250, random_state=0).fit_transform(first)
    np.testing.assert_allclose(tried.coords[0], peer, rtol=1e-3, atol=1e-3)
    assert practice.library_seconds(threat, 3) > 0
    own = practice.practice(dataclasses.replace(threat, alike=True))
    np.testing.assert_array_equal(own.coords, threat.shadows().validation_coords[1:])
    assert practice.library_seconds(dataclasses.replace(threat, method=dr.PCA()), 3) == 0


def test_factors_that_were_read_off_a_map_are_read_off_practice_maps_too():
    x, after = records(60, 0), (dr.RescaleColumns(factors=(0.02, 0.5)),)
    tried = practice.practice(
        practised(dr.Pipeline(before=(dr.Standardise(),), method=dr.TSNE(perplexity=10.0), after=after), x)
    )
    for seed, coords in enumerate(tried.coords):
        records_of = StandardScaler().fit_transform(np.concatenate([tried.truth[seed : seed + 1], x[1:]]))
        peer = TSNE(perplexity=10, random_state=seed).fit_transform(records_of) * [0.02, 0.5]
        ratios = (coords - coords.mean(axis=0)) / (peer - peer.mean(axis=0))
        np.testing.assert_allclose(ratios, np.broadcast_to(np.median(ratios, axis=0), ratios.shape), rtol=1e-3)
        # As far off as an adversary is, and no further.
        assert (np.abs(np.median(ratios, axis=0) - 1) < 0.15).all()
        assert (np.abs(np.median(ratios, axis=0) - 1) > 1e-6).any()
    # Factors that are stated of another method are right.
    threat = practised(dr.Pipeline(method=dr.PCA(), after=after), x)
    np.testing.assert_array_equal(practice.practice(threat).coords, threat.shadows().validation_coords[1:])


def test_a_prediction_longer_than_the_truth_outside_the_span_is_not_taken_for_exact():
    across = np.array([2.0, 1.0])
    # As long as expected, the truth differs from the prediction by what is open.
    as_expected = pca._missed(np.array([1.5]), np.sqrt([1.5**2 + 3.0]), across)
    np.testing.assert_allclose(as_expected, 3.0)
    # Drawn: truths of a given length at the angle that the prediction has with them.
    rng = np.random.default_rng(0)
    prediction = 2.0 * np.array([1.0, 0.0, 0.0])
    truths = prediction + rng.normal(size=(200_000, 3))
    truths = truths[np.abs(np.linalg.norm(truths, axis=1) - 1.0) < 0.05]
    squared = np.mean(((truths - prediction) ** 2).sum(axis=1))
    found = pca._missed(np.array([2.0]), np.array([1.0]), np.ones(3))[0]
    assert 0.5 * squared < found < 2 * squared
