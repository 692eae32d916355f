import dataclasses
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core.types import DRMethod, Embedding, Status, count_status, hyperparams, is_usable, traced
from drjax.dr import METHODS


@hyperparams
class Blur:
    """A method-like bundle of one static and one swept hyperparameter."""

    n_steps: int = 3
    width: float = traced(default=1.0)


def traced_at_most(n):
    @jax.jit
    @chex.assert_max_traces(n=n)
    def apply(method, x):
        return method.n_steps * method.width * x

    return apply


def test_equal_hyperparameters_share_one_trace():
    apply = traced_at_most(1)
    for _ in range(3):
        apply(Blur(n_steps=4), 1.0)


def test_a_swept_leaf_does_not_retrace_and_takes_effect():
    apply = traced_at_most(1)
    results = [float(apply(Blur(width=width), 2.0)) for width in (0.5, 1.5, 2.5)]
    assert results == [3.0, 9.0, 15.0]


def test_another_static_hyperparameter_retraces():
    apply = traced_at_most(1)
    apply(Blur(n_steps=4), 1.0)
    with pytest.raises(AssertionError, match="traced > 1 times"):
        apply(Blur(n_steps=5), 1.0)


def test_a_swept_leaf_can_be_mapped_and_differentiated():
    widths = jnp.array([1.0, 2.0])
    assert jax.vmap(lambda w: Blur(width=w).width * 2)(widths).tolist() == [2.0, 4.0]
    assert float(jax.grad(lambda method: method.n_steps * method.width**2, allow_int=True)(Blur()).width) == 6.0


def test_hyperparameters_are_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Blur().n_steps = 5
    with pytest.raises(TypeError):
        Blur(5)


def test_equal_hyperparameters_are_equal_and_hash_alike():
    assert Blur(n_steps=4) == Blur(n_steps=4)
    assert hash(Blur(n_steps=4)) == hash(Blur(n_steps=4))
    assert Blur(n_steps=4) != Blur(n_steps=5)


def test_status_flags_are_distinct_bits_that_fit_the_status_dtype():
    values = [int(flag) for flag in Status if flag]
    assert all(value & (value - 1) == 0 for value in values)
    assert len(set(values)) == len(values)
    assert max(values) <= np.iinfo(np.uint32).max


def test_only_degenerate_and_non_finite_lanes_are_left_out_of_averages():
    usable = {flag: bool(is_usable(np.uint32(flag))) for flag in Status}
    assert [flag for flag, ok in usable.items() if not ok] == [Status.DEGENERATE, Status.NON_FINITE]
    assert is_usable(np.uint32(Status.OK))
    assert not is_usable(np.uint32(Status.NOT_CONVERGED | Status.NON_FINITE))


def test_is_usable_keeps_the_shape():
    status = np.array([[0, 8], [4, 1]], np.uint32)
    np.testing.assert_array_equal(is_usable(status), [[True, False], [False, True]])


def test_status_counts_name_every_flag_a_lane_carries():
    status = np.array([0, 0, 1, 8, 1 | 16], np.uint32)
    assert count_status(status) == {"OK": 2, "NOT_CONVERGED": 2, "NON_FINITE": 1, "SIGN_TIE": 1}


def test_status_counts_accept_one_lane_and_no_lane():
    assert count_status(jnp.uint32(4)) == {"OK": 0, "DEGENERATE": 1}
    assert count_status(np.array([], np.uint32)) == {"OK": 0}


def test_an_embedding_is_a_pytree():
    embedding = Embedding(jnp.zeros((2, 3, 1)), jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), {"gap": jnp.ones(2)})
    first = jax.tree.map(lambda leaf: leaf[0], embedding)
    assert first.coords.shape == (3, 1)
    assert float(first.info["gap"]) == 1.0


def test_a_class_without_insert_is_not_a_method():
    class Incomplete:
        name = "incomplete"
        n_components = 2
        deterministic = True

        def fit_transform(self, key, x): ...

    assert not isinstance(Incomplete(), DRMethod)


def test_classes_with_equal_fields_are_different_structures():
    @hyperparams
    class One:
        size: int = 2

    @hyperparams
    class Other:
        size: int = 2

    assert jax.tree.structure(One()) == jax.tree.structure(One())
    assert jax.tree.structure(One()) != jax.tree.structure(One(size=3))
    assert jax.tree.structure(One()) != jax.tree.structure(Other())
    # With scikit-learn's names for the components many methods have the same fields.
    structures = [jax.tree.structure(method()) for method in METHODS.values()]
    assert all(a != b for a, b in itertools.combinations(structures, 2))
