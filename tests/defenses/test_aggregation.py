import jax
import numpy as np
import pytest
import scipy.spatial

from drjax.defenses import Groups, Hexagons
from drjax.defenses.aggregation import BLUR
from drjax.dr import PCA

KEY = jax.random.key(0)


def points(n=157, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32) * [3, 1] + [5, -2]


def spread_of(coords):
    return np.sqrt(np.mean((coords - coords.mean(axis=0)) ** 2))


def halved(coords, size):
    """Groups by recursion: the median of the wider coordinate, until a half would be too small."""
    groups, rest = [], [np.arange(len(coords))]
    while rest:
        group = rest.pop()
        if len(group) < 2 * size:
            groups.append(group)
            continue
        wider = np.argmax(np.ptp(coords[group], axis=0))
        order = group[np.argsort(coords[group, wider], kind="stable")]
        rest += [order[: len(order) // 2], order[len(order) // 2 :]]
    return groups


@pytest.mark.parametrize("size", [2, 5, 20, 40, 79])
def test_every_record_lies_at_the_rounded_centre_of_its_group_and_no_group_is_too_small(size):
    coords = points()
    found = np.asarray(Groups(method=PCA(), size=size).defended(KEY, coords.astype(np.float32)))
    for group in halved(coords.astype(np.float32), size):
        grid = BLUR * float(f"{spread_of(coords):.1e}") / len(group)
        assert np.ptp(found[group], axis=0).max() == 0
        assert np.abs(found[group[0]] - coords[group].mean(axis=0)).max() <= 0.501 * grid
        np.testing.assert_allclose(found[group] / grid, np.round(found[group] / grid), atol=1e-3)
    counts = np.unique(found, axis=0, return_counts=True)[1]
    assert counts.min() >= size


def test_groups_of_one_are_the_records_and_a_size_above_half_is_one_group():
    coords = points().astype(np.float32)
    for size in (0, 1):
        np.testing.assert_array_equal(Groups(method=PCA(), size=size).defended(KEY, coords), coords)
    whole = np.asarray(Groups(method=PCA(), size=100).defended(KEY, coords))
    assert len(np.unique(whole, axis=0)) == 1
    np.testing.assert_allclose(whole[0], coords.mean(axis=0), atol=0.51 * BLUR * spread_of(coords) / len(coords))


def test_equal_places_are_divided_as_well():
    found = np.asarray(Groups(method=PCA(), size=3).defended(KEY, np.ones((24, 2), np.float32)))
    np.testing.assert_array_equal(found, np.ones((24, 2)))


@pytest.mark.parametrize("size", [20, 100])
def test_whoever_knows_the_other_members_of_a_group_does_not_find_the_last_one_by_subtraction(size):
    coords = points(1000).astype(np.float64)
    with jax.enable_x64(True):
        defence = Groups(method=PCA(), size=size)
        published = np.asarray(defence.defended(KEY, coords))
        found = defence.worked_out(KEY, coords, published)
    unit = spread_of(coords)
    error = np.abs(found - coords)
    _, group, sizes = np.unique(published, axis=0, return_inverse=True, return_counts=True)
    means = np.stack([coords[group == g].mean(axis=0) for g in range(len(sizes))])[group]
    left_over = sizes[group][:, None] * (published - means)
    # Uniform in an interval of the blur: off by a quarter of it on average.
    assert 0.2 * BLUR * unit < np.abs(left_over).mean() < 0.3 * BLUR * unit
    # What is worked out is where the record can be at all: in the box of its group.
    for g in range(len(sizes)):
        own = coords[group == g]
        assert (found[group == g] >= own.min(axis=0)).all()
        assert (found[group == g] <= own.max(axis=0)).all()
    assert error.mean() < 1.3 * np.abs(means - coords).mean()


@pytest.mark.parametrize("kind", [Groups, Hexagons])
def test_the_width_of_a_grid_tells_two_digits_of_the_spread(kind):
    coords = points(300).astype(np.float64)
    moved = coords.copy()
    moved[0] += 0.01
    with jax.enable_x64(True):
        places = [
            np.asarray(kind(method=PCA(), **{kind.scale_field: 30.0 if kind is Groups else 1.0}).defended(KEY, c))
            for c in (coords, moved)
        ]
    # One record a little aside moves at most its own place: the grid itself stands still.
    assert (places[0] != places[1]).any(axis=1).sum() <= 1


@pytest.mark.parametrize("width", [0.1, 0.7, 2.0])
def test_every_record_lies_at_the_nearest_of_the_centres_of_equal_hexagons(width):
    coords = points().astype(np.float32)
    found = np.asarray(Hexagons(method=PCA(), width=width).defended(KEY, coords))
    unit = width * float(f"{spread_of(coords):.1e}")
    # The lattice that has a centre at every place that is taken, and six neighbours at the width around each.
    i, j = np.meshgrid(np.arange(-400, 400), np.arange(-400, 400))
    lattice = np.stack([i + 0.5 * (j % 2), j * np.sqrt(3) / 2], axis=-1).reshape(-1, 2) * unit
    distance, at = scipy.spatial.cKDTree(lattice).query(coords)
    np.testing.assert_allclose(found, lattice[at], atol=1e-4 * unit + 1e-5)
    assert distance.max() <= unit / np.sqrt(3) * 1.001


def test_hexagons_are_of_two_coordinates():
    with pytest.raises(ValueError, match="n_components must be 2 for hexagons, got 3"):
        Hexagons(method=PCA(n_components=3), width=1)
