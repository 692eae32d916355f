import jax
import numpy as np
import pytest
from sklearn.decomposition import PCA as SklearnPCA

from drjax.attacks import shadow
from drjax.attacks.prepared import Prepared
from drjax.attacks.shadow import iter_shadow_embeddings, shadow_batch_size, shadow_embeddings
from drjax.core import host
from drjax.core.types import Status, hyperparams
from drjax.dr import METHODS, PCA, SparseRandomProjection

KEY = jax.random.key(1)
ROUNDING = 2e-5  # coordinates below 10 in float32; batched products reorder their sums


SMALL = {
    "isomap": {"n_neighbors": 4},
    "tsne": {"perplexity": 5.0, "max_iter": 100},
    "umap": {"n_neighbors": 5, "n_epochs": 20},
}
"""Hyperparameters for releases of 21 records."""


def small(name):
    return METHODS[name](**SMALL.get(name, {}))


@pytest.fixture(params=METHODS)
def method(request):
    return small(request.param)


@pytest.fixture(scope="module")
def records():
    # Directions of clearly different variance: signs and order of the components are then determined.
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(50, 9)) * 0.7 ** np.arange(9) + 1).astype(np.float32)
    return x[:20], x[20:43]


def test_each_shadow_is_the_embedding_of_its_target_before_the_known_records(records):
    known, targets = records
    found = shadow_embeddings(KEY, PCA(), known, targets)
    assert isinstance(found.coords, np.ndarray)
    for target, coords in zip(targets, found.coords, strict=True):
        expected = SklearnPCA(2, svd_solver="full").fit_transform(np.vstack([target, known]).astype(np.float64))
        np.testing.assert_allclose(coords, expected, atol=ROUNDING)


WAYS = {
    "fresh": ("pca", "classical_mds", "isomap", "tsne", "srp", "mds", "umap"),
    "shared": ("svd", "landmark_mds", "landmark_isomap", "srp", "mds", "umap"),
}
"""Methods that draw, both ways; of the others, which draw nothing, each one way."""


def test_every_method_is_run_and_those_that_draw_both_ways():
    assert set(METHODS) == set(WAYS["fresh"]) | set(WAYS["shared"])
    assert {name for name in METHODS if not small(name).deterministic} == set(WAYS["fresh"]) & set(WAYS["shared"])


@pytest.mark.parametrize(("randomness", "name"), [(one, name) for one, names in WAYS.items() for name in names])
def test_a_shadow_does_not_depend_on_how_many_there_are_nor_on_chunks_nor_devices(name, randomness, records):
    known, targets = records
    method, options = small(name), {"randomness": randomness}
    whole = shadow_embeddings(KEY, method, known, targets, **options)
    mesh = jax.make_mesh((2,), ("lanes",), devices=jax.devices()[:2])
    # Pairs of every number, chunk and mesh with both kinds of draws: a program each.
    cases = {
        "fresh": ((5, {}), (23, {"batch_size": 7, "mesh": mesh})),
        "shared": ((23, {"batch_size": 4}), (1, {"mesh": mesh})),
    }
    for m, changed in cases[randomness]:
        other = shadow_embeddings(KEY, method, known, targets[:m], **options, **changed)
        assert other.coords.shape == (m, 21, 2)
        # What is chaotic, or stopped by the last digits, is independent to the last bit or not at all.
        if method.stationary or not method.repeatable:
            np.testing.assert_array_equal(other.coords, whole.coords[:m])
        np.testing.assert_allclose(other.coords, whole.coords[:m], atol=ROUNDING)
        np.testing.assert_array_equal(other.status, whole.status[:m])


def test_a_resumed_run_is_bit_identical(method, records):
    known, targets = records
    whole = dict(iter_shadow_embeddings(KEY, method, known, targets, batch_size=8))
    resumed = dict(iter_shadow_embeddings(KEY, method, known, targets, batch_size=8, start=16))
    assert list(whole) == [0, 8, 16]
    assert list(resumed) == [16]
    jax.tree.map(np.testing.assert_array_equal, resumed[16], whole[16])
    assert resumed[16].coords.shape[0] == 7
    gathered = shadow_embeddings(KEY, method, known, targets, batch_size=8).coords
    np.testing.assert_array_equal(np.concatenate([chunk.coords for chunk in whole.values()]), gathered)


def test_the_recorded_chunk_size_is_the_one_that_is_used(method, records):
    known, targets = records
    size = shadow_batch_size(method, known, targets)
    chunks = iter_shadow_embeddings(KEY, method, known, targets)
    assert 1 <= size <= len(targets)
    assert next(chunks)[1].coords.shape[0] == size


def test_fresh_shadows_draw_anew_and_shared_ones_draw_once(records):
    known, targets = records
    method = SparseRandomProjection()
    fresh, shared = (
        shadow_embeddings(KEY, method, known, targets[:6], randomness=randomness).coords
        for randomness in ("fresh", "shared")
    )
    assert len(np.unique(fresh[:, 1:], axis=0)) == 6
    np.testing.assert_allclose(shared[1:, 1:], np.broadcast_to(shared[:1, 1:], shared[1:, 1:].shape), atol=ROUNDING)
    assert len(np.unique(shared[:, 0], axis=0)) > 1
    other = shadow_embeddings(jax.random.key(2), method, known, targets[:6], randomness="shared").coords
    assert np.abs(other - shared).max() > 0.1


def test_a_deterministic_method_ignores_the_key(records):
    known, targets = records
    first, second = (shadow_embeddings(jax.random.key(seed), PCA(), known, targets[:3]).coords for seed in (0, 1))
    np.testing.assert_array_equal(first, second)


def test_coordinates_have_the_precision_of_the_known_records(records):
    known, targets = records
    with jax.enable_x64(True):
        narrow = shadow_embeddings(KEY, PCA(), known, targets[:2].astype(np.float64))
        wide = shadow_embeddings(KEY, PCA(), known.astype(np.float64), targets[:2])
    assert narrow.coords.dtype == np.float32
    assert wide.coords.dtype == np.float64


def test_lanes_that_are_not_determined_are_flagged_alone():
    known = np.tile(np.arange(4, dtype=np.float32), (5, 1))
    targets = np.stack([known[0], known[0] + [0, 0, 0, 2]]).astype(np.float32)
    found = shadow_embeddings(KEY, PCA(n_components=1), known, targets)
    assert int(found.status[0]) & Status.DEGENERATE
    assert not int(found.status[1]) & Status.DEGENERATE


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"targets": np.full((2, 3), np.nan)}, "targets must be finite"),
        ({"known": np.full((5, 3), np.inf)}, "known must be finite"),
        ({"targets": np.zeros((2, 4))}, "targets must have 3 columns, got 4"),
        ({"targets": np.zeros(3)}, "targets must be a non-empty array"),
        ({"targets": np.zeros((0, 3))}, "targets must be a non-empty array"),
        ({"randomness": "some"}, "randomness must be one of fresh, shared; got 'some'"),
        ({"key": jax.random.PRNGKey(0)}, "key must be a single key"),
        ({"key": jax.random.split(jax.random.key(0))}, "key must be a single key"),
        ({"method": PCA(n_components=4)}, r"n_components must be <= min\(n, d\)"),
        ({"batch_size": -1}, "batch_size must be an integer >= 1"),
    ],
)
def test_bad_input_is_refused_by_name(change, match):
    arguments = {"key": KEY, "method": PCA(), "known": np.eye(5, 3), "targets": np.ones((2, 3)), **change}
    with pytest.raises(ValueError, match=match):
        shadow_embeddings(**arguments)


def test_a_restart_inside_a_chunk_is_refused(records):
    with pytest.raises(ValueError, match="start must be a multiple of the chunk size 8, got 3"):
        next(iter_shadow_embeddings(KEY, PCA(), *records, batch_size=8, start=3))


def test_known_records_are_prepared_once_for_calls_that_keep_them(records, monkeypatch):
    known, targets = records
    calls = []
    prepare = PCA.prepare
    monkeypatch.setattr(PCA, "prepare", lambda self, x, **k: calls.append(len(x)) or prepare(self, x, **k))
    kept = Prepared()
    size = shadow_batch_size(PCA(), known, targets, kept=kept)
    whole = [
        np.concatenate([np.asarray(e.coords) for _, e in iter_shadow_embeddings(key, PCA(), known, some, kept=kept)])
        for key, some in ((KEY, targets), (jax.random.key(7), targets[:5]))
    ]
    assert calls == [20]
    assert size == shadow_batch_size(PCA(), known, targets)
    np.testing.assert_allclose(whole[0], shadow_embeddings(KEY, PCA(), known, targets).coords, atol=ROUNDING)
    calls.clear()
    for other in (
        {"method": PCA(n_components=3)},
        {"known": known.copy()},
        {"dtype": "float16"},
        {"randomness": "shared"},
    ):
        settings = {"method": PCA(), "known": known} | other
        method, same = settings.pop("method"), settings.pop("known")
        shadow_batch_size(method, same, targets, kept=kept, **settings)
    assert calls == [20] * 4


def test_a_known_seed_is_kept_apart_from_another(records):
    known, targets = records
    kept = Prepared()
    options = {"randomness": "shared", "kept": kept}
    method = SparseRandomProjection()
    for key in (KEY, jax.random.key(8), KEY):
        [(_, found)] = iter_shadow_embeddings(key, method, known, targets, **options)
        np.testing.assert_array_equal(
            np.asarray(found.coords), shadow_embeddings(key, method, known, targets, randomness="shared").coords
        )


@hyperparams
class Slow(PCA):
    """PCA that says it takes as many seconds a shadow as asked for."""

    seconds: float = 0.0

    def cost(self, n, d, *, itemsize=4):
        return super().cost(n, d, itemsize=itemsize)._replace(flops=self.seconds * shadow.FLOPS)


@pytest.mark.parametrize(("seconds", "size"), [(2.9, 23), (10.0, 6), (1e4, 2)])
def test_where_a_shadow_takes_long_a_chunk_does_not(records, monkeypatch, seconds, size):
    monkeypatch.setattr(host, "n_cores", lambda: 2)
    known, targets = records
    assert shadow_batch_size(Slow(seconds=seconds), known, targets) == size
    chunks = list(iter_shadow_embeddings(KEY, Slow(seconds=seconds), known, targets[:4]))
    assert [len(chunk.coords) for _, chunk in chunks] == ([2, 2] if size == 2 else [4])


@pytest.mark.parametrize("name", ["pca", "isomap"])
def test_results_left_on_the_device_are_those_of_the_host(name, records):
    (known, targets), method = records, small(name)
    left = shadow_embeddings(KEY, method, known, jax.device_put(targets), batch_size=8, device_out=True)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(left))
    jax.tree.map(np.testing.assert_array_equal, left, shadow_embeddings(KEY, method, known, targets, batch_size=8))


def test_targets_on_the_device_are_not_copied_to_the_host(records, monkeypatch):
    known, targets = records[0], jax.device_put(records[1])
    copied = []
    own = np.asarray
    monkeypatch.setattr(np, "asarray", lambda x, *rest, **more: copied.append(np.shape(x)) or own(x, *rest, **more))
    shadow_embeddings(KEY, PCA(), known, targets, batch_size=8, device_out=True)
    assert known.shape in copied
    assert targets.shape not in copied


def test_targets_on_the_device_are_looked_at_there(records):
    known, targets = records[0], jax.device_put(records[1])
    with pytest.raises(ValueError, match=r"targets must be finite, got 1 nan .*, the first at \(2, 1\)"):
        shadow_embeddings(KEY, PCA(), known, targets.at[2, 1].set(np.nan), device_out=True)
    with pytest.raises(ValueError, match="targets must have 9 columns, got 4"):
        shadow_embeddings(KEY, PCA(), known, targets[:, :4], device_out=True)
    huge = jax.numpy.full_like(targets, 3e38)  # finite, with a sum that is not
    assert shadow_embeddings(KEY, PCA(), known, huge, device_out=True).coords.shape == (len(targets), 21, 2)


@pytest.mark.parametrize("change", [{"factored": True}, {"approx": "frozen"}])
def test_factored_coordinates_are_not_left_on_the_device(records, change):
    with pytest.raises(ValueError, match="device_out must be False for factored coordinates"):
        shadow_embeddings(KEY, PCA(), *records, device_out=True, **change)
