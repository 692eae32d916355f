import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core import validate
from drjax.defenses import mechanisms, noisy_dr
from drjax.defenses.dp_gd import DPGD
from drjax.defenses.dp_pca import AnalyticGauss
from drjax.dr import PCA

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [0, -1, NAN, -INF])
def test_positive_refuses_what_is_not_above_zero(value):
    with pytest.raises(ValueError, match=rf"scale must be > 0, got {value}"):
        validate.positive(scale=value)


@pytest.mark.parametrize("value", [-1e-300, NAN, -INF])
def test_non_negative_refuses_what_is_below_zero(value):
    with pytest.raises(ValueError, match="scale must be >= 0"):
        validate.non_negative(scale=value)


def test_numbers_in_range_pass():
    validate.positive(a=1e-300, b=3)
    validate.non_negative(a=0, b=0.0)
    validate.at_most(3, a=3, b=-INF)
    validate.probability(a=0, b=1, c=np.array([0.0, 0.5]))
    validate.integer(a=1, b=np.int64(7))
    validate.integer(minimum=0, a=0)


@pytest.mark.parametrize("value", [0, 1, -0.5, 1.5, NAN])
def test_an_open_unit_has_no_ends(value):
    validate.open_unit(confidence=0.95, share=1e-300)
    with pytest.raises(ValueError, match=r"confidence must be in \(0, 1\), got"):
        validate.open_unit(confidence=value)


def test_the_second_of_several_values_is_checked_and_named():
    with pytest.raises(ValueError, match="second must be > 0"):
        validate.positive(first=1, second=NAN)


@pytest.mark.parametrize("value", [0, -3, 1.0, 2.5, NAN, True, "2", None, np.float64(2)])
def test_integer_refuses_everything_but_integers_of_at_least_the_minimum(value):
    with pytest.raises(ValueError, match="k must be an integer >= 1"):
        validate.integer(k=value)


@pytest.mark.parametrize("value", [4, 3.0000001, NAN, INF])
def test_at_most_refuses_what_exceeds_the_limit_and_names_it(value):
    with pytest.raises(ValueError, match=r"k must be <= min\(n, d\) = 3"):
        validate.at_most(3, "min(n, d)", k=value)


@pytest.mark.parametrize("value", [-0.1, 1.1, NAN, np.array([0.5, NAN]), np.array([[2.0]])])
def test_probability_refuses_what_is_outside_the_unit_interval(value):
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], got"):
        validate.probability(share=value)


def test_one_of_lists_the_options():
    validate.one_of({"a": 1, "b": 2}, method="a")
    with pytest.raises(ValueError, match="method must be one of a, b; got 'c'"):
        validate.one_of({"b": 1, "a": 2}, method="c")


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((0, 2)), np.zeros((2, 0)), np.zeros((1, 2, 3)), np.float64(1)])
def test_shape_2d_refuses_other_ranks_and_empty_axes(array):
    with pytest.raises(ValueError, match=r"x must be a non-empty array of shape \(rows, columns\)"):
        validate.shape_2d(x=array)


def test_shape_2d_is_safe_while_tracing():
    def shaped(x):
        validate.shape_2d(x=x)
        return x

    assert jax.jit(shaped)(jnp.ones((2, 3))).shape == (2, 3)
    with pytest.raises(ValueError, match="got shape \\(3,\\)"):
        jax.jit(shaped)(jnp.ones(3))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_finite_counts_the_bad_entries_and_locates_the_first(bad):
    x = np.zeros((3, 2))
    x[1, 1] = x[2, 0] = bad
    with pytest.raises(ValueError, match=r"x must be finite, got 2 nan or infinite entries, the first at \(1, 1\)"):
        validate.finite(x=x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool", "bfloat16"])
def test_matrix_accepts_every_real_dtype_and_keeps_it(dtype):
    x = np.asarray(jnp.ones((2, 3), dtype)) if dtype == "bfloat16" else np.ones((2, 3), dtype)
    assert validate.matrix(x).dtype == x.dtype


def test_matrix_accepts_lists_and_device_arrays():
    np.testing.assert_array_equal(validate.matrix([[1, 2]]), [[1, 2]])
    assert isinstance(validate.matrix(jnp.ones((2, 2))), np.ndarray)


@pytest.mark.parametrize("bad", [[["a", "b"]], [[1 + 2j]], [[None, 1]], np.array([[object()]])])
def test_matrix_refuses_what_is_not_a_real_number(bad):
    with pytest.raises(ValueError, match="known must be numeric"):
        validate.matrix(bad, "known")


def test_matrix_refuses_wrong_sizes_by_name():
    with pytest.raises(ValueError, match="known must have at least 3 rows, got 2"):
        validate.matrix(np.zeros((2, 4)), "known", min_rows=3)
    with pytest.raises(ValueError, match="known must have 5 columns, got 4"):
        validate.matrix(np.zeros((2, 4)), "known", columns=5)
    with pytest.raises(ValueError, match="known must be a non-empty array"):
        validate.matrix(np.zeros(4), "known")


def test_matrix_refuses_nan():
    with pytest.raises(ValueError, match="must be finite"):
        validate.matrix([[1.0, NAN]])


def test_prng_key_accepts_one_typed_key():
    validate.prng_key(jax.random.key(0))


@pytest.mark.parametrize("bad", [0, None, np.zeros(2, np.uint32), jnp.zeros(2, jnp.uint32)])
def test_prng_key_refuses_seeds_and_raw_keys(bad):
    with pytest.raises(ValueError, match=r"key must be a single key from jax.random.key\(seed\)"):
        validate.prng_key(bad)


def test_prng_key_refuses_a_batch_of_keys():
    with pytest.raises(ValueError, match="shared_key must be a single key"):
        validate.prng_key(jax.random.split(jax.random.key(0), 2), "shared_key")


def test_placeholders_of_jax_have_no_value_to_check_and_numbers_do():
    seen = []
    jax.jit(lambda x: seen.append(x) or x)(1.0)
    lowered = jax.jit(lambda x: x).lower(1.0).args_info
    for value in (seen[0], object(), jax.ShapeDtypeStruct((), "float32"), *jax.tree.leaves(lowered)):
        assert validate.is_abstract(value)
    for value in (1.0, NAN, np.ones(2), jnp.ones(()), None, "a"):
        assert not validate.is_abstract(value)


def test_a_function_of_any_mechanism_can_be_lowered():
    pca = PCA(n_components=2)
    for mechanism in (
        mechanisms.Laplace(neighbouring="zero_out", sensitivity=1.0, scale=2.0),
        mechanisms.Gaussian(neighbouring="zero_out", sensitivity=1.0, scale=2.0),
        DPGD(neighbouring="zero_out", clip_norm=1.0, noise_multiplier=2.0),
        noisy_dr.InputNoise(method=pca, sigma=0.1),
        noisy_dr.OutputNoise(method=pca, sigma=0.1),
        noisy_dr.Rounding(method=pca, step=0.1),
        AnalyticGauss(neighbouring="zero_out", n_components=2, noise_multiplier=2.0),
    ):
        lowered = jax.jit(lambda given: jax.tree.leaves(given)[0] * 2.0).lower(mechanism)
        assert type(lowered.args_info[0][0]) is type(mechanism)
