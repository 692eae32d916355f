"""Attacks that learn from shadows that nobody keeps, against the ones that hold all of them."""

import concurrent.futures
import weakref

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

from drjax.attacks import passing
from drjax.attacks.passing import PassingShadows
from drjax.attacks.reconstruction import baselines, invariant, neural, passing_shadows
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.kernel_regression import Landmarks, Radial
from drjax.core.regression_sums import RegressionSums
from drjax.dr import PCA

DIGITS = load_digits().data[:, :40].astype(np.float32) / 16
KNOWN, RECORDS, TARGETS = DIGITS[:12], DIGITS[12:412], DIGITS[412:472]
KEY, METHOD = jax.random.key(0), PCA(n_components=2)


def own_key(start):
    return jax.random.fold_in(KEY, start)


@pytest.fixture(scope="module")
def releases():
    return np.asarray(shadow_embeddings(jax.random.key(9), METHOD, KNOWN, TARGETS).coords)


@pytest.fixture
def short_ranges(monkeypatch):
    monkeypatch.setattr(passing, "RANGE", 150)


@pytest.mark.usefixtures("short_ranges")
def test_ridge_is_that_of_all_shadows(releases):
    found = passing_shadows.fit_ridge(KEY, METHOD, KNOWN, RECORDS)
    parts = [shadow_embeddings(own_key(at), METHOD, KNOWN, RECORDS[at : at + 150]).coords for at in (0, 150, 300)]
    held = np.concatenate([np.asarray(part) for part in parts])
    theirs = baselines.fit_ridge(held, RECORDS, penalties=[found.penalty])
    assert_allclose(found.reconstruct(releases).x, theirs.reconstruct(releases).x, atol=1e-6)
    # The two choose about the same penalty, and expect about the same error.
    chosen = baselines.fit_ridge(held, RECORDS)
    assert 0.09 < found.penalty / chosen.penalty < 11
    assert_allclose(found.loo_mse[found.penalty], chosen.loo_mse[chosen.penalty], rtol=0.1)


class Lazy:
    """Records of which nobody may ask more than a range."""

    def __len__(self):
        return len(RECORDS)

    def __getitem__(self, at):
        assert len(RECORDS[at]) <= 150
        return RECORDS[at]


@pytest.mark.usefixtures("short_ranges")
def test_workers_and_records_that_are_read_in_ranges_give_the_same_sums():
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [
            PassingShadows(key=KEY, method=METHOD, known=KNOWN, records=records).sums(baselines.flat, executor=executor)
            for records, executor in ((RECORDS, None), (Lazy(), None), (Lazy(), pool))
        ]
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert_array_equal(ours, theirs)
    assert found[0].count == len(RECORDS)


def test_local_processes_give_the_same_ridge():
    options = {"dtype": "float64", "executor": "local", "workers": 2}
    found, alone = (
        passing_shadows.fit_ridge(KEY, METHOD, KNOWN, RECORDS, **given) for given in (options, {"dtype": "float64"})
    )
    assert_allclose(found.weights, alone.weights, rtol=1e-12, atol=1e-12)


def test_any_kind_of_key_draws_and_precision_is_left_as_it_was():
    key = jax.random.key(3, impl="rbg")
    seen = []

    def inputs(coords):
        seen.append((coords.dtype, jax.numpy.ones(1).dtype))
        return coords[:, 0]

    shadows = PassingShadows(key=key, method=METHOD, known=KNOWN, records=RECORDS[:30], dtype="float64")
    found = shadows.sums(inputs)
    assert found.count == 30
    assert seen == [(np.float64, np.float32)]


def test_a_kernel_by_all_inputs_as_landmarks_is_the_kernel_itself():
    inputs = DIGITS[:30].astype(np.float64)
    kernel = Radial(5.0)
    numbers = Landmarks.of(kernel, inputs)(inputs)
    assert_allclose(numbers @ numbers.T, kernel(inputs, inputs), atol=1e-9)


@pytest.mark.usefixtures("short_ranges")
def test_kernel_regression_from_sums_errs_as_that_of_all_shadows_and_says_how_much(releases):
    found = passing_shadows.fit_kernel(KEY, METHOD, KNOWN, RECORDS, n_landmarks=150).reconstruct(releases)
    held = np.asarray(shadow_embeddings(own_key(0), METHOD, KNOWN, RECORDS).coords)
    theirs, few = (invariant.fit(held[:m], RECORDS[:m]).reconstruct(releases) for m in (400, 150))
    error, all_, of_few = (((one.x - TARGETS) ** 2).mean() for one in (found, theirs, few))
    assert error < 1.1 * all_ < 0.95 * of_few
    assert 0.7 < found.expected_mse.mean() / error < 1.4


def test_a_fit_of_many_shadows_goes_by_landmarks(monkeypatch, releases):
    held = np.asarray(shadow_embeddings(own_key(0), METHOD, KNOWN, RECORDS).coords)
    exact, few = invariant.fit(held, RECORDS), invariant.fit(held[:200], RECORDS[:200])
    for name, value in (("MANY", 399), ("N_LANDMARKS", 200), ("BLOCK", 70)):
        monkeypatch.setattr(invariant, name, value)
    found = invariant.fit(held, RECORDS)
    assert found.regression.inputs.shape[0] == 200
    ours, all_, of_few = (((one.reconstruct(releases).x - TARGETS) ** 2).mean() for one in (found, exact, few))
    assert ours < 1.2 * all_
    assert ours < 0.95 * of_few


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": RECORDS[:, :3]}, "records must have shape"),
        ({"records": RECORDS[:0]}, "records must have shape"),
        ({"dtype": "float16"}, "dtype must be one of"),
        ({"executor": "kubernetes"}, "executor"),
        ({"records": np.full((3, 40), np.nan)}, "must be finite|none among 3"),
    ],
    ids=["width", "none", "dtype", "executor", "not finite"],
)
def test_bad_input_is_refused(change, message):
    given = {"records": RECORDS} | change
    with pytest.raises(ValueError, match=message):
        passing_shadows.fit_ridge(KEY, METHOD, KNOWN, given.pop("records"), **given)


def recipe(**changes):
    options = {"architecture": "bch22", "epochs": 4, "batch_size": 20, "learning_rate": 1e-3, "scaling": "standard"}
    return neural.NeuralConfig(**options | changes)


def test_a_network_learns_from_shadows_that_are_made_for_each_epoch(releases, monkeypatch):
    asked = []
    shadows = passing._shadows

    def counted(draws, records, start, kept):
        asked.append((start, len(records)))
        yield from shadows(draws, records, start, kept)

    monkeypatch.setattr(passing, "_shadows", counted)
    found, history = passing_shadows.fit_network(
        KEY, METHOD, KNOWN, RECORDS[:250], recipe(), validation=RECORDS[250:300], epoch_size=100
    )
    # Validation, and the records in turn, from the first on again.
    assert asked == [(0, 50), (0, 100), (100, 100), (200, 100), (300, 100)]
    assert len(history.epoch_seconds) == 4
    error = ((neural.reconstruct(found, releases).x - TARGETS) ** 2).mean()
    assert error < 0.95 * RECORDS.var(axis=0).mean()


def test_a_network_of_one_epoch_is_that_of_shadows_that_are_held(releases):
    sizes = {"validation": RECORDS[250:300], "epoch_size": 100}
    found, _ = passing_shadows.fit_network(KEY, METHOD, KNOWN, RECORDS[:250], recipe(epochs=1), **sizes)
    keys = jax.random.split(KEY, 3)
    held, stopping = (
        np.asarray(shadow_embeddings(jax.random.fold_in(own, 0), METHOD, KNOWN, records).coords)
        for own, records in ((keys[0], RECORDS[:100]), (keys[1], RECORDS[250:300]))
    )
    validation = stopping, RECORDS[250:300]
    theirs, _ = neural.fit(keys[2], held, RECORDS[:100], recipe(epochs=1), validation=validation)
    ours, other = (neural.reconstruct(model, releases).x for model in (found, theirs))
    assert_allclose(ours, other, atol=1e-5)


def test_more_landmarks_than_a_task_has_shadows_are_refused():
    with pytest.raises(ValueError, match="n_landmarks must be <= the shadows of a task"):
        passing_shadows.fit_kernel(KEY, METHOD, KNOWN, RECORDS, n_landmarks=passing.RANGE + 1)


def test_sums_of_blocks_are_not_held_together(monkeypatch):
    held = np.asarray(shadow_embeddings(own_key(0), METHOD, KNOWN, RECORDS).coords)
    for name, value in (("MANY", 100), ("N_LANDMARKS", 60), ("BLOCK", 40)):
        monkeypatch.setattr(invariant, name, value)
    alive = most = 0

    class Watched(np.ndarray):
        pass

    of = RegressionSums.of.__func__

    def gone():
        nonlocal alive
        alive -= 1

    def watched(cls, *rows):
        nonlocal alive, most
        made = of(cls, *rows)
        scatter = made.scatter.view(Watched)
        weakref.finalize(scatter, gone)
        alive += 1
        most = max(most, alive)
        return made._replace(scatter=scatter)

    monkeypatch.setattr(RegressionSums, "of", classmethod(watched))
    invariant.fit(held, RECORDS)
    assert most <= 3


def test_more_shadows_in_an_epoch_than_there_are_records_are_refused():
    with pytest.raises(ValueError, match="epoch_size must be <= the number of records"):
        passing_shadows.fit_network(
            KEY, METHOD, KNOWN, RECORDS[:20], recipe(), validation=RECORDS[20:30], epoch_size=21
        )
