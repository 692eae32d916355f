"""Attacks that are judged on records they have not seen: intervals, and what is said of their errors."""

from typing import Any

import jax
import numpy as np
import pytest

from drjax.attacks.property.cross_fit import cross_fit, errors_of_guessing, mean_and_deviation
from drjax.attacks.property.shadow_maps import ShadowMaps


def part(m, seed, n=40):
    """Maps of two clusters, a share of the points in the narrow one."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(n + 1, size=m)
    maps = rng.normal(size=(m, n, 2))
    has = np.arange(n) < counts[:, None]
    maps[has] = maps[has] * [0.4, 1.5] + [5, 0]
    return ShadowMaps(list(maps), counts / n, np.zeros(m, np.uint32), 0)


def fitted(*parts) -> Any:
    return cross_fit(jax.random.key(0), "descriptors", parts, list)


def test_no_model_is_judged_on_what_it_was_trained_on():
    parts = part(30, 0), part(25, 1)
    found = fitted(*parts)
    for i, j in ((0, 1), (1, 0)):
        assert len(found.models[i].kernel.regression.inputs) == len(parts[j].maps) - 1
        own = found.models[i].predict(parts[i].maps).expected
        np.testing.assert_allclose(found.errors[i], np.abs(own - parts[i].shares))
    expected = np.mean([model.predict(parts[0].maps).expected for model in found.models], axis=0)
    np.testing.assert_allclose(found.predict(parts[0].maps), expected)


def test_intervals_are_those_of_the_definition_and_cover():
    found, fresh = fitted(part(40, 0), part(39, 1)), part(150, 2)
    each = np.stack([model.predict(fresh.maps).expected for model in found.models])
    lows = np.concatenate([each[i] - found.errors[i][:, None] for i in range(2)])
    highs = np.concatenate([each[i] + found.errors[i][:, None] for i in range(2)])
    intervals = found.interval(fresh.maps, 0.9)
    # Of 79 ends, the ceil(0.9 * 80)-th from the inside: 72.
    expected = np.clip([-np.sort(-lows, axis=0)[71], np.sort(highs, axis=0)[71]], 0, 1).T
    np.testing.assert_allclose(intervals, expected)
    share = ((intervals[:, 0] <= fresh.shares) & (fresh.shares <= intervals[:, 1])).mean()
    # Three deviations of 79 errors and of 150 maps.
    assert abs(share - 0.9) < 3 * np.sqrt(0.09 * (1 / 79 + 1 / 150))
    np.testing.assert_array_equal(found.interval(fresh.maps[:2], 0.99), [[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="level must be in"):
        found.interval(fresh.maps, 1.0)


def test_a_guess_is_the_median_of_the_other_parts():
    parts = part(9, 0), part(10, 1)
    first, second = errors_of_guessing(parts)
    np.testing.assert_allclose(first, np.abs(np.median(parts[1].shares) - parts[0].shares))
    np.testing.assert_allclose(second, np.abs(np.median(parts[0].shares) - parts[1].shares))


def test_the_deviation_of_a_mean_is_that_over_other_records():
    rng = np.random.default_rng(0)
    means, said = [], []
    for _ in range(400):
        values = []
        for _ in range(2):
            pool = rng.normal(size=60)
            values.append(np.array([rng.choice(pool, 15, replace=False).mean() for _ in range(20)]))
        mean, deviation = mean_and_deviation(values, 15 / 60)
        means.append(mean)
        said.append(deviation)
    # Within a pool the values vary less than over pools, by sqrt(1 - 1/4); the deviation of 400 is within a tenth.
    np.testing.assert_allclose(np.mean(said), np.std(means), rtol=0.25)
    plain = np.mean(said) / np.sqrt(1 + 19 / 4)
    assert plain < 0.5 * np.std(means)
