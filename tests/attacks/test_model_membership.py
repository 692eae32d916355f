"""The informed membership game: against what can be computed of it, and against what privacy allows."""

import functools

import jax
import numpy as np
import pytest
from scipy.stats import norm
from sklearn.covariance import ledoit_wolf
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score, roc_curve

from drjax.attacks import model_membership
from drjax.attacks.model_membership import log_ratios, play
from drjax.core.statistics import share_interval
from drjax.defenses.dp_gd import DPGD
from drjax.nets.classifier_training import Training
from drjax.nets.classifiers import Classifier

KEY = jax.random.key(5)
SMALL = Classifier(hidden=(4,), n_classes=3)
FLAT = Classifier(hidden=(), n_classes=2)
SURE = 1 - 1e-4
"""Level of the intervals, so that hardly one test in a thousand would fail for another key."""


@functools.cache
def digits(n=300, m=100):
    """n - 1 known records and m pairs of others."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    rows = np.random.default_rng(0).permutation(len(x))
    pairs = rows[n - 1 : n - 1 + 2 * m].reshape(m, 2)
    return x[rows[: n - 1]], y[rows[: n - 1]], x[pairs], y[pairs]


def points(m, n=10, d=5, seed=0):
    rng = np.random.default_rng(seed)
    known, pairs = rng.normal(size=(n - 1, d)), rng.normal(size=(m, 2, d))
    labels = rng.integers(0, 3, n - 1), rng.integers(0, 3, (m, 2))
    return known.astype(np.float32), labels[0], pairs.astype(np.float32), labels[1]


def opposites(m):
    """Pairs of one record and two labels: at weights of 0 their gradients are opposite."""
    known, _, pairs, _ = points(m)
    return known, np.arange(len(known)) % 2, pairs[:, [0, 0]], np.tile([0, 1], (m, 1))


def zeros(model, d=5):
    return jax.tree.map(np.zeros_like, model.init(KEY, d))


def private(noise_multiplier, clip_norm=0.5):
    return DPGD(neighbouring="replace_one", clip_norm=clip_norm, noise_multiplier=noise_multiplier)


SECRETS = {
    "none": {"start": "known"},
    "start": {"start": "unknown"},
    "order": {"start": "known", "order": "unknown"},
    "noise": {"start": "known", "mechanism": private(1.0)},
    "all": {"start": "unknown", "order": "unknown", "mechanism": private(1.0)},
}


def small_game(data, secret, **changes):
    options = SECRETS[secret] | {"n_shadows": 3} | changes
    if options["start"] == "known":
        options = {"init": SMALL.init(jax.random.key(1), 5)} | options
    size = 4 if options.get("order") == "unknown" else None
    return play(KEY, Training(model=SMALL, epochs=3, batch_size=size), *data, **options)


@pytest.mark.parametrize("score", ["auto", "confidence"])
@pytest.mark.parametrize("batch_size", [None, 64])
def test_who_knows_all_but_the_coin_always_wins(score, batch_size):
    training, init = Training(epochs=5, batch_size=batch_size), Classifier().init(jax.random.key(1), 64)
    game = play(KEY, training, *digits(m=40), init=init, score=score)
    assert game.accuracy.estimate == game.auc == 1
    assert set(game.bits) == {0, 1}
    # The released model is the one that the adversary trained, but for float32's rounding of a small difference.
    np.testing.assert_allclose(game.scores, 2.0 * game.bits - 1, atol=0.05)


@pytest.mark.optimised
def test_an_unknown_start_hides_what_a_known_one_shows():
    data, training = digits(1000), Training(epochs=15)
    known = play(KEY, training, *data, init=Classifier().init(jax.random.key(1), 64))
    unknown = play(KEY, training, *data, start="unknown", n_shadows=8)
    assert known.features == "parameters"
    assert known.accuracy.estimate == 1
    # BCH22, figure 11, of 10,000 records: nearly perfect overlap.
    assert unknown.features == "confidence"
    assert unknown.accuracy.low < 0.5 < unknown.accuracy.high
    assert abs(unknown.auc - 0.5) < 0.17  # 3 standard errors of 100 games


def test_an_unknown_start_of_few_records_does_not_hide_them():
    known_x, known_y, pairs_x, pairs_y = digits()
    game = play(KEY, Training(epochs=100), known_x[:9], known_y[:9], pairs_x, pairs_y, start="unknown")
    assert game.accuracy.low > 0.9


def test_an_unknown_order_is_seen_through_in_the_parameters_and_less_so_in_the_confidence():
    training, init = Training(epochs=5, batch_size=32), Classifier().init(jax.random.key(1), 64)
    auto = play(KEY, training, *digits(m=60), init=init, order="unknown", n_shadows=8)
    confidence = play(KEY, training, *digits(m=60), init=init, order="unknown", n_shadows=8, score="confidence")
    assert auto.features == "parameters"
    assert auto.accuracy.low > 0.6
    assert 0.4 < confidence.accuracy.estimate < auto.accuracy.estimate


@pytest.mark.parametrize(("noise_multiplier", "steps"), [(0.5, 6), (1.0, 1), (2.0, 6), (50.0, 1)])
def test_opposite_gradients_are_told_apart_as_well_as_the_guarantee_allows(noise_multiplier, steps):
    mechanism = private(noise_multiplier * np.sqrt(steps))
    # A small rate keeps the gradients of all steps opposite; their noise then adds up as in the accountant.
    training = Training(model=FLAT, epochs=steps, learning_rate=0.01, momentum=0.0)
    game = play(KEY, training, *opposites(1000), init=zeros(FLAT), mechanism=mechanism, level=SURE)
    best = norm.cdf(mechanism.mu(steps) / 2)
    assert game.accuracy.low <= best <= game.accuracy.high
    # Of two normal distributions mu apart; 5 standard errors of an area are less than 0.1 of 1,000 games.
    assert abs(game.auc - norm.cdf(mechanism.mu(steps) / np.sqrt(2))) < 0.09
    assert game.accuracy.estimate > 0.9 or noise_multiplier > 0.5
    assert abs(game.accuracy.estimate - 0.5) < 0.07 or noise_multiplier < 50


@pytest.mark.parametrize(
    ("noise_multiplier", "score", "start"),
    [
        (1.0, "parameters", "known"),
        (1.0, "confidence", "known"),
        (1.0, "confidence", "unknown"),
        (40.0, "parameters", "unknown"),
        (40.0, "confidence", "known"),
    ],
)
def test_nobody_beats_the_guarantee_of_a_private_network(noise_multiplier, score, start):
    mechanism = private(noise_multiplier, clip_norm=1.0)
    training, init = Training(epochs=4), Classifier().init(jax.random.key(1), 64) if start == "known" else None
    options = {"start": start, "init": init, "mechanism": mechanism, "score": score, "level": SURE}
    game = play(KEY, training, *digits(100, 150), n_shadows=5, **options)
    assert game.accuracy.low <= norm.cdf(mechanism.mu(4) / 2)
    if start == "known" and noise_multiplier == 1:
        assert game.accuracy.low > 0.55  # there is something to beat


@pytest.mark.parametrize("secret", list(SECRETS))
def test_twins_cannot_be_told_apart(secret):
    known_x, known_y, pairs_x, pairs_y = points(300)
    game = small_game((known_x, known_y, pairs_x[:, [0, 0]], pairs_y[:, [0, 0]]), secret, level=SURE)
    assert game.n_excluded == 0
    assert game.accuracy.low < 0.5 < game.accuracy.high
    low, _, high = np.sort([0.5, *share_interval(int(game.bits.sum()), 300, level=SURE)[1:]])
    assert low < 0.5 < high  # the coin is fair


@pytest.mark.parametrize("secret", ["none", "all"])
def test_a_game_does_not_depend_on_the_others_nor_on_how_many_are_held_at_once(secret, monkeypatch):
    known_x, known_y, pairs_x, pairs_y = points(7)
    every = small_game((known_x, known_y, pairs_x, pairs_y), secret)
    monkeypatch.setattr(model_membership, "BLOCK_BYTES", 1)
    alone = small_game((known_x, known_y, pairs_x[:3], pairs_y[:3]), secret)
    np.testing.assert_array_equal(every.bits[:3], alone.bits)
    # float32: other sums of other sizes move parameters by 1e-7 and ratios by that over the shadows' spread.
    np.testing.assert_allclose(every.scores[:3], alone.scores, rtol=2e-3, atol=2e-3)


def test_pairs_of_shadows_share_their_secrets_and_nobody_else_does(monkeypatch):
    train_many, seen = model_membership.train_many, []

    def watched(*data, **options):
        seen.append((jax.random.key_data(options["noise_keys"]), options["init"][0]["w"], options["batches"]))
        return train_many(*data, **options)

    monkeypatch.setattr(model_membership, "train_many", watched)
    small_game(points(7), "all")
    for secret in seen[0]:
        drawn = np.asarray(secret).reshape(7, 7, -1)
        np.testing.assert_array_equal(drawn[:, 1::2], drawn[:, 2::2])
        assert len(np.unique(drawn[:, [0, 1, 3, 5]].reshape(28, -1), axis=0)) == 28


def shadows_of(g=4, n=6, f=9, seed=0):
    """Pairs that differ by a shift alone, as noise without curvature makes them."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(g, n, 1, f)) @ rng.normal(size=(f, f))
    shift = rng.normal(size=(g, 1, 1, f)) * np.array([0, 1])[:, None]
    return rng.normal(size=(g, f)), own + shift


def test_equal_pairs_give_the_discriminant_of_scikit_learns_ledoit_wolf():
    released, shadows = shadows_of()
    found = log_ratios(released, shadows, np.array([0]))
    for i, pairs in enumerate(shadows):
        means = pairs.mean(axis=0)
        rest = pairs[:, 0] - means[0]
        weight = ledoit_wolf(rest, assume_centered=True)[1]
        assert 0.01 < weight < 0.99
        sample = rest.T @ rest / (len(rest) - 1)
        covariance = (1 - weight) * sample + weight * np.trace(sample) / len(sample) * np.eye(len(sample))
        expected = np.linalg.solve(covariance, means[1] - means[0]) @ (released[i] - means.mean(axis=0))
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)


def test_many_shadows_give_the_true_ratio_in_any_units_of_the_groups():
    rng = np.random.default_rng(0)
    spread = np.array([[1, 0.8, 0], [0.8, 1, 0.3], [0, 0.3, 2]])
    means = np.array([[0, 0, 0], [1, -0.5, 0.5]])
    shadows = rng.multivariate_normal(np.zeros(3), spread, size=(10, 500, 2)) + means
    released = rng.normal(size=(10, 3))
    expected = (released - means.mean(axis=0)) @ np.linalg.solve(spread, means[1] - means[0])
    found = log_ratios(released, shadows, np.arange(3))
    # Ratios reach 10; the error of a moment is 1 / sqrt(500), times the inverse of the least variance, 0.18.
    np.testing.assert_allclose(found, expected, rtol=0.2, atol=0.4)
    units = np.array([1e-6, 1, 1e6])
    np.testing.assert_allclose(log_ratios(released * units, shadows * units, np.arange(3)), found, rtol=1e-6)


def test_pairs_that_diverged_are_left_out_and_one_pair_is_too_few():
    released, shadows = shadows_of()
    broken = shadows.copy()
    broken[1, 2, 0, 3] = np.nan
    broken[2, :5, 1] = np.inf
    found, whole = (log_ratios(released, x, np.array([0, 4])) for x in (broken, shadows))
    np.testing.assert_array_equal(found[[0, 3]], whole[[0, 3]])
    fewer = log_ratios(released[1:2], np.delete(shadows[1:2], 2, axis=1), np.array([0, 4]))
    np.testing.assert_allclose(found[1], fewer[0], rtol=1e-9)
    assert found[1] != whole[1]
    assert np.isnan(found[2])


@pytest.fixture
def diverging(monkeypatch):
    """Models whose record begins with 7 end as nan: how soon training overflows depends on the machine."""
    train_many = model_membership.train_many

    def broken(training, known_x, known_y, targets_x, targets_y, **options):
        params = train_many(training, known_x, known_y, targets_x, targets_y, **options)
        params[-1]["b"][targets_x[:, 0] == 7] = np.nan
        return params

    monkeypatch.setattr(model_membership, "train_many", broken)


@pytest.mark.usefixtures("diverging")
@pytest.mark.parametrize("secret", ["none", "start", "noise"])
def test_a_game_whose_models_diverge_is_counted_and_left_out(secret):
    known_x, known_y, pairs_x, pairs_y = points(300)
    pairs_x[3, 0, 0] = 7
    game = small_game((known_x, known_y, pairs_x, pairs_y), secret)
    assert np.flatnonzero(np.isnan(game.scores)).tolist() == [3]
    assert game.guesses[3] == -1
    assert (game.guesses[np.arange(300) != 3] >= 0).all()
    assert game.n_excluded == 1
    assert game.n_released_not_finite == (game.bits[3] == 0)
    assert game.n_shadows_not_finite == (1 if secret == "none" else 3)
    assert game.accuracy == share_interval(int(np.sum(game.guesses == game.bits)), 299)


@pytest.mark.usefixtures("diverging")
def test_nothing_is_claimed_where_every_model_diverged():
    known_x, known_y, pairs_x, pairs_y = points(300)
    game = small_game((known_x, known_y, np.full_like(pairs_x, 7), pairs_y), "start")
    assert (game.n_excluded, game.n_released_not_finite, game.n_shadows_not_finite) == (300, 300, 1800)
    assert np.isnan([game.accuracy.estimate, game.auc, *(rate.estimate for rate in game.tpr.values())]).all()


def test_area_and_rates_are_those_of_the_scores():
    game = small_game(points(300), "noise")
    assert 0.5 < game.auc < 1
    np.testing.assert_allclose(game.auc, roc_auc_score(game.bits, game.scores), rtol=1e-12)
    fpr, tpr, _ = roc_curve(game.bits, game.scores, drop_intermediate=False)
    for rate in (0.1, 0.01):
        np.testing.assert_allclose(game.tpr[rate].estimate, tpr[fpr <= rate].max(), rtol=1e-12)
        assert game.tpr[rate].low < game.tpr[rate].estimate < game.tpr[rate].high
    assert np.isnan(game.tpr[0.001].estimate)  # 150 games say nothing about one in a thousand


class Clipping:
    """A mechanism without noise."""

    noise_scale = 0.0

    def factor(self, squares):
        return squares * 0 + 1


BAD = {
    "unknown knowledge of the start": ({"start": "secret"}, "start must be one of known, unknown"),
    "unknown knowledge of the order": ({"order": "random"}, "order must be one of known, unknown"),
    "unknown score": ({"score": "loss"}, "score must be one of auto, confidence, parameters"),
    "one shadow": ({"n_shadows": 1}, "n_shadows must be an integer >= 2"),
    "half a shadow": ({"n_shadows": 2.5}, "n_shadows must be an integer >= 2"),
    "no init": ({"init": None}, "init must be given if and only if start is 'known'"),
    "init in vain": ({"start": "unknown", "init": zeros(SMALL)}, "init must be given if and only if start is 'known'"),
    "init of other records": ({"init": zeros(SMALL, 6)}, "w of layer 0 must have shape"),
    "init not finite": ({"init": jax.tree.map(lambda a: a + np.nan, zeros(SMALL))}, "layer 0 must be finite"),
    "no order to be known": ({"order": "unknown", "training": Training(model=SMALL)}, "order must be 'known' for full"),
    "mechanism without noise": ({"mechanism": Clipping()}, "mechanism must add noise of one finite scale > 0"),
    "level": ({"level": 1.0}, "level must be in"),
    "key": ({"key": 3}, "key must be a single key"),
    "known records not a matrix": ({"known_x": np.zeros(5)}, "known_x must be a non-empty array"),
    "a known class too few": ({"known_y": np.zeros(3)}, "known_y must be 9 classes"),
    "pairs not pairs": ({"pairs_x": np.zeros((2, 3, 5))}, r"pairs_x must have shape \(m, 2, 5\)"),
    "pairs of other records": ({"pairs_x": np.zeros((2, 2, 4))}, r"pairs_x must have shape \(m, 2, 5\)"),
    "no pairs": ({"pairs_x": np.zeros((0, 2, 5))}, r"pairs_x must have shape \(m, 2, 5\)"),
    "pairs not finite": ({"pairs_x": np.full((2, 2, 5), np.nan)}, "pairs_x must be finite"),
    "classes of other pairs": ({"pairs_y": np.zeros((3, 2))}, "pairs_y must have shape"),
    "class out of range": ({"pairs_y": np.array([[0, 3], [0, 1]])}, "pairs_y must be integers from 0 to 2"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_arguments_are_named(name):
    changes, message = BAD[name]
    names = ("known_x", "known_y", "pairs_x", "pairs_y")
    good = {"key": KEY, "training": Training(model=SMALL, epochs=2, batch_size=4), "init": zeros(SMALL)}
    arguments = good | dict(zip(names, points(2), strict=True)) | changes
    with pytest.raises(ValueError, match=message):
        play(**arguments)
