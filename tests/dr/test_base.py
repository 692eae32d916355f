"""What the methods share: checks, flags and gaps, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core.types import Status
from drjax.dr import base


@pytest.mark.parametrize(
    ("values", "k", "expected"),
    [
        ([8, 6, 5, 1], 3, [0.25, 0.125, 0.125]),
        ([8, 6, 5], 3, [0.25, 0.125, 0.125]),  # nothing lies below the last of all
        ([4], 1, [1]),
        ([0, 0], 1, [0]),
    ],
)
def test_a_gap_is_the_distance_to_the_nearest_eigenvalue_over_the_largest(values, k, expected):
    values = jnp.asarray(values, jnp.float32)
    np.testing.assert_array_equal(base.eigengap(values, k), expected)
    np.testing.assert_array_equal(base.eigengap(jnp.stack([values, values]), k), [expected, expected])


def test_signs_are_flagged_where_margin_and_gap_are_small_and_the_component_counts():
    margin, gap = jnp.asarray([1.0, 1e-7]), jnp.asarray([1e-5, 0.5])
    assert int(base.sign_flags(margin, gap)) == Status.SIGN_TIE | Status.SMALL_GAP
    assert int(base.sign_flags(margin, gap, jnp.asarray([True, False]))) == Status.SMALL_GAP
    assert int(base.sign_flags(margin, gap, jnp.asarray([False, True]))) == Status.SIGN_TIE
    assert int(base.sign_flags(margin, gap, False)) == Status.OK


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_coordinates_that_are_not_finite_are_flagged_lane_by_lane(bad):
    coords = jnp.zeros((3, 4, 2)).at[1, 2, 0].set(bad)
    flags = base.non_finite(coords)
    assert flags.dtype == jnp.uint32
    np.testing.assert_array_equal(flags, [0, Status.NON_FINITE, 0])
    np.testing.assert_array_equal(jax.vmap(base.non_finite)(coords), flags)


def test_targets_of_another_width_are_refused():
    base.check_target(np.zeros(3), 3)
    base.check_targets(np.zeros((2, 3)), 3)
    for target in (np.zeros(2), np.zeros((1, 3)), np.zeros(())):
        with pytest.raises(ValueError, match=r"^target must have shape \(3,\) to match known, got \("):
            base.check_target(target, 3)
    for targets in (np.zeros((2, 2)), np.zeros(3), np.zeros((1, 2, 3))):
        with pytest.raises(ValueError, match=r"^targets must have shape \(m, 3\) to match known, got \("):
            base.check_targets(targets, 3)


def test_known_records_beyond_the_working_precision_are_refused():
    known = np.array([[1e39, 0.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="known must be finite"):
        base.known_records(known)
    with jax.enable_x64(True):
        assert base.known_records(known).dtype == np.float64
    assert base.known_records(np.eye(2, dtype=int)).dtype == np.float32


def test_more_components_than_there_are_is_refused():
    base.check_components(3, 5, 3)
    with pytest.raises(ValueError, match=r"n_components must be <= min\(n, d\) of n = 5 .* d = 3 features = 3, got 4"):
        base.check_components(4, 5, 3)
