"""Compacted loops against `vmap` of `while_loop`, lane by lane, and what they cost."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from drjax.core.lanes import alone, while_lanes
from drjax.dr.mds import method as mds
from drjax.dr.mds import xla

SHARED = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32) / 4


def step(state, data):
    """A chaotic map of whole numbers below 2^24, which no width and no compiler rounds; integers and a key beside it.

    XLA may round the last lanes of a batch, which fill no vector, otherwise than the rest: that of jax 0.12 does.
    """
    key, _ = jax.random.split(state["key"])
    x = jnp.mod(state["x"] * data["slope"] + jnp.roll(state["x"], 1) + 1, 2039)
    return {"x": x, "key": key, "count": state["count"] + 1, "limit": state["limit"]}


def is_done(state):
    return state["count"] >= state["limit"]


def lanes(b, seed=0, most=60):
    rng = np.random.default_rng(seed)
    state = {
        "x": rng.integers(0, 2039, (b, 5)).astype(np.float32),
        "key": jax.random.split(jax.random.key(seed), b),
        "count": np.zeros(b, np.int32),
        "limit": rng.integers(0, most, b).astype(np.int32),
    }
    return jax.tree.map(jnp.asarray, state), {"slope": jnp.asarray(rng.integers(2, 2039, (b, 1)), jnp.float32)}


@jax.jit
def reference(state, data):
    def one(state, data):
        return jax.lax.while_loop(lambda s: ~is_done(s), lambda s: step(s, data), state)

    return jax.vmap(one)(state, data)


def assert_equal(a, b):
    for key in ("x", "count", "limit"):
        np.testing.assert_array_equal(a[key], b[key])
    np.testing.assert_array_equal(jax.random.key_data(a["key"]), jax.random.key_data(b["key"]))


@pytest.mark.parametrize(
    ("b", "options"),
    [(b, {"smallest": 3, "check_every": 4}) for b in (1, 2, 7, 9, 33, 64)]
    + [(33, {}), (64, {"smallest": 1}), (9, {"smallest": 1000})],
)
def test_every_lane_ends_bit_for_bit_as_under_vmap(b, options):
    state, data = lanes(b, seed=b)
    found = jax.jit(functools.partial(while_lanes, step, done=is_done, **options))(state, data)
    assert_equal(found, reference(state, data))


def test_no_lanes_and_lanes_that_are_done_from_the_start_are_returned_as_they_are():
    state, data = lanes(20)
    state["limit"] = jnp.zeros(20, jnp.int32)
    assert_equal(while_lanes(step, state, data, done=is_done), state)
    none = jax.tree.map(lambda leaf: leaf[:0], state)
    assert while_lanes(step, none, jax.tree.map(lambda leaf: leaf[:0], data), done=is_done)["x"].shape == (0, 5)


@pytest.mark.parametrize(("smallest", "check_every"), [(1, 1), (4, 1), (4, 5)])
def test_all_lanes_together_take_at_most_twice_their_own_steps(smallest, check_every):
    b, taken = 64, []
    state, data = lanes(b, seed=3, most=1)
    rng = np.random.default_rng(1)
    state["limit"] = jnp.asarray(np.minimum(5 + rng.geometric(0.05, b), 200), jnp.int32)

    def counted(state, data):
        jax.debug.callback(lambda _: taken.append(1), state["count"])
        return step(state, data)

    run = jax.jit(functools.partial(while_lanes, counted, done=is_done, smallest=smallest, check_every=check_every))
    jax.block_until_ready(run(state, data))
    jax.effects_barrier()
    own, slowest = int(jnp.sum(state["limit"])), int(jnp.max(state["limit"]))
    assert own <= len(taken) <= 2 * own + smallest * slowest + 2 * (check_every - 1) * b
    # What `vmap` of a `while_loop` takes. Without compaction the count would be this.
    assert len(taken) < 0.6 * b * slowest


def test_runs_under_another_vmap():
    state, data = lanes(24, seed=5)
    outer = jax.tree.map(lambda leaf: leaf.reshape(2, 12, *leaf.shape[1:]), (state, data))
    found = jax.jit(jax.vmap(functools.partial(while_lanes, step, done=is_done, smallest=2)))(*outer)
    assert_equal(jax.tree.map(lambda leaf: leaf.reshape(24, *leaf.shape[2:]), found), reference(state, data))


def test_runs_on_each_device_of_a_mesh_by_itself():
    state, data = lanes(40, seed=6)
    mesh = jax.make_mesh((2,), ("lanes",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("lanes")
    local = functools.partial(while_lanes, step, done=is_done)
    run = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(spec, spec), out_specs=spec))
    assert_equal(run(state, data), reference(state, data))
    assert "all-gather" not in run.lower(state, data).compile().as_text()


def test_what_lanes_share_is_not_copied_for_each():
    n, b = 200, 64
    shared = jnp.ones((n, n), jnp.float32) / n

    def body(state, _):
        x, count = state
        return shared @ x, count + 1

    def run(x, limit):
        return while_lanes(lambda s, d: body(s, d), (x, limit), done=lambda s: s[1] >= 9)

    compiled = jax.jit(run).lower(jnp.ones((b, n), jnp.float32), jnp.zeros(b, jnp.int32)).compile()
    # b copies would be 10 MB; two of the shared matrix and ten of the states are less than one.
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * (2 * n * n + 10 * b * n)


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.usefixtures("all_platforms")
def test_lowers_for_accelerators(platform):
    state, data = lanes(32)
    state, keys = {k: v for k, v in state.items() if k != "key"}, state["key"]

    def run(state, data):
        # A key is a constant here: exported programs take arrays.
        return while_lanes(
            lambda s, d: {k: v for k, v in step({**s, "key": keys[0]}, d).items() if k != "key"},
            state,
            data,
            done=is_done,
        )

    exported = jax.export.export(jax.jit(run), platforms=[platform])(state, data)
    assert exported.platforms == (platform,)
    assert exported.mlir_module().count("stablehlo.while") >= 3  # widths 32, 16 and 8


def test_a_lane_computed_alone_has_the_same_bits_in_any_company():
    # Products and sums long enough that their order would show.
    rng = np.random.default_rng(4)
    matrix, x = rng.normal(size=(300, 300)).astype(np.float32), rng.normal(size=(40, 300)).astype(np.float32)

    @jax.jit
    def run(x):
        return alone(lambda lane: {"y": jnp.tanh(matrix @ lane), "total": jnp.sum(lane**3)}, x)

    whole = run(x)
    np.testing.assert_allclose(whole["y"], np.tanh(x.astype(np.float64) @ matrix.T.astype(np.float64)), atol=1e-4)
    for b in (1, 2, 7):
        part = run(x[:b])
        for name in whole:
            np.testing.assert_array_equal(part[name], whole[name][:b])


@pytest.mark.parametrize("options", [{"check_every": 0}, {"smallest": 0}])
def test_options_out_of_range_are_refused(options):
    state, data = lanes(4)
    with pytest.raises(ValueError, match="must be an integer >= 1"):
        while_lanes(step, state, data, done=is_done, **options)


def test_smacof_in_company_equals_smacof_alone():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 6))
    method = mds.MDS(eps=1e-4, n_init=2)
    with jax.enable_x64(True):
        shared = method.prepare(x[:19])
        keys = jax.random.split(jax.random.key(1), 40)
        starts = method._starts(keys, shared, x[20:])
        rows = method._rows(shared, x[20:])
        rule = xla.Rule(method.max_iter, method.eps)
        solve = jax.jit(functools.partial(xla.in_xla, rule))
        together = solve(shared.between, rows, starts)
        assert len(np.unique(together[2])) > 5
        for i in range(0, 40, 4):
            alone = solve(shared.between, rows[i : i + 1], starts[i : i + 1])
            assert int(alone[2][0]) == int(together[2][i])
            # Sums of another width round differently; some hundred iterations multiply it.
            np.testing.assert_allclose(together[0][i], alone[0][0], atol=1e-9)
            np.testing.assert_allclose(together[1][i], alone[1][0], rtol=1e-10)
