import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.kernel_ridge import KernelRidge
from sklearn.manifold import TSNE

from drjax.attacks.attack import EveryRecord
from drjax.attacks.reconstruction import within_map
from drjax.attacks.reconstruction.within_map import NeighboursInMap, reconstruct_within_map
from drjax.core.kernel_regression import Choice, Radial
from drjax.dr import PCA


def test_equals_a_regression_of_the_other_records_by_scikit_learn(monkeypatch):
    monkeypatch.setattr(within_map, "tune", lambda *_, unit, **__: Choice(0.0, 0.01, Radial(0.1 * unit)))
    rng = np.random.default_rng(0)
    x, coords = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
    found = reconstruct_within_map(x, coords, rows=[3, 30])
    squared = ((coords[:, None] - coords) ** 2).sum(axis=-1)
    for lane, row in enumerate([3, 30]):
        known, others = np.delete(x, row, axis=0), np.delete(coords, row, axis=0)
        model = KernelRidge(alpha=0.01, kernel="rbf", gamma=10 / np.median(squared)).fit(others, known - known.mean(0))
        np.testing.assert_allclose(found.x[lane], model.predict(coords[[row]])[0] + known.mean(0), atol=1e-9)


def test_a_record_has_no_part_in_its_own_reconstruction():
    x = load_digits().data[:120] / 16
    coords = np.random.default_rng(0).normal(size=(120, 2)) + x[:, 20:22]
    before = reconstruct_within_map(x, coords, rows=[8])
    x[8] = 7
    np.testing.assert_allclose(reconstruct_within_map(x, coords, rows=[8]).x, before.x, atol=1e-12)


def test_neighbours_in_scikit_learn_s_t_sne_tell_more_than_the_most_similar_other_record():
    x = load_digits().data[:200] / 16
    coords = TSNE(random_state=0, max_iter=500).fit_transform(x)
    found = reconstruct_within_map(x, coords)
    squared = ((x[:, None] - x) ** 2).mean(axis=-1) + np.diag(np.full(200, np.inf))
    assert (((found.x - x) ** 2).mean(axis=1) < squared.min(axis=1)).mean() > 0.6
    shuffled = reconstruct_within_map(x, np.random.default_rng(0).permutation(coords))
    assert ((shuffled.x - x) ** 2).mean() > 0.95 * x.var(axis=0).mean()


def test_equal_places_and_bad_input():
    x = np.random.default_rng(0).normal(size=(20, 3))
    found = reconstruct_within_map(x, np.zeros((20, 2)))
    assert np.isfinite(found.x).all()
    with pytest.raises(ValueError, match="coords must have 20 rows"):
        reconstruct_within_map(x, np.zeros((19, 2)))
    with pytest.raises(ValueError, match="rows must be in 0 to 19"):
        reconstruct_within_map(x, np.zeros((20, 2)), rows=[20])


def test_a_large_release_is_attacked_by_some_of_its_records_and_each_has_no_part_in_its_own(monkeypatch):
    monkeypatch.setattr(within_map, "MOST_RECORDS", 60)
    x = load_digits().data[:150] / 16
    coords = x[:, 20:22] + 0.1 * np.random.default_rng(0).normal(size=(150, 2))

    def attacked(values, rows):
        every = EveryRecord(method=PCA(), x=values, coords=coords, rows=rows, stand_ins=lambda _: None)
        return NeighboursInMap().run_each(jax.random.key(0), every).x

    rows = np.arange(0, 150, 2)
    found = attacked(x, rows)
    assert found.shape == (75, 64)
    assert np.mean((found - x[rows]) ** 2) < 0.95 * x.var(axis=0).mean()
    moved = x.copy()
    moved[8] = 7
    np.testing.assert_allclose(attacked(moved, rows)[4], found[4], atol=1e-9)


def test_where_enough_records_are_not_attacked_they_choose_the_kernel_once(monkeypatch):
    monkeypatch.setattr(within_map, "N_SEARCHED", 50)
    x = load_digits().data[:120] / 16
    coords = np.random.default_rng(0).normal(size=(120, 2)) + x[:, 20:22]
    calls, tune = [], within_map.tune
    monkeypatch.setattr(within_map, "tune", lambda *given, **more: calls.append(1) or tune(*given, **more))
    few = reconstruct_within_map(x, coords, rows=np.arange(40))
    assert len(calls) == 1
    x[3] = 7
    np.testing.assert_allclose(reconstruct_within_map(x, coords, rows=np.arange(40)).x[3], few.x[3], atol=1e-12)
