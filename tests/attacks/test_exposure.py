import numpy as np
import pytest
from scipy.spatial.distance import cdist

from drjax.attacks import exposure
from drjax.core.types import Status

OK = np.zeros(30, np.uint32)


def test_figures_are_those_of_all_pairwise_distances():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 4))
    guess = x + rng.normal(size=x.shape) * rng.uniform(0, 1, (30, 1))
    found = exposure.measure(guess, x, np.arange(30), OK)
    between = cdist(x, x) ** 2 / 4 + np.diag(np.full(30, np.inf))
    np.testing.assert_allclose(found.nearest_error, between.min(axis=1))
    np.testing.assert_array_equal(exposure.nearest_others(x, np.arange(30)), between.argmin(axis=1))
    np.testing.assert_array_equal(found.is_identified, cdist(guess, x).argmin(axis=1) == np.arange(30))
    means = np.array([np.delete(x, i, axis=0).mean(axis=0) for i in range(30)])
    to_mean = np.mean((means - x) ** 2, axis=1)
    np.testing.assert_allclose(found.mean_error, to_mean)
    error = np.mean((guess - x) ** 2, axis=1)
    np.testing.assert_allclose(found.ratio, error / np.minimum(between.min(axis=1), to_mean))
    np.testing.assert_array_equal(found.is_rebuilt, (error < between.min(axis=1)) & (error < to_mean / 2))
    assert np.all(np.diff(found.ratio[np.argsort(found.rank)]) >= 0)
    assert 0 < found.is_identified.sum() < 30


def test_some_rows_rank_among_themselves_and_against_all_records():
    x = np.random.default_rng(0).normal(size=(30, 4))
    rows = np.array([4, 20, 7])
    found = exposure.measure(x[rows] + 0.01, x, rows, OK[:3])
    everything = exposure.measure(x + 0.01, x, np.arange(30), OK)
    np.testing.assert_array_equal(found.ratio, everything.ratio[rows])
    assert sorted(found.rank) == [1, 2, 3]


def test_failed_records_come_last_and_twins_cannot_be_told_apart():
    x = np.random.default_rng(0).normal(size=(6, 3))
    x[5] = x[4]
    guess = x + 0.01
    guess[0] = np.nan
    status = np.zeros(6, np.uint32)
    status[1] = Status.DEGENERATE
    found = exposure.measure(guess, x, np.arange(6), status)
    assert np.isnan(found.error[:2]).all()
    assert set(found.rank[:2]) | set(found.rank[4:]) == {3, 4, 5, 6}
    assert found.is_identified.tolist() == [False, False, True, True, True, True]
    # Who does not know that they have a twin learns nothing from it.
    np.testing.assert_allclose(found.ratio[4:], found.error[4:] / (0.01 * found.mean_error[4:]))
    assert found.is_rebuilt[4:].all()
    assert (found.nearest_error[4:] == 0).all()


def test_the_mean_of_the_others_exposes_nobody_though_it_is_closer_than_any_other_record():
    x = np.random.default_rng(0).normal(size=(30, 60))
    found = exposure.measure(exposure.means_of_others(x, np.arange(30)), x, np.arange(30), OK)
    assert (found.error < found.nearest_error).mean() > 0.9
    np.testing.assert_array_equal(found.ratio, 1)
    assert not found.is_rebuilt.any()


def test_a_status_of_another_length_is_an_error():
    with pytest.raises(ValueError, match="status must have shape"):
        exposure.measure(np.ones((2, 3)), np.eye(3), np.arange(2), OK)


@pytest.mark.parametrize("n_twins", [0, 8])
def test_nearness_to_the_record_decides_as_a_search_among_all_does(n_twins, monkeypatch):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(30, 4))
    x[:n_twins] = x[8 : 8 + n_twins]
    # From exact to hopeless, and some just about half as far as the most similar other record.
    guess = x + rng.normal(size=x.shape) * np.geomspace(1e-9, 2, 30)[:, None]
    between = cdist(x, x) + np.diag(np.full(30, np.inf))
    nearest = x[between.argmin(axis=1)]
    guess[10:20] = x[10:20] + 0.51 * (nearest - x)[10:20]
    found = exposure.measure(guess, x, np.arange(30), OK)
    to_all = cdist(guess, x)
    np.testing.assert_array_equal(found.is_identified, np.diag(to_all) <= to_all.min(axis=1) * (1 + 1e-12))
    assert 0 < found.is_identified.sum() < 30

    sought = []
    search = exposure.metrics.nearest
    monkeypatch.setattr(exposure.metrics, "nearest", lambda q, r: sought.append(len(q)) or search(q, r))
    again = exposure.measure(guess, x, np.arange(30), OK, similar=between.argmin(axis=1))
    np.testing.assert_array_equal(again.is_identified, found.is_identified)
    np.testing.assert_array_equal(again.nearest_error, found.nearest_error)
    assert 10 <= sought[0] < 30


def test_records_of_float32_are_measured_in_float64():
    x = np.random.default_rng(2).uniform(size=(30, 4)).astype(np.float32)
    guess = x + 1e-9
    found, wide = (exposure.measure(guess, one, np.arange(30), OK) for one in (x, x.astype(np.float64)))
    for field in exposure.Exposure._fields:
        np.testing.assert_array_equal(getattr(found, field), getattr(wide, field))
