"""Which functions have a name that is the same in every process."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core import host, named_calls

STRUCTURE = jax.tree.structure((0,))


def scaled(factor, x, *, shift=0.0):
    return factor * x + shift


def overwritten(x):
    x[0] = 7
    return x


def test_a_name_says_function_and_options():
    names = [
        named_calls.enter(fn, STRUCTURE)
        for fn in (
            functools.partial(scaled, 1),
            functools.partial(scaled, 1.0),
            functools.partial(scaled, (1.0, None, ("a", np.float32(2)))),
            functools.partial(scaled, 1, shift=1.0),
            functools.partial(functools.partial(scaled, 1), shift=1.0),
            scaled,
        )
    ]
    assert all(name.startswith(f"{__name__}.scaled:") for name in names)
    assert names[3] == names[4]
    assert len(set(names)) == 5
    assert named_calls.enter(functools.partial(scaled, 1), STRUCTURE) == names[0]
    assert named_calls.enter(scaled, jax.tree.structure((0, 0))) != names[-1]
    in_one_order = named_calls.enter(functools.partial(scaled, factor=1, shift=1.0), STRUCTURE)
    assert named_calls.enter(functools.partial(scaled, shift=1.0, factor=1), STRUCTURE) == in_one_order


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x,
        functools.partial(lambda a, x: a + x, 1),
        functools.partial(scaled, np.ones(3)),
        functools.partial(scaled, [1]),
        functools.partial(scaled, scaled),
        "text".join,
        np.linalg.norm.__call__,
    ],
)
def test_what_more_than_a_name_decides_has_none(fn):
    assert named_calls.enter(fn, STRUCTURE) is None


def test_a_function_that_took_another_s_name_has_none():
    def scaled(x):
        return x

    scaled.__qualname__ = "scaled"
    assert named_calls.enter(scaled, STRUCTURE) is None


def test_without_the_target_no_function_has_a_name_and_calls_go_on(monkeypatch):
    def refused(*_, **__):
        raise RuntimeError("handler's API version (0.1) is incompatible with the framework's API version (1.0)")

    named_calls._is_registered.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(jax.ffi, "register_ffi_target", refused)
        assert named_calls.enter(scaled, STRUCTURE) is None
        x = jnp.ones(3)
        found = host.call(functools.partial(scaled, 2.0), x, x)
    named_calls._is_registered.cache_clear()
    assert found.tolist() == [2, 2, 2]
    assert named_calls.enter(scaled, STRUCTURE) is not None


def test_arguments_are_the_program_s_and_cannot_be_written_to():
    x = jnp.ones(3)
    assert named_calls.enter(overwritten, STRUCTURE) is not None
    with pytest.raises(jax.errors.JaxRuntimeError, match="read-only"):
        jax.block_until_ready(jax.jit(lambda x: host.call(overwritten, x, x))(x))
    assert x.tolist() == [1, 1, 1]
