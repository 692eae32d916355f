import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core import host


def test_float64_passes_whole_even_where_x64_belongs_to_another_thread():
    seen = []

    def fn(x, flags):
        seen.append((x.dtype, jax.config.jax_enable_x64))
        return x + 1, x.sum(axis=-1), flags

    with jax.enable_x64(True):
        x = np.random.default_rng(0).random((3, 4)) + 2.0**-40
        result = (
            jax.ShapeDtypeStruct((3, 4), jnp.float64),
            jax.ShapeDtypeStruct((3,), jnp.float64),
            jax.ShapeDtypeStruct((2,), jnp.bool_),
        )
        run = jax.jit(lambda x, flags: host.call(fn, result, x, flags)).lower(x, np.array([True, False])).compile()
    found = []
    # A new thread has x64 off, whatever this one has.
    thread = threading.Thread(target=lambda: found.append(jax.block_until_ready(run(*arguments))))
    with jax.enable_x64(True):
        arguments = jnp.asarray(x), jnp.array([True, False])
        plain = run(*arguments)
    thread.start()
    thread.join()
    for out in (plain, found[0]) if found else (plain,):
        np.testing.assert_array_equal(np.asarray(out[0]), x + 1)
        np.testing.assert_array_equal(np.asarray(out[1]), x.sum(axis=-1))
        np.testing.assert_array_equal(np.asarray(out[2]), [True, False])
    assert {dtype for dtype, _ in seen} == {np.dtype(np.float64)}


def test_float32_integers_and_scalars_pass_as_they_are():
    result = (jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
    run = jax.jit(lambda x, i: host.call(lambda x, i: (x.sum(), i * 2), result, x, i))
    total, doubled = run(np.ones(3, np.float32), np.array([1, 2], np.int32))
    assert float(total) == 3
    assert doubled.tolist() == [2, 4]


def test_a_mapped_call_adds_leading_axes():
    def fn(x):
        return x * 2

    with jax.enable_x64(True):
        result = jax.ShapeDtypeStruct((4,), jnp.float64)
        out = jax.jit(jax.vmap(lambda x: host.call(fn, result, x, vmap_method="expand_dims")))(
            np.arange(12.0).reshape(3, 4)
        )
    np.testing.assert_array_equal(out, 2 * np.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_spread_covers_every_item_once(count):
    seen = np.zeros(count, int)

    def work(part):
        seen[part] += 1

    host.spread(work, count)
    assert (seen == 1).all()


def test_spread_inside_spread_covers_every_item_and_ends():
    # As many outer slices as the pool has threads, or more: waiting for the pool inside it would never end.
    outer, inner = 4 * host.n_cores(), 3
    seen = np.zeros((outer, inner), int)

    def work(part):
        for i in range(part.start, part.stop):

            def within(own, i=i):
                seen[i, own] += 1

            host.spread(within, inner)

    host.spread(work, outer)
    assert (seen == 1).all()


def test_an_error_in_spread_work_reaches_the_caller():
    def work(part):
        raise ZeroDivisionError(part)

    with pytest.raises(ZeroDivisionError):
        host.spread(work, 3)


def test_a_derivative_is_refused_in_either_precision(dtype):
    def total(x):
        return jnp.sum(host.call(lambda x: 2 * x, jax.ShapeDtypeStruct((3,), dtype), x))

    with pytest.raises(ValueError, match=r"derivative|JVP"):
        jax.grad(total)(jnp.ones(3, dtype))
