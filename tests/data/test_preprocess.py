import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.preprocessing

from drjax.data import MinMaxScaler, StandardScaler

PAIRS = [(MinMaxScaler, sklearn.preprocessing.MinMaxScaler), (StandardScaler, sklearn.preprocessing.StandardScaler)]
# Scaled values are of order one, and each is a handful of roundings away from scikit-learn's.
ATOL = {np.float32: 3e-6, np.float64: 1e-12}


def records(dtype, n=60, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 6)) * [1, 10, 1e-3, 1, 1, 1] + [0, -5, 2, 0, 0, 0]
    x[:, 3] = 7.3
    x[:, 4] = 0.0
    x[:, 5] = 0.1 + 0.2
    return x.astype(dtype)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_agrees_with_scikit_learn_also_on_constant_columns(ours, theirs, dtype):
    x, fresh = records(dtype), records(dtype, seed=1) + dtype(0.5)
    scaler, peer = ours.fit(x), theirs().fit(x)
    scaled = scaler.transform(fresh)
    assert scaled.dtype == dtype
    # Column 2 varies by 1e-3 around 2, so its float32 values carry relative rounding 2 / 1e-3 larger than the others.
    atol = np.where(np.arange(6) == 2, 1e3, 1) * ATOL[dtype]
    assert (np.abs(scaled - peer.transform(fresh)) <= atol * np.maximum(1, np.abs(scaled))).all()
    np.testing.assert_allclose(scaler.inverse(scaled), fresh, atol=20 * ATOL[dtype], rtol=ATOL[dtype])


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
@pytest.mark.parametrize("spread", [0.0, 1e-17, 1e-13])
def test_counts_the_same_columns_as_constant_as_scikit_learn(ours, theirs, spread):
    x = 1.0 + spread * np.random.default_rng(0).normal(size=(200, 3))
    # A spread of 1e-13 around 1 is 450 units of rounding; scikit-learn sums in another order.
    expected = theirs().fit(x).scale_ ** (-1 if ours is MinMaxScaler else 1)
    np.testing.assert_allclose(ours.fit(x).scale, expected, rtol=1e-4)


@pytest.mark.parametrize("scaler", [MinMaxScaler, StandardScaler])
def test_records_of_any_shape_are_scaled_feature_by_feature(scaler):
    x = records(np.float64)
    cube = x.reshape(-1, 2, 3)
    np.testing.assert_array_equal(scaler.fit(cube).transform(cube).reshape(x.shape), scaler.fit(x).transform(x))


@pytest.mark.parametrize("scaler", [MinMaxScaler, StandardScaler])
def test_works_on_jax_arrays_under_jit_and_keeps_their_dtype(scaler):
    x = records(np.float32)
    fitted = scaler.fit(jnp.asarray(x))
    scaled = jax.jit(lambda s, x: s.transform(x))(fitted, jnp.asarray(x))
    assert isinstance(scaled, jax.Array)
    assert scaled.dtype == jnp.float32
    # XLA may divide by multiplying with the reciprocal; column 2 amplifies nothing here, both start from one fit.
    np.testing.assert_allclose(scaled, scaler.fit(x).transform(x), rtol=1e-6, atol=1e-6)
    assert isinstance(scaler.fit(x).transform(x), np.ndarray)


def test_min_max_takes_the_fitted_records_to_zero_and_one_and_clips_nothing():
    fitted = MinMaxScaler.fit(np.array([[1.0], [3.0]]))
    np.testing.assert_array_equal(fitted.transform(np.array([[1.0], [3.0], [5.0]])), [[0.0], [1.0], [2.0]])


@pytest.mark.parametrize("scaler", [MinMaxScaler, StandardScaler])
@pytest.mark.parametrize("bad", [np.array([[1.0, np.nan]]), np.empty((0, 3)), np.array([["a"]]), np.float64(1.0)])
def test_fitting_refuses_what_it_cannot_scale(scaler, bad):
    with pytest.raises(ValueError, match="x must be"):
        scaler.fit(bad)
