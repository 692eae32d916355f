import functools
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.cli import errors
from drjax.core import host

SEEN = []


def looked_at(x, flags):
    SEEN.append((x.dtype, jax.config.jax_enable_x64))
    return x + 1, x.sum(axis=-1), flags


def total_and_doubled(x, i):
    return x.sum(), i * 2


def doubled(x):
    return x * 2


def by_name_or_not(fn, by_name):
    """The function, which has a name that programs can call it by, or one that does the same and has none."""
    return fn if by_name else lambda *args: fn(*args)


@pytest.fixture(params=[True, False], ids=["by name", "as an object"])
def by_name(request):
    return request.param


def test_float64_passes_whole_even_where_x64_belongs_to_another_thread(by_name):
    SEEN.clear()
    fn = by_name_or_not(looked_at, by_name)
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
    assert {dtype for dtype, _ in SEEN} == {np.dtype(np.float64)}


def test_float32_integers_and_scalars_pass_as_they_are(by_name):
    result = (jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((2,), jnp.int32))
    fn = by_name_or_not(total_and_doubled, by_name)
    total, doubled = jax.jit(lambda x, i: host.call(fn, result, x, i))(
        np.ones(3, np.float32), np.array([1, 2], np.int32)
    )
    assert float(total) == 3
    assert doubled.tolist() == [2, 4]


def test_a_mapped_call_adds_leading_axes(by_name):
    fn = by_name_or_not(doubled, by_name)
    with jax.enable_x64(True):
        result = jax.ShapeDtypeStruct((4,), jnp.float64)
        out = jax.jit(jax.vmap(lambda x: host.call(fn, result, x, vmap_method="expand_dims")))(
            np.arange(12.0).reshape(3, 4)
        )
    np.testing.assert_array_equal(out, 2 * np.arange(12.0).reshape(3, 4))


def test_a_call_without_a_rule_for_it_is_not_mapped(by_name):
    fn, like = by_name_or_not(doubled, by_name), jax.ShapeDtypeStruct((), jnp.float32)
    with pytest.raises(NotImplementedError, match="vmap"):
        jax.vmap(lambda x: host.call(fn, like, x))(jnp.ones(3))


def fails(error, x):
    raise {"memory": MemoryError, "value": ValueError}[error](f"of {x.size} apples")


@pytest.mark.parametrize(("error", "match"), [("memory", "MemoryError: of 3"), ("value", "ValueError: of 3")])
def test_an_error_reaches_the_caller_with_its_name_and_place(by_name, error, match):
    fn = functools.partial(fails, error) if by_name else lambda x: fails(error, x)
    with pytest.raises(RuntimeError, match=match) as caught:
        jax.block_until_ready(jax.jit(lambda x: host.call(fn, x, x))(jnp.ones(3)))
    assert "in fails" in str(caught.value)
    if error == "memory":
        assert "out of memory" in str(errors.one_line(caught.value))


def short(x):
    return x[1:]


def counted(x):
    return np.full(x.shape, 7, np.int64)


def fractions(x):
    return x + 0.5


def test_a_result_that_is_not_what_was_promised_is_refused():
    x, whole = jnp.ones(3), jax.ShapeDtypeStruct((3,), jnp.int32)
    with pytest.raises(RuntimeError, match="shape"):
        jax.block_until_ready(jax.jit(lambda x: host.call(short, x, x))(x))
    with pytest.raises(RuntimeError, match="same_kind"):
        jax.block_until_ready(jax.jit(lambda x: host.call(fractions, whole, x))(x))
    # NumPy's own integers are 64 bits long.
    assert jax.jit(lambda x: host.call(counted, whole, x))(x).tolist() == [7, 7, 7]


Pair = namedtuple("Pair", "a b")


def swapped(scale, pair, nothing, empty):
    assert nothing is None
    assert empty.shape == (0, 4)
    return {"second": pair.b * scale, "first": Pair(pair.a, empty)}


def test_trees_go_in_and_out_and_may_hold_nothing(by_name):
    pair, empty = Pair(jnp.arange(2), jnp.ones(3)), jnp.zeros((0, 4))
    result = {"second": pair.b, "first": Pair(pair.a, empty)}
    fn = functools.partial(swapped, 3.0) if by_name else lambda *args: swapped(3.0, *args)
    out = jax.jit(lambda *args: host.call(fn, result, *args))(pair, None, empty)
    assert out["second"].tolist() == [3, 3, 3]
    assert out["first"].a.tolist() == [0, 1]
    assert out["first"].b.shape == (0, 4)


def test_calls_of_other_threads_do_not_meet():
    run = jax.jit(lambda x: host.call(doubled, x, x))
    xs = [jnp.full(1000, i) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        out = list(pool.map(lambda x: np.asarray(run(x)), xs))
    assert [int(y[0]) for y in out] == [2 * i for i in range(40)]


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_spread_covers_every_item_once(count):
    seen = np.zeros(count, int)

    def work(part):
        seen[part] += 1

    host.spread(work, count)
    assert (seen == 1).all()


def test_spread_gives_each_core_several_slices_and_no_more():
    parts = []
    host.spread(parts.append, 1001)
    assert host.n_cores() < len(parts) <= host.PIECES_PER_CORE * host.n_cores()


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


def test_a_derivative_is_refused_in_either_precision(dtype, by_name):
    fn = by_name_or_not(doubled, by_name)

    def total(x):
        return jnp.sum(host.call(fn, jax.ShapeDtypeStruct((3,), dtype), x))

    with pytest.raises(ValueError, match=r"derivative|JVP"):
        jax.grad(total)(jnp.ones(3, dtype))
