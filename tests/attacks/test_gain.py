import jax
import numpy as np
import pytest

from drjax.attacks.gain import CLOSE, gain, is_rebuilt, similar_error

KEY = jax.random.key(0)
M = 60


def compared(guess, targets, nearest=0.5):
    mean_error = np.mean((targets - targets.mean(axis=0)) ** 2, axis=1)
    nothing = np.zeros(M, bool)
    return gain(
        KEY,
        guess,
        targets,
        mean_error=mean_error,
        nearest_error=np.full(M, nearest),
        identified=nothing,
        mean_identified=nothing,
    )


def test_the_error_taken_away_and_the_share_rebuilt_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    targets = rng.normal(size=(M, 3))
    guess = targets + rng.normal(size=(M, 3)) * np.linspace(0, 1.5, M)[:, None]
    found = compared(guess, targets)
    error, mean = (np.mean((x - targets) ** 2, axis=1) for x in (guess, targets.mean(axis=0)))
    assert found.error.estimate == pytest.approx(1 - error.sum() / mean.sum())
    rebuilt = [e < m / 2 and e < max(0.5, CLOSE * m) for e, m in zip(error, mean, strict=True)]
    assert found.rebuilt.estimate == pytest.approx(np.mean(rebuilt))
    chance = [
        [
            np.mean((guess[j] - targets[i]) ** 2) < min(mean[i] / 2, max(0.5, CLOSE * mean[i]))
            for j in range(M)
            if j != i
        ]
        for i in range(M)
    ]
    assert found.by_chance == pytest.approx(np.mean(chance))


def test_a_twin_among_the_known_records_hides_nobody():
    nearest, mean = np.zeros(2), np.ones(2)
    np.testing.assert_array_equal(is_rebuilt(np.array([0.001, 0.02]), mean, nearest), [True, False])
    np.testing.assert_allclose(similar_error(mean, np.array([0.0, 0.3])), [CLOSE, 0.3])
    assert not is_rebuilt(np.array([np.nan]), mean[:1], nearest[:1])[0]


def test_nothing_is_known_where_there_was_nothing_to_take_back():
    same = np.ones((M, 3))
    assert np.isnan(compared(same, same).error.estimate)
    assert np.isnan(compared(same, same).rebuilt.estimate)
