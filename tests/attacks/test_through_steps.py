"""Attacks on maps of records behind steps; maps by scikit-learn."""

import dataclasses

import jax
import numpy as np
from sklearn import datasets, manifold, preprocessing

import drjax
from drjax import dr
from drjax.attacks import shadow_sets
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.reconstruction import through_steps
from drjax.attacks.registry import ATTACKS, answer
from drjax.core.types import Status

KEY = jax.random.key(0)
N = 60


def table():
    x = datasets.load_wine().data
    return x[np.random.default_rng(5).permutation(len(x))]


def attacked(name, coords, method, known, **more):
    threat = EmbeddingThreat(
        method=method,
        known=known,
        coords=coords,
        shadows=lambda: shadow_sets.stand_in_shadows(KEY, method, known),
        alike=False,
        **more,
    )
    attack = ATTACKS["embedding"][name]
    assert attack.fits(threat) is None
    return answer(attack, KEY, threat)


def ratios(found, targets, known):
    spread = known.std(axis=0)
    error, mean = (found.x - targets) / spread, (known.mean(axis=0) - targets) / spread
    return (error**2).mean(axis=1) / (mean**2).mean(axis=1)


def test_a_map_of_standardised_records_gives_the_record_in_its_own_units():
    x = table()
    known, targets = x[: N - 1], x[N : N + 1]
    scaled = preprocessing.StandardScaler().fit_transform(np.vstack([targets, known]))
    peer = manifold.TSNE(perplexity=12, method="exact", init="random", random_state=1)
    coords = peer.fit_transform(scaled)[None]
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.TSNE(perplexity=12.0, init="random"))
    found = attacked("inversion-behind-steps", coords, method, known)
    assert found.status[0] == Status.OK
    assert ratios(found, targets, known)[0] < 0.05
    assert ((found.x - targets) ** 2).mean() < 10 * found.expected_mse[0]
    # Told that the records were not scaled, the same attack has no such answer.
    plain = attacked("inversion", coords, method.method, known)
    assert ratios(plain, targets, known)[0] > 0.3


def test_the_record_comes_back_through_any_steps():
    x = table()
    known, target = x[: N - 1], x[N]
    prior = through_steps.GaussianPrior.fit(known)
    for before in ((dr.Standardise(),), (dr.Log(), dr.Robust()), (dr.Standardise(), dr.FirstPCA(n_components=13))):
        pipeline = dr.Pipeline(before=before, method=drjax.MDS())
        with jax.enable_x64(True):
            z = np.asarray(pipeline.prepared(np.vstack([target[None], known])))[0]
        back = through_steps.record_of(pipeline, known, known.mean(axis=0), prior, z, 0.0, None)
        np.testing.assert_allclose(back.x, target, rtol=1e-3)
        # Two components leave most open, and say so.
    first = dr.Pipeline(before=(dr.Standardise(), dr.FirstPCA(n_components=2)), method=drjax.MDS())
    with jax.enable_x64(True):
        z = np.asarray(first.prepared(np.vstack([target[None], known])))[0]
    open_ended = through_steps.record_of(first, known, known.mean(axis=0), prior, z, 0.0, None)
    assert open_ended.left.mean() > 0.1 * known.var(axis=0).mean()


def test_a_step_to_where_there_is_no_logarithm_is_halved():
    x = datasets.load_digits().data / 16
    known, target = x[1:N], x[0]
    pipeline = dr.Pipeline(before=(dr.Log(),), method=drjax.MDS())
    prior = through_steps.GaussianPrior.fit(known)
    # What an attack found may be off: the record of it would be below -1.
    z = np.log1p(target) - 2
    with jax.enable_x64(True):
        _, slope = through_steps._linearised(pipeline, known, known.mean(axis=0))
    first = prior.condition(slope, (z - np.log1p(known.mean(axis=0)) + slope @ known.mean(axis=0))[None], 1e-6)
    assert (first < -1).any()
    back = through_steps.record_of(pipeline, known, known.mean(axis=0), prior, z, 1e-6, None)
    assert (back.x > -1).all()
    assert np.isfinite(back.left).all()


def test_a_feature_in_which_no_known_record_differs_stays_as_theirs():
    x = datasets.load_digits().data / 16
    known, target = x[1:N], x[0]
    is_held = np.ptp(known, axis=0) == 0
    assert is_held.any()
    before = (dr.Standardise(), dr.FirstPCA(n_components=10))
    pipeline = dr.Pipeline(before=before, method=drjax.MDS())
    prior = through_steps.GaussianPrior.fit(known)
    scaled = preprocessing.StandardScaler().fit_transform(np.vstack([target[None], known]))
    _, _, axes = np.linalg.svd(scaled, full_matrices=False)
    with jax.enable_x64(True):
        z = np.asarray(pipeline.prepared(np.vstack([target[None], known])))[0]
    np.testing.assert_allclose(np.abs(z), np.abs(scaled[0] @ axes[:10].T), rtol=1e-9)
    back = through_steps.record_of(pipeline, known, known.mean(axis=0), prior, z, 0.02, None)
    np.testing.assert_array_equal(back.x[is_held], known[0, is_held])
    assert ((back.x - target) ** 2).mean() < 0.8 * ((known.mean(axis=0) - target) ** 2).mean()
    assert 0 < back.left.mean() < known.var(axis=0).mean()
    # Steps on single records have no such jump.
    assert not through_steps.is_held(dr.Pipeline(before=(dr.Log(),), method=drjax.MDS()), known).any()


def test_steps_on_single_records_are_undone_in_one_round(monkeypatch):
    x = table()
    known, targets = x[: N - 1], x[N - 1 : N + 1]
    runs = []
    inner = ATTACKS["embedding"]["stationarity-behind-steps"].inner
    run = type(inner).unchecked
    noted = lambda self, key, threat: runs.append(threat) or run(self, key, threat)  # noqa: E731
    monkeypatch.setattr(type(inner), "unchecked", noted)
    peer = manifold.MDS(2, n_init=1, random_state=0, max_iter=3000, eps=1e-9)
    coords = np.stack([peer.fit_transform(np.log1p(np.vstack([t[None], known]))) for t in targets])
    method = dr.Pipeline(before=(dr.Log(),), method=drjax.MDS())
    found = attacked("stationarity-behind-steps", coords, method, known)
    assert len(runs) == 1
    np.testing.assert_allclose(runs[0].known, np.log1p(known))
    assert np.median(ratios(found, targets, known)) < 0.1


def test_an_answer_that_still_moves_is_not_called_right(monkeypatch):
    x = table()
    known, target = x[: N - 1], x[N]
    scaled = preprocessing.StandardScaler().fit_transform(np.vstack([target[None], known]))
    coords = manifold.MDS(2, n_init=1, random_state=0, max_iter=3000, eps=1e-9).fit_transform(scaled)[None]
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.MDS())
    guesses = iter(np.linspace(0.5, 1.5, 10))
    record = through_steps.record_of
    monkeypatch.setattr(through_steps, "ROUNDS", 2)
    monkeypatch.setattr(
        through_steps,
        "record_of",
        lambda *a: dataclasses.replace(record(*a), x=record(*a).x * next(guesses), left=np.full(known.shape[1], 1e-12)),
    )
    found = attacked("stationarity-behind-steps", coords, method, known)
    assert found.status[0] & Status.NOT_CONVERGED
    # Two rounds that differ by a half: neither is believed.
    np.testing.assert_allclose(found.x[0], known.mean(axis=0))
    np.testing.assert_allclose(found.feature_mse[0], known.var(axis=0))


def test_decimals_are_those_of_the_map_before_it_was_multiplied():
    for after, decimals, inside in (
        ((), 4, 4),
        ((dr.Rescale(factor=0.1),), None, None),
        ((dr.Shift(offset=(7.0, 7.0)), dr.Round(decimals=4)), 4, 4),
        # A map of some tens that was scaled to [0, 1], and one that was made larger.
        ((dr.RescaleColumns(factors=(0.05, 0.02)),), 4, 2),
        ((dr.Rescale(factor=100.0),), 1, 3),
        ((dr.Rescale(factor=1e-4),), 2, 0),
    ):
        assert through_steps.decimals_of_map(dr.Pipeline(method=drjax.TSNE(), after=after), decimals) == inside


def test_it_is_for_maps_behind_steps_that_keep_their_shape():
    attack = ATTACKS["embedding"]["stationarity-behind-steps"]
    assert attack.suits(drjax.MDS(), seed_known=False) is not None
    behind = dr.Pipeline(before=(dr.Standardise(),), method=drjax.MDS(), after=(dr.Round(decimals=2),))
    assert attack.suits(behind, seed_known=False) is None
    bent = dr.Pipeline(before=(dr.Standardise(),), method=drjax.MDS(), after=(dr.UnitVariance(),))
    assert attack.suits(bent, seed_known=False) is not None
    assert attack.suits(dr.Pipeline(before=(dr.Standardise(),), method=drjax.PCA()), seed_known=False) is not None
