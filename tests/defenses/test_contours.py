import numpy as np
import pytest

from drjax.defenses import contours as module
from drjax.defenses.contours import CELLS, LEAST_RECORDS, contours, places, worked_out


def points(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) * [3, 1] + rng.choice([-6.0, 6.0], n)[:, None]


def density_at(where, at, cell):
    """Sum of the bumps of places `at`, which stand at centres of cells, by its definition."""
    away = ((where - at) ** 2).sum(axis=1) / (CELLS * cell) ** 2
    return (np.maximum(1 - away, 0) ** 2).sum()


def test_levels_are_those_of_the_density_by_its_definition():
    coords = points()
    found = contours(coords, 0.7)
    unit = float(f"{np.sqrt(np.mean((coords - coords.mean(axis=0)) ** 2)):.1e}")
    assert found.cell == pytest.approx(0.7 * unit / CELLS, rel=1e-5)
    at = np.round(coords / found.cell) * found.cell
    first, second = found.axes
    rng = np.random.default_rng(1)
    for i, j in zip(rng.integers(len(first), size=300), rng.integers(len(second), size=300), strict=True):
        held = density_at(np.array([first[i], second[j]]), at, found.cell)
        lines = [LEAST_RECORDS * 2**k for k in range(20)]
        assert found.levels[i, j] == sum(held >= line - 1e-9 for line in lines)
    assert found.levels.max() >= 2
    # No line is around fewer records than the least.
    few = contours(np.concatenate([coords, [[200.0, 0.0]] * (LEAST_RECORDS - 1)]), 0.2)
    first, _ = few.axes
    assert few.levels[first > 100].max() == 0


def test_who_knows_the_others_finds_the_cells_that_leave_the_lines_as_they_are():
    coords = points(60, seed=3)
    found = contours(coords, 0.5)
    expected = worked_out(coords, found)
    at = np.round(coords / found.cell).astype(int) - found.corner
    for record in (0, 17, 59):
        others = np.delete(at, record, axis=0)
        rest = module._density(others, found.levels.shape)
        total, weighed = 0.0, np.zeros(2)
        for cell in np.ndindex(found.levels.shape):
            weight = max(rest[cell], 1e-6 if np.abs(np.array(cell) - at[record]).max() <= 2 * CELLS else 0.0)
            if weight == 0:
                continue
            moved = module._density(np.concatenate([others, [cell]]), found.levels.shape)
            if np.array_equal(module._levels(moved), found.levels):
                total, weighed = total + weight, weighed + weight * np.array(cell)
        np.testing.assert_allclose(expected[record], (weighed / total + found.corner) * found.cell, atol=1e-6)


def test_finer_contours_tell_more_of_a_place_and_its_own_is_never_ruled_out():
    coords = points(2000)
    spread = np.sqrt(np.mean((coords - coords.mean(axis=0)) ** 2))
    errors = []
    for radius in (0.15, 0.5, 1.5):
        found = contours(coords, radius)
        expected = worked_out(coords, found)
        assert np.isfinite(expected).all()
        errors.append(np.sqrt(np.mean((expected - coords) ** 2)) / spread)
    assert errors[0] < errors[2]
    assert errors[0] > 0.05
    # Records on a line's edge are told better than the density alone tells.
    found = contours(coords, 0.5)
    assert np.corrcoef(worked_out(coords, found)[:, 0], coords[:, 0])[0, 1] > 0.5


def test_the_lattice_that_is_published_ends_where_the_lines_do():
    coords = points()
    far = np.concatenate([coords[1:], [coords[0]]])
    # The spread is that of all records, in two digits: here it stays the same.
    alone = [np.concatenate([coords, [[20.0 + away, -9.0]]]) for away in (0.0, 0.6)]
    found = [contours(one, 0.5) for one in alone]
    assert found[0].levels.shape != found[1].levels.shape
    for one, other in zip(found[0].cropped(), found[1].cropped(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(contours(far, 0.5).levels, contours(coords, 0.5).levels)
    with pytest.raises(ValueError, match="radius must leave a line around at least 5 records, got one that leaves"):
        contours(points(20), 0.01).cropped()


def test_a_reader_sees_the_region_between_two_lines():
    coords = np.concatenate([np.full((50, 2), -4.0), np.full((50, 2), 4.0)])
    coords += np.random.default_rng(0).normal(size=coords.shape) * 0.01
    seen = places(coords, contours(coords, 0.5))
    np.testing.assert_allclose(seen, np.round(coords), atol=0.3)


@pytest.mark.parametrize(
    ("coords", "radius", "match"),
    [
        (points(), 0.0, "radius must be"),
        (points(), 1e-4, r"radius must leave at most 4,000,000 cells, got 0.0001"),
        (points()[:, :1], 0.5, r"coords must be finite and of two columns, got shape \(400, 1\)"),
        (np.ones((20, 2)), 0.5, "coords must not be all the same"),
    ],
)
def test_bad_input_is_refused(coords, radius, match):
    with pytest.raises(ValueError, match=match):
        contours(coords, radius)
