"""Attacks that are judged on records they have not seen: intervals, and what is said of their errors."""

import types
from typing import Any

import jax
import numpy as np
import pytest

from drjax.attacks.property.cross_fit import CrossFit, cross_fit, errors_of_guessing, mean_and_deviation
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
    intervals = found.interval(fresh.maps, 0.9)
    shares, errors = np.concatenate(found.shares), np.concatenate(found.errors)
    low, high = shares.min(), shares.max()
    near = 1.6 / 0.1 / 79 * (high - low)
    for row in (0, 7):
        kept = []
        for candidate in np.linspace(low, high, 501):
            weights = np.exp(-(((shares - candidate) / near) ** 2) / 2)
            own = np.repeat(np.abs(each[:, row] - candidate), [40, 39])
            if (1 + weights[errors >= own].sum()) / (1 + weights.sum()) > 0.1:
                kept.append(candidate)
        np.testing.assert_allclose(intervals[row], [kept[0], kept[-1]])
    share = ((intervals[:, 0] <= fresh.shares) & (fresh.shares <= intervals[:, 1])).mean()
    # Three deviations of 79 errors and of 150 maps.
    assert abs(share - 0.9) < 3 * np.sqrt(0.09 * (1 / 79 + 1 / 150))
    np.testing.assert_allclose(found.interval(fresh.maps[:2], 0.99), [[low, high], [low, high]])
    with pytest.raises(ValueError, match="level must be in"):
        found.interval(fresh.maps, 1.0)


class _Told:
    """A model whose inputs are what it expects."""

    def predict(self, given):
        return types.SimpleNamespace(expected=np.asarray(given))


@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (0.2, 0.6)])
def test_intervals_hold_at_each_share_though_errors_grow_with_it(least, most):
    rng = np.random.default_rng(0)

    def told(m):
        share = rng.uniform(least, most, m)
        return share + 0.3 * (share - least) * rng.normal(size=m), share

    parts = [told(150), told(150)]
    errors, shares = zip(*((np.abs(expected - share), share) for expected, share in parts), strict=True)
    found = CrossFit((_Told(), _Told()), errors, shares, np.asarray)
    expected, share = told(3000)
    low, high = found.interval(expected, 0.9).T
    inside = (low <= share) & (share <= high)
    thirds = [
        inside[(place * 3).astype(int) == i].mean() for place in [(share - least) / (most - least)] for i in range(3)
    ]
    assert 0.87 < inside.mean() < 0.95
    assert min(thirds) > 0.86
    # Intervals of one width would be as wide below as above, and hold too few of the large shares.
    radius = np.quantile(np.concatenate(errors), 0.9)
    assert (np.abs(expected - share) <= radius)[share > least + 0.8 * (most - least)].mean() < 0.8
    assert (high - low)[share < least + 0.2 * (most - least)].mean() < 0.7 * 2 * radius
    assert low.min() >= least
    assert high.max() <= most


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
