"""Steps in which features are recorded are found where there are some, and only there."""

import numpy as np
import pytest

from drjax.attacks.reconstruction.spacings import off_steps, spacings


@pytest.fixture
def whole():
    return np.random.default_rng(0).integers(0, 40, (60, 5)).astype(float)


@pytest.mark.parametrize(
    ("unit", "start", "dtype"), [(1, 0, float), (0.01, -3, float), (1 / 255, 0, np.float32), (7.5, 1e3, float)]
)
def test_steps_are_found_in_any_unit(whole, unit, start, dtype):
    x = (start + unit * whole).astype(dtype)
    np.testing.assert_allclose(spacings(x), unit, rtol=1e-5)
    assert not off_steps(x, spacings(x), x[0]).any()
    assert off_steps(x + unit / 2, spacings(x), x[0]).all()


def test_measured_values_and_constant_features_have_none():
    x = np.random.default_rng(1).normal(size=(80, 50))
    assert not spacings(x).any()
    assert not spacings(x.astype(np.float32)).any()
    assert not spacings(np.ones((9, 2))).any()
    assert not off_steps(x, np.zeros(50), x[0]).any()


def test_the_greatest_step_is_found_where_no_two_values_are_neighbours():
    x = np.array([[0.0], [6], [10], [15]])
    assert spacings(x) == pytest.approx(1)
