import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from drjax.core import batching, host

SCALE = np.float32(1.5)
TRACES = []


def noisy_outer(scale, lanes):
    """(b, d) -> (b, d, d) and each lane's own random number: what a chunk must not mix up."""
    keys, x = lanes
    noise = jax.vmap(jax.random.normal)(keys)
    return {"outer": scale * x[:, :, None] * x[:, None, :], "noise": noise}


def traced_square(scale, x):
    TRACES.append(x.shape)
    return scale * x**2


def wide_to_narrow(scale, x):
    """(b, 4) -> (b,) through an intermediate of 4000 float32 per lane."""
    spread = jnp.sort(scale * jnp.tile(x, (1, 1000)), axis=1)
    return jnp.sum(spread[:, ::2], axis=1)


def singular_values(known, x):
    """(b, d) -> (b, d): what rounds otherwise in a batch of another width."""
    joined = jnp.concatenate([x[:, None], jnp.broadcast_to(known, (len(x), *known.shape))], axis=1)
    return jnp.linalg.svd(joined, compute_uv=False)


def lanes_of(m, d=3):
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(0), i))(jnp.arange(m))
    return keys, np.random.default_rng(0).normal(size=(m, d)).astype(np.float32)


def one_at_a_time(m):
    keys, x = lanes_of(m)
    out = [noisy_outer(SCALE, (keys[i : i + 1], x[i : i + 1])) for i in range(m)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *out)


def two_devices():
    return Mesh(np.array(jax.devices()[:2]), ("lanes",))


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 10, 11, 64, None])
def test_result_is_that_of_a_loop_whatever_the_chunk_size(batch_size):
    out = batching.map_lanes(noisy_outer, SCALE, lanes_of(11), batch_size=batch_size)
    expected = one_at_a_time(11)
    np.testing.assert_array_equal(out["outer"], expected["outer"])
    np.testing.assert_allclose(out["noise"], expected["noise"], rtol=1e-6)  # erfinv may be fused differently


@pytest.mark.parametrize(("m", "batch_size"), [(10, 4), (8, 4), (3, 4), (1, 1), (9, 8)])
def test_chunks_cover_every_lane_once_and_show_no_padding(m, batch_size):
    chunks = list(batching.iter_chunks(noisy_outer, SCALE, lanes_of(m), batch_size=batch_size))
    covered = [offset + i for offset, result in chunks for i in range(result["noise"].shape[0])]
    assert covered == list(range(m))
    assert all(result["outer"].shape[0] <= batch_size for _, result in chunks)


def test_all_chunks_and_later_calls_share_one_trace():
    TRACES.clear()
    x = np.ones((11, 2), np.float32)
    for _ in range(2):
        batching.map_lanes(traced_square, SCALE, x, batch_size=4)
    assert TRACES == [(4, 2)]


def test_padding_repeats_a_lane_so_that_a_bad_one_stays_alone():
    x = np.ones((5, 2), np.float32)
    x[1] = np.nan
    out = batching.map_lanes(traced_square, SCALE, x, batch_size=3)
    np.testing.assert_array_equal(np.isnan(out).any(axis=1), [False, True, False, False, False])


def test_results_are_host_arrays_of_the_results_dtype():
    out = batching.map_lanes(noisy_outer, SCALE, lanes_of(5), batch_size=2)
    assert isinstance(out["outer"], np.ndarray)
    assert out["outer"].dtype == np.float32
    assert out["outer"].shape == (5, 3, 3)


@pytest.mark.parametrize("start", [0, 4, 8, 12])
def test_resumed_chunks_are_bit_identical(start):
    whole = dict(batching.iter_chunks(noisy_outer, SCALE, lanes_of(11), batch_size=4))
    rest = dict(batching.iter_chunks(noisy_outer, SCALE, lanes_of(11), batch_size=4, start=start))
    assert sorted(rest) == [offset for offset in sorted(whole) if offset >= start]
    for offset, result in rest.items():
        jax.tree.map(np.testing.assert_array_equal, result, whole[offset])


def test_start_inside_a_chunk_is_refused():
    with pytest.raises(ValueError, match="start must be a multiple of the chunk size 4, got 3"):
        next(batching.iter_chunks(noisy_outer, SCALE, lanes_of(11), batch_size=4, start=3))


@pytest.mark.parametrize("start", [-4, 1.0, True])
def test_start_that_is_no_lane_index_is_refused(start):
    with pytest.raises(ValueError, match="start must be an integer >= 0"):
        next(batching.iter_chunks(noisy_outer, SCALE, lanes_of(11), batch_size=4, start=start))


@pytest.mark.parametrize("batch_size", [-1, 2.5, float("nan"), True])
def test_batch_size_that_is_no_count_is_refused(batch_size):
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1"):
        next(batching.iter_chunks(noisy_outer, SCALE, lanes_of(11), batch_size=batch_size))


def test_lanes_of_unequal_length_are_refused():
    keys, x = lanes_of(5)
    with pytest.raises(ValueError, match=r"lanes must share one leading axis, got lengths \[4, 5\]"):
        next(batching.iter_chunks(noisy_outer, SCALE, (keys, x[:4])))


@pytest.mark.parametrize(("m", "batch_size"), [(11, 4), (11, 3), (7, None), (1, 1)])
def test_sharding_over_two_devices_changes_nothing(m, batch_size):
    plain = batching.map_lanes(noisy_outer, SCALE, lanes_of(m), batch_size=batch_size)
    sharded = batching.map_lanes(noisy_outer, SCALE, lanes_of(m), batch_size=batch_size, mesh=two_devices())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), plain, sharded)


def test_a_mesh_really_splits_the_chunk():
    _, result = next(batching.iter_chunks(noisy_outer, SCALE, lanes_of(8), batch_size=4, mesh=two_devices()))
    assert result["outer"].sharding.num_devices == 2
    assert {shard.data.shape[0] for shard in result["outer"].addressable_shards} == {4}
    # Chosen, so that no device is idle.
    _, result = next(batching.iter_chunks(noisy_outer, SCALE, lanes_of(8), mesh=two_devices()))
    assert {shard.data.shape[0] for shard in result["outer"].addressable_shards} == {4}


@pytest.mark.parametrize("m", [3, 11])
def test_with_the_same_batch_size_a_mesh_changes_no_bit(m):
    known = np.random.default_rng(1).normal(size=(40, 9)).astype(np.float32)
    alone = batching.map_lanes(singular_values, known, lanes_of(m, 9)[1], batch_size=4)
    spread = batching.map_lanes(singular_values, known, lanes_of(m, 9)[1], batch_size=4, mesh=two_devices())
    np.testing.assert_array_equal(spread, alone)


def test_a_mesh_of_explicit_axes_works_like_any_other():
    plain = batching.map_lanes(noisy_outer, SCALE, lanes_of(7), batch_size=4)
    mesh = jax.make_mesh((2,), ("lanes",))
    sharded = batching.map_lanes(noisy_outer, SCALE, lanes_of(7), batch_size=4, mesh=mesh)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), plain, sharded)


def test_lane_bytes_lie_between_the_largest_array_and_all_arrays():
    d = 64
    x = np.ones((4, d), np.float32)
    keys = jax.random.split(jax.random.key(0), 4)
    found = batching.lane_bytes(noisy_outer, SCALE, (keys, x))
    assert 4 * d * d <= found <= 3 * 4 * d * d


def test_lane_bytes_see_intermediates_that_outweigh_the_result():
    found = batching.lane_bytes(wide_to_narrow, SCALE, np.ones((4, 4), np.float32))
    assert 4 * 4000 <= found <= 6 * 4 * 4000


def test_lane_bytes_leave_the_shared_context_out():
    def project(context, x):
        return x @ context

    x = np.ones((4, 8), np.float32)
    small, large = np.ones((8, 2), np.float32), np.ones((8, 2000), np.float32)
    assert batching.lane_bytes(project, small, x) < 200
    assert 4 * 2000 <= batching.lane_bytes(project, large, x) < 2 * 4 * 2000


def test_chunk_size_follows_the_budget_and_is_never_zero():
    x = np.ones((25, 4), np.float32)
    per_lane = batching.lane_bytes(wide_to_narrow, SCALE, x)
    # 25 lanes in chunks of at most 12 are three of 9, 9 and 7 and not of 12, 12 and 1.
    assert batching.choose_batch_size(wide_to_narrow, SCALE, x, budget=12 * per_lane) == 9
    assert batching.choose_batch_size(wide_to_narrow, SCALE, x, budget=100 * per_lane) == 25
    assert batching.choose_batch_size(wide_to_narrow, SCALE, x, budget=0) == 1


@pytest.mark.parametrize(("backend", "most"), [("cpu", 16), ("gpu", 1)])
def test_chunk_sizes_are_few_and_cost_few_lanes(monkeypatch, backend, most):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    for fits in (1, 7, 100, 1000, 10**6):
        sizes = {m: batching._one_of_few(m, fits) for m in range(1, 2100)}
        assert all(1 <= size <= fits for size in sizes.values())
        for m, size in sizes.items():
            surplus = math.ceil(m / size) * size - m
            # Chunks of whole lanes cannot be even, at worst by a lane each.
            is_one_chunk_of_an_accelerator = surplus < m <= size and backend == "gpu"
            assert surplus <= m / 8 + m // size or is_one_chunk_of_an_accelerator, (m, fits, size)
        for octave in range(11):
            found = {size for size in sizes.values() if 2**octave <= size < 2 ** (octave + 1)}
            assert len(found) <= most, (fits, found)


def test_calls_with_about_as_many_lanes_share_one_program():
    TRACES.clear()
    for m in (197, 199, 200):
        x = np.random.default_rng(m).normal(size=(m, 2)).astype(np.float32)
        np.testing.assert_array_equal(batching.map_lanes(traced_square, SCALE, x), SCALE * x**2)
    # A size that the caller gives is a limit, not a reason to compile for each number of lanes.
    for m in (194, 198):
        x = np.ones((m, 2), np.float32)
        assert batching.map_lanes(traced_square, SCALE, x, batch_size=1000).shape == (m, 2)
    assert {shape for shape in TRACES if shape[0] < 2**16} == {(200, 2)}


def test_one_chunk_size_for_several_calls_where_it_suits_all():
    def chosen(m, *also, budget):
        return batching.choose_batch_size(wide_to_narrow, SCALE, np.ones((m, 4), np.float32), budget=budget, also=also)

    plenty = 10**4 * batching.lane_bytes(wide_to_narrow, SCALE, np.ones((1, 4), np.float32))
    assert chosen(1100, budget=plenty) == 1152
    assert chosen(1100, 400, budget=plenty) == chosen(400, 1100, budget=plenty) == 400
    # Three times 512 for 1100 would be a third too many, and 11 chunks for one too dear.
    assert (chosen(1100, 500, budget=plenty), chosen(500, 1100, budget=plenty)) == (1152, 512)
    assert (chosen(1100, 100, budget=plenty), chosen(100, 1100, budget=plenty)) == (1152, 100)


def test_results_of_a_chunk_that_was_filled_up_are_on_the_host():
    kinds = [type(chunk["noise"]) for _, chunk in batching.iter_chunks(noisy_outer, SCALE, lanes_of(6), batch_size=4)]
    assert issubclass(kinds[0], jax.Array)
    assert kinds[1] is np.ndarray


def test_lane_bytes_of_float64_lanes_count_the_dtype_that_is_computed(dtype):
    x = np.ones((4, 4), np.float64)
    assert batching.lane_bytes(traced_square, SCALE, x) == batching.lane_bytes(traced_square, SCALE, x.astype(dtype))
    assert batching.map_lanes(traced_square, SCALE, x).dtype == dtype


def test_progress_goes_to_standard_error_and_not_into_the_output(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    x = np.ones((6, 2), np.float32)
    batching.map_lanes(traced_square, SCALE, x, batch_size=2, progress=True, description="toy")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "toy" in captured.err
    assert "6/6" in captured.err


@pytest.mark.gpu
def test_lane_bytes_count_only_the_branch_of_this_platform():
    def small(context, x):
        del context
        return jax.numpy.sum(x, axis=1)

    def large(context, x):
        del context
        return jax.numpy.sum(jax.numpy.sort(x[:, :, None] * x[:, None], axis=1), axis=(1, 2))

    def fn(context, x):
        return jax.lax.platform_dependent(context, x, cpu=small, default=large)

    x = np.ones((4, 100), np.float32)
    assert batching.lane_bytes(large, SCALE, x) > 4 * 100**2
    if jax.default_backend() == "cpu":
        assert batching.lane_bytes(fn, SCALE, x) < 4 * 100**2
    else:
        assert batching.lane_bytes(fn, SCALE, x) > 4 * 100**2


def test_chunks_of_host_code_are_short_where_the_lanes_share_much():
    like = jax.ShapeDtypeStruct((3,), np.float32)

    def on_host(between, lanes):
        def one(lane):
            return host.call(lambda b, x: x * b[..., 0, :1], like, between, lane, vmap_method="expand_dims")

        return jax.vmap(one)(lanes)

    lanes = np.zeros((10**6, 3), np.float32)
    small, large = (np.zeros((size, size), np.float32) for size in (8, 1024))
    few = batching.HOST_LANES_PER_CORE * host.n_cores()
    budget = 64 * 4 * 2**20
    # 64 copies of the large array would fit: the least is more than that.
    assert few * 7 / 8 <= batching.choose_batch_size(on_host, large, lanes, budget=budget) <= few
    assert batching.choose_batch_size(on_host, small, lanes, budget=budget) > 10 * few
    # One lane more than fits takes two chunks, not three.
    above = np.zeros((few + 1, 3), np.float32)
    assert math.ceil(len(above) / batching.choose_batch_size(on_host, large, above, budget=budget)) == 2
    # Neither the memory nor the work of a program without host code is touched.
    assert batching.choose_batch_size(lambda _, x: x + 1, large, lanes, budget=budget) > 10 * few


def test_few_lanes_of_host_code_are_one_chunk_that_is_traced_once():
    like = jax.ShapeDtypeStruct((3,), np.float32)
    traces = []

    def on_host(between, lanes):
        traces.append(len(lanes))

        def one(lane):
            return host.call(lambda b, x: x * b[..., :1], like, between, lane, vmap_method="expand_dims")

        return jax.vmap(one)(lanes)

    lanes = np.arange(24, dtype=np.float32).reshape(8, 3)
    np.testing.assert_array_equal(batching.map_lanes(on_host, np.full(3, 2.0, np.float32), lanes), 2 * lanes)
    assert traces == [8]
    # Not where they would not fit.
    assert batching.choose_batch_size(on_host, np.ones(3, np.float32), lanes, budget=100) < 8


def test_what_only_a_reduction_reads_is_not_counted():
    def outer(points, lanes):
        return jnp.sum((lanes[:, None] - points[None]) ** 2, axis=-1)

    def kept(points, lanes):
        difference = lanes[:, None] - points[None]
        return jnp.sum(difference**2, axis=-1), difference

    points, lanes = np.zeros((50, 40), np.float32), np.zeros((9, 40), np.float32)
    whole = 4 * 50 * 40
    assert batching.lane_bytes(outer, points, lanes) < whole / 2
    assert batching.lane_bytes(kept, points, lanes) >= whole


@pytest.fixture
def an_accelerator(monkeypatch):
    """Chunks are computed ahead, as where the device is not the host."""
    monkeypatch.setattr(batching, "_chunks_ahead", lambda: 1)


@pytest.mark.usefixtures("an_accelerator")
@pytest.mark.parametrize("m", [1, 4, 8, 11])
def test_chunks_computed_ahead_come_in_order_and_whole(m):
    out = batching.map_lanes(noisy_outer, SCALE, lanes_of(m), batch_size=4)
    np.testing.assert_array_equal(out["outer"], one_at_a_time(m)["outer"])


@pytest.mark.usefixtures("an_accelerator")
def test_the_next_chunk_is_started_before_a_chunk_is_given(monkeypatch):
    events, padded = [], batching._padded

    def seen(leaf, offset, n, size):
        events.append(f"started {offset}")
        return padded(leaf, offset, n, size)

    monkeypatch.setattr(batching, "_padded", seen)
    for offset, _ in batching.iter_chunks(traced_square, SCALE, np.ones((12, 3), np.float32), batch_size=4):
        events.append(f"given {offset}")
    assert events == ["started 0", "started 4", "given 0", "started 8", "given 4", "given 8"]


@pytest.mark.parametrize("m", [1, 4, 8, 11])
def test_results_that_stay_on_the_device_are_those_of_the_host(m):
    out = batching.map_lanes(noisy_outer, SCALE, lanes_of(m), batch_size=4, device_out=True)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(out))
    jax.tree.map(np.testing.assert_array_equal, out, batching.map_lanes(noisy_outer, SCALE, lanes_of(m), batch_size=4))


def test_results_of_a_mesh_do_not_stay_on_one_device():
    with pytest.raises(ValueError, match="device_out must be False with a mesh"):
        batching.map_lanes(noisy_outer, SCALE, lanes_of(4), mesh=two_devices(), device_out=True)
