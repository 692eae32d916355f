"""The target of a t-SNE map from the forces near it, against scikit-learn's gradient and maps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import decomposition, manifold, pipeline, preprocessing
from sklearn.manifold import _t_sne

import drjax
from drjax.attacks.attack import EveryRecord
from drjax.attacks.reconstruction import map_forces, near_forces
from drjax.attacks.registry import ATTACKS
from drjax.core.types import Status

KEY = jax.random.key(0)
ATTACK, BEHIND = (ATTACKS["embedding"][name] for name in ("near-forces", "near-forces-behind-steps"))
N, PERPLEXITY = 250, 12.0


def table(n, d=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)) @ rng.normal(size=(4, d)) + 0.5 * rng.normal(size=(n, d))
    x[rng.random(n) < 0.5] += 3
    return (x - x.min(axis=0)) / np.ptp(x, axis=0)


def threat(x, coords, rows, method=None):
    return EveryRecord(
        method=method or drjax.TSNE(perplexity=PERPLEXITY), x=x, coords=coords, rows=np.asarray(rows),
        stand_ins=pytest.fail, bounds=(0.0, 1.0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def mapped():
    x = table(N)
    return x, manifold.TSNE(perplexity=PERPLEXITY, method="exact", random_state=0).fit_transform(x)


def test_forces_at_the_truth_are_scikit_learns_gradient_and_their_derivative_is_that_of_differences():
    x, coords = table(80), np.random.default_rng(1).normal(size=(80, 2))
    joint = _t_sne._joint_probabilities(((x[:, None] - x) ** 2).sum(axis=2).astype(np.float32), 27.0, 0)
    gradient = _t_sne._kl_divergence(coords.ravel(), joint, 1, 80, 2)[1].reshape(80, 2)
    made = map_forces.prepared(x, coords, 27.0)  # three times as many neighbours are all
    with jax.enable_x64(True):
        equations = near_forces.equations_of(made, 7)
        at = np.append(7, np.delete(np.arange(80), 7)[np.asarray(equations.near)])
        assert len(at) == 80
        residual = jax.jit(lambda u: equations.residual(None, u))
        found = np.asarray(residual(x[7])).reshape(80, 2)
        # Its affinities are found to 1e-5 nats.
        np.testing.assert_allclose(4 * found, gradient[at], atol=2e-4 * np.abs(gradient).max())
        guess = jnp.asarray(x[7] + 0.1)
        force, slope = jax.jit(lambda u: equations.linearise(None, u))(guess)
        np.testing.assert_allclose(force, residual(guess), rtol=1e-10, atol=1e-14)
        by_jax = jax.jit(jax.jacfwd(residual))(guess)
        np.testing.assert_allclose(slope, by_jax, rtol=1e-6, atol=1e-8 * np.abs(by_jax).max())
        step = 1e-5 * np.random.default_rng(2).normal(size=12)
        difference = (np.asarray(residual(guess + step)) - np.asarray(residual(guess - step))) / 2
        np.testing.assert_allclose(slope @ step, difference, rtol=1e-3, atol=1e-3 * np.abs(difference).max())


@pytest.mark.optimised
@pytest.mark.parametrize("method", ["exact", "barnes_hut"])
def test_records_of_a_map_come_out_closer_than_from_their_places(mapped, method):
    x, coords = mapped
    if method == "barnes_hut":
        coords = manifold.TSNE(perplexity=PERPLEXITY, random_state=0).fit_transform(x)
    made = map_forces.prepared(x, coords, PERPLEXITY)
    assert (made.n_neighbors is None) == (method == "exact")
    rows = np.arange(0, N, 25 if method == "barnes_hut" else 50)
    found = near_forces.reconstruct_near_forces(made, rows, bounds=(0, 1))
    error, places = (((one[rows] if len(one) == N else one) - x[rows]) ** 2 for one in (found.x, made.guess))
    assert np.median(error.mean(axis=1)) < 0.3 * np.median(places.mean(axis=1))
    assert error.mean() < 0.7 * places.mean()
    assert (found.status == Status.OK).mean() > 0.8
    assert 0.3 < np.mean(found.expected_mse) / error.mean() < 3


@pytest.mark.optimised
def test_few_records_whose_map_rests_better_than_the_guesses_say_come_out():
    # By the guesses' forces alone no record fulfils the equations, and the places were all that was said.
    x = np.asarray(drjax.load("digits").x[:101], np.float64)
    coords = np.asarray(drjax.TSNE().fit_transform(KEY, x.astype(np.float32)).coords, np.float64)
    made = map_forces.prepared(x, coords, 30.0)
    found = near_forces.reconstruct_near_forces(made, np.arange(6), bounds=(0.0, 1.0))
    error, places = (((one - x[:6]) ** 2).mean(axis=1) for one in (found.x, made.guess[:6]))
    assert error.mean() < 0.1 * places.mean()
    assert 0.3 * error.mean() < np.mean(found.expected_mse) < 3 * error.mean()


@pytest.mark.optimised
def test_of_a_map_that_is_not_at_rest_the_places_are_all_that_is_said(mapped):
    x, coords = mapped
    shuffled = coords + np.random.default_rng(0).normal(size=coords.shape) * coords.std()
    made = map_forces.prepared(x, shuffled, PERPLEXITY)
    rows = np.arange(0, N, 50)
    found = near_forces.reconstruct_near_forces(made, rows)
    error, places = (((one - x[rows]) ** 2).mean() for one in (found.x, made.guess[rows]))
    assert error < 1.3 * places


@pytest.mark.optimised
def test_records_are_attacked_a_few_at_a_time_as_all_at_once_and_the_map_is_prepared_once(mapped, monkeypatch):
    x, coords = mapped
    calls = []
    prepared = map_forces.prepared
    monkeypatch.setattr(map_forces, "prepared", lambda *args: calls.append(1) or prepared(*args))
    every = threat(x, coords, [3, 9, 30])
    whole = ATTACK.run_each(KEY, every)
    parts = [ATTACK.run_each(KEY, dataclasses.replace(every, rows=np.array([row]))) for row in (3, 9, 30)]
    np.testing.assert_array_equal(whole.x, np.concatenate([part.x for part in parts]))
    assert len(calls) == 1
    assert whole.x.min() >= 0
    ATTACK.run_each(KEY, dataclasses.replace(every, coords=coords + 1))
    assert len(calls) == 2
    other = dataclasses.replace(every, method=drjax.TSNE(perplexity=PERPLEXITY + 1), rows=np.array([3]))
    ATTACK.run_each(KEY, other)
    assert len(calls) == 3


@pytest.mark.optimised
def test_the_target_s_own_record_has_next_to_no_part_in_what_is_found(mapped):
    x, coords = mapped
    other = x.copy()
    other[30] = x[31]
    found = [near_forces.solve(map_forces.prepared(one, coords, PERPLEXITY), 30).x for one in (x, other)]
    assert np.mean((found[0] - found[1]) ** 2) < 0.01 * np.mean((x[30] - x[31]) ** 2)


def test_it_is_an_attack_on_all_records_of_t_sne_of_euclidean_distances(mapped):
    x, coords = mapped
    every = threat(x, coords, [0])
    assert ATTACK.fits_each(every) is None
    assert ATTACK.fits(every.threat(0)) == "is of all records of one map in turn"
    for method in (drjax.PCA(), drjax.TSNE(metric="cosine"), drjax.UMAP()):
        assert ATTACK.fits_each(threat(x, coords, [0], method)) == "is of t-SNE of Euclidean distances"
    with pytest.raises(ValueError, match="rows"):
        near_forces.reconstruct_near_forces(map_forces.prepared(x[:60], coords[:60], 5.0), [60])


@pytest.fixture(scope="module")
def projected():
    """Records of columns in units of their own, steps of scikit-learn by name, and maps of what these make of them."""
    x = table(N, seed=3) * np.geomspace(0.1, 1, 12)
    scaler = preprocessing.StandardScaler()
    steps = {"standard": scaler, "pca": pipeline.make_pipeline(scaler, decomposition.PCA(8))}
    made = {name: step.fit(x).transform(x) for name, step in steps.items()}
    maps = {name: manifold.TSNE(perplexity=PERPLEXITY, random_state=0).fit_transform(z) for name, z in made.items()}
    return x, steps, maps


STEPS = {
    "standard": (drjax.dr.Standardise(),),
    "pca": (drjax.dr.Standardise(), drjax.dr.pipeline.steps.FirstPCA(n_components=8)),
}


@pytest.mark.optimised
@pytest.mark.parametrize("steps", list(STEPS))
def test_records_come_out_from_behind_steps_closer_than_from_their_places(projected, steps):
    x, made, maps = projected
    method = drjax.Pipeline(before=STEPS[steps], method=drjax.TSNE(perplexity=PERPLEXITY))
    rows = np.arange(0, N, 33)
    every = threat(x, maps[steps], rows, method)
    assert BEHIND.fits_each(every) is None
    found, places = (attack.run_each(KEY, every) for attack in (BEHIND, ATTACKS["embedding"]["map"]))
    # Of what the steps take away no map says anything.
    through = made[steps].transform
    error, others = (np.mean((through(one.x) - through(x[rows])) ** 2, axis=1) for one in (found, places))
    assert np.median(error) < 0.3 * np.median(others)
    assert error.mean() < 0.8 * others.mean()
    assert (found.status == Status.OK).mean() > 0.8
    assert 0.3 < np.mean(found.expected_mse) / np.mean((found.x - x[rows]) ** 2) < 3


@pytest.mark.optimised
def test_behind_steps_too_the_target_s_own_record_has_next_to_no_part(projected):
    x, _, maps = projected
    method = drjax.Pipeline(before=STEPS["standard"], method=drjax.TSNE(perplexity=PERPLEXITY))
    other = x.copy()
    other[30] = x[31]
    found = [BEHIND.run_each(KEY, threat(one, maps["standard"], [30], method)).x[0] for one in (x, other)]
    assert np.mean((found[0] - found[1]) ** 2) < 0.01 * np.mean((x[30] - x[31]) ** 2)


@pytest.mark.optimised
def test_steps_that_look_at_one_record_and_steps_after_the_method_are_undone(projected):
    x = projected[0]
    logs = drjax.Pipeline(before=(drjax.dr.Log(),), method=drjax.TSNE(perplexity=PERPLEXITY))
    grown = np.expm1(3 * x)
    coords = manifold.TSNE(perplexity=PERPLEXITY, random_state=0).fit_transform(3 * x)
    rows = np.array([5, 165])
    found = BEHIND.run_each(KEY, dataclasses.replace(threat(grown, coords, rows, logs), bounds=None))
    plain = ATTACK.run_each(KEY, dataclasses.replace(threat(3 * x, coords, rows), bounds=None))
    np.testing.assert_allclose(np.log1p(found.x), plain.x, atol=1e-3 * np.ptp(3 * x))
    shifted = drjax.Pipeline(
        method=drjax.TSNE(perplexity=PERPLEXITY), after=(drjax.dr.pipeline.after.Rescale(factor=2.0),)
    )
    again = BEHIND.run_each(KEY, dataclasses.replace(threat(3 * x, 2 * coords, rows, shifted), bounds=None))
    np.testing.assert_allclose(again.x, plain.x, atol=1e-3 * np.ptp(3 * x))
    assert BEHIND.suits(drjax.TSNE(), seed_known=False) == "is on methods behind steps"
