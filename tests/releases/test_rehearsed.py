"""Rehearsals in memory have the noise of the releases: none to speak of at a huge epsilon, much at a small one."""

import json

import jax
import numpy as np
import pytest

from drjax.data.schema import Column, Schema
from drjax.releases import PCAReleaseConfig, bounds, rehearsed, release_pca
from drjax.releases.manifest import curve_of
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic

N = 400
BLOCKS = [[2, 3, 4]]


def records(n=N, seed=0):
    """Two numbers that go together, and a category that goes with them."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(0, 1, n)
    kind = np.digitize(level, [0.3, 0.6])
    numbers = np.column_stack([level, np.clip(level + rng.normal(0, 0.05, n), 0, 1)])
    return np.column_stack([numbers, kind[:, None] == np.arange(3)]).astype(float)


def share_kept(x, found):
    """Share of the variance about the mean that the components keep."""
    z = x - x.mean(axis=0)
    return (np.linalg.norm(z @ found.components.T) / np.linalg.norm(z)) ** 2


def test_components_and_mean_are_those_of_the_records_at_a_huge_epsilon_and_not_at_a_small_one():
    x, key = records(), jax.random.key(0)
    values, vectors = np.linalg.eigh(np.cov(x.T))
    best = values[-2:].sum() / values.sum()
    found = rehearsed.components(key, x, 1e5, blocks=BLOCKS)
    assert share_kept(x, found) == pytest.approx(best, abs=0.01)
    np.testing.assert_allclose(found.center, x.mean(axis=0), atol=1e-2)
    np.testing.assert_allclose(np.abs(found.components @ vectors[:, ::-1][:, :2]), np.eye(2), atol=0.05)
    noisy = [rehearsed.components(jax.random.key(i), x, 0.1, blocks=BLOCKS) for i in range(8)]
    assert np.mean([share_kept(x, one) for one in noisy]) < best - 0.05
    assert np.std([one.center[0] for one in noisy]) > 1e-3


def test_the_curve_of_components_is_that_of_their_release(tmp_path):
    x = records()
    (tmp_path / "bounds.json").write_text(json.dumps({"lower": [0] * 5, "upper": [1] * 5}))
    np.save(tmp_path / "x.npy", x)
    config = PCAReleaseConfig(data=tmp_path / "x.npy", epsilon=1.0, bounds=tmp_path / "bounds.json", trials=0)
    manifest = release_pca(config, tmp_path / "out").manifest
    found = rehearsed.components(jax.random.key(0), x, 1.0)
    assert found.curve == curve_of(manifest)
    assert manifest["mechanism"]["row_norm"] == pytest.approx(np.sqrt(5) / 2)


def test_synthetic_records_keep_what_the_real_ones_say_and_are_one_of_each_category():
    x, key = records(), jax.random.key(1)
    found = rehearsed.table(key, x, 1e4, blocks=BLOCKS, n_synthetic=2000)
    assert found.x.shape == (2000, 5)
    assert found.x.min() >= 0
    assert found.x.max() <= 1
    np.testing.assert_array_equal(found.x[:, 2:].sum(axis=1), 1)
    np.testing.assert_allclose(found.x.mean(axis=0), x.mean(axis=0), atol=0.06)
    assert np.corrcoef(found.x[:, 0], found.x[:, 1])[0, 1] > 0.8
    assert np.corrcoef(found.x[:, 0], found.x[:, 4])[0, 1] > 0.4
    noisy = [rehearsed.table(jax.random.key(i), x, 0.05, blocks=BLOCKS).x.mean(axis=0) for i in range(4)]
    assert np.abs(noisy - x.mean(axis=0)).max() > 0.1


def test_the_curve_of_synthetic_records_is_that_of_their_release(tmp_path):
    np.savetxt(tmp_path / "x.csv", records(), delimiter=",", header="a,b,c,d,e", comments="")
    (tmp_path / "bounds.json").write_text(json.dumps({name: [0, 1] for name in "abcde"}))
    config = SyntheticReleaseConfig(data=tmp_path / "x.csv", epsilon=1.0, bounds=tmp_path / "bounds.json", trials=0)
    manifest = release_synthetic(config, tmp_path / "out").manifest
    found = rehearsed.table(jax.random.key(0), records(), 1.0)
    assert found.x.shape == (N, 5)
    assert found.curve == curve_of(manifest)


def test_no_record_is_farther_from_the_centre_than_is_said_and_one_is_as_far():
    columns = Column(name="a", kind="number", upper=4.0), Column(name="w", kind="category", categories=("x", "y", "z"))
    lower, upper = Schema(columns).bounds
    center, scale = np.array([2, 1 / 3, 1 / 3, 1 / 3]), np.array([2.0, 1, 1, 0.5])
    found = bounds.reach(lower, upper, center, scale, [[1, 2, 3]])
    corners = [np.array([a, *one]) for a in (0, 4) for one in (*np.eye(3), np.zeros(3))]
    assert found == pytest.approx(max(np.linalg.norm((corner - center) / scale) for corner in corners))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon must be > 0"),
        ({"delta": 0.5}, "delta in"),
        ({"neighbouring": "add_or_remove"}, "neighbouring must be one of"),
        ({"scale": np.zeros(5)}, "scale must be 5 finite numbers > 0"),
        ({"n_components": 6}, "n_components must be <= d"),
    ],
)
def test_arguments_out_of_their_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rehearsed.components(jax.random.key(0), records(), **{"epsilon": 1.0, **options})


@pytest.mark.parametrize("blocks", [[[2, 4]], [[3, 4, 5]], [[1, 2], [2, 3]]])
def test_blocks_that_are_no_neighbours_are_refused(blocks):
    with pytest.raises(ValueError, match="blocks must"):
        rehearsed.table(jax.random.key(0), records(), 1.0, blocks=blocks)
