import dataclasses

import jax
import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from drjax.attacks.attack import EveryRecord
from drjax.attacks.reconstruction.within_map import NeighboursInMap
from drjax.decisions import attacked
from drjax.decisions.attacked import ScaledClosedForm, TreesInMap, views
from drjax.decisions.audited import Made
from drjax.defenses import Groups
from drjax.dr import PCA, TSNE, Pipeline, Standardise

KEY = jax.random.key(0)


def threat(x, coords, method=None, bounds=None):
    return EveryRecord(
        method=method or PCA(), x=x, coords=coords, rows=np.arange(len(x)), stand_ins=lambda _: None, bounds=bounds
    )


def records(n=90, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    return z, z @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(n, 4))


def test_trees_learn_records_from_places_and_nothing_from_noise():
    places, x = records()
    found = TreesInMap().run_each(KEY, threat(x, places)).x
    assert np.mean((found - x) ** 2) < 0.3 * x.var(axis=0).mean()
    noise = np.random.default_rng(1).normal(size=places.shape)
    assert np.mean((TreesInMap().run_each(KEY, threat(x, noise)).x - x) ** 2) > 0.9 * x.var(axis=0).mean()


def test_a_record_has_no_part_in_its_own_trees():
    places, x = records()
    moved = x.copy()
    moved[7] += 100
    own = [TreesInMap().run_each(KEY, threat(values, places)).x[7] for values in (x, moved)]
    np.testing.assert_array_equal(*own)


def test_few_attacked_records_share_one_set_of_trees_grown_on_all_others(monkeypatch):
    places, x = records(400)
    every = dataclasses.replace(threat(x, places), rows=np.array([7, 90, 333]))
    grown = []

    class Counted(ExtraTreesRegressor):
        def fit(self, inputs, y):
            grown.append(len(y))
            return super().fit(inputs, y)

    monkeypatch.setattr(attacked, "ExtraTreesRegressor", Counted)
    found = TreesInMap().run_each(KEY, every).x
    assert grown == [397]
    whole = threat(x, places)
    assert TreesInMap().seconds_each(whole, 3) < 0.2 * TreesInMap().seconds_each(whole, 400)
    assert np.mean((found - x[every.rows]) ** 2) < 0.3 * x.var(axis=0).mean()


def test_the_closed_form_of_scaled_records_is_as_good_as_exact_where_a_record_hardly_moves_the_scaling():
    _, x = records(400)
    method = Pipeline(before=(Standardise(),), method=PCA())
    with jax.enable_x64(True):
        coords = np.asarray(method.fit_transform(KEY, x).coords)
    attack = ScaledClosedForm()
    every = threat(x, coords, method)
    assert attack.fits_each(every) is None
    error = np.mean((attack.run_each(KEY, every).x - x) ** 2, axis=1)
    within = np.mean((TreesInMap().run_each(KEY, every).x - x) ** 2, axis=1)
    assert np.median(error) < 0.02 * np.median(within)
    for other in (PCA(), TSNE(), Pipeline(before=(Standardise(),), method=TSNE())):
        assert attack.fits_each(threat(x, coords, other)) is not None


def test_exact_means_of_groups_are_undone_by_who_subtracts_the_other_members():
    places, x = records(200)
    group = np.argsort(np.argsort(places[:, 0])) // 50
    means = np.stack([places[group == g].mean(axis=0) for g in range(4)])[group]
    # The other 49 places of an exact mean leave the last one.
    exact = 50 * means - (50 * means - places)
    defence = Groups(method=PCA(), size=50)
    rounded = np.asarray(defence.defended(KEY, places.astype(np.float32)), np.float64)
    found = {"exact": (means, exact), "rounded": (rounded, defence.worked_out(KEY, places, rounded))}
    errors = {}
    for name, (coords, worked_out) in found.items():
        made = Made(np.arange(200), x, coords, PCA(), worked_out=worked_out)
        both = views({"map": NeighboursInMap()}, made)
        assert list(both) == ["map", "map-worked-out"]
        assert both["map-worked-out"][0].label == "Neighbours in the map, place worked out from the others'"
        for key, (attack, release) in both.items():
            guess = attack.run_each(KEY, threat(x, release.coords)).x
            errors[name, key] = np.mean((guess - x) ** 2) / x.var(axis=0).mean()
    assert errors["exact", "map-worked-out"] < 0.25 * errors["exact", "map"]
    assert errors["rounded", "map-worked-out"] > 2 * errors["exact", "map-worked-out"]
    assert list(views({"map": NeighboursInMap()}, Made(np.arange(200), x, rounded, PCA()))) == ["map"]
