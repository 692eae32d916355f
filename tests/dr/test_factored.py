import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks.shadow import iter_shadow_embeddings, shadow_embeddings
from drjax.core import streamed
from drjax.core.types import Status
from drjax.dr import METHODS, PCA, ClassicalMDS, SparseRandomProjection, TruncatedSVD
from drjax.dr.factored import FactoredCoords, Linear
from drjax.dr.mds import extremes as extremes_module

KEY = jax.random.key(3)
DIGITS = load_digits().data / 16
KNOWN, TARGETS = DIGITS[:150], DIGITS[150:156]
LINEAR = (
    PCA(),
    PCA(n_components=5),
    TruncatedSVD(),
    SparseRandomProjection(n_components=3),
    ClassicalMDS(n_components=3),
)


@pytest.fixture(params=LINEAR, ids=repr)
def method(request):
    return request.param


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize(
    ("method", "randomness"),
    [*((method, "fresh") for method in LINEAR), (PCA(), "shared"), (SparseRandomProjection(n_components=3), "shared")],
    ids=repr,
)
def test_factors_give_the_coordinates(method, randomness, is_large, monkeypatch):
    if is_large:
        monkeypatch.setattr(streamed, "is_large", lambda *_: True)
        monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 40 * KNOWN.shape[1])
    with jax.enable_x64(True):
        whole = shadow_embeddings(KEY, method, KNOWN, TARGETS, randomness=randomness)
        found = shadow_embeddings(KEY, method, KNOWN, TARGETS, randomness=randomness, factored=True)
    assert isinstance(found.coords, FactoredCoords)
    assert found.coords.shape == whole.coords.shape
    assert found.coords.dtype == np.float64
    np.testing.assert_allclose(np.asarray(found.coords), whole.coords, atol=1e-12)
    np.testing.assert_array_equal(found.status, whole.status)
    np.testing.assert_allclose(found.objective, whole.objective, rtol=1e-10)
    for one, other in zip(jax.tree.leaves(found.info), jax.tree.leaves(whole.info), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_float32_is_computed_in_float32_whatever_the_records_are(method):
    found = shadow_embeddings(KEY, method, KNOWN, TARGETS, factored=True, dtype="float32")
    whole = shadow_embeddings(KEY, method, KNOWN.astype(np.float32), TARGETS)
    assert found.coords.dtype == whole.coords.dtype == np.float32
    np.testing.assert_allclose(np.asarray(found.coords), whole.coords, atol=1e-5)


def test_any_slice_is_the_slice_of_the_whole(method):
    coords = shadow_embeddings(KEY, method, KNOWN, TARGETS, factored=True).coords
    whole = np.asarray(coords)
    for at in (
        2, -1, (2, 0), (2, 7), (2, 7, 1), (slice(None), 0), (slice(None), 3), (slice(1, 4), slice(2, 9)),
        (slice(None), slice(0, 2), 0), (3, np.array([5, 0, 9])), (slice(None), np.array([5, 0, 9]), slice(0, 1)),
        (slice(None), slice(None), 1), (np.array([4, 1]), slice(0, 3)), (0, slice(None, None, -1)),
    ):  # fmt: skip
        np.testing.assert_allclose(coords[at], whole[at], atol=1e-6, err_msg=str(at))
    some = coords[1:3]
    assert isinstance(some, FactoredCoords)
    np.testing.assert_allclose(np.asarray(some), whole[1:3], atol=1e-6)
    assert (len(coords), coords.ndim, coords.nbytes) == (6, 3, sum(leaf.nbytes for leaf in coords.factors))
    with pytest.raises(IndexError, match="three axes"):
        coords[0, 0, 0, 0]
    with pytest.raises(IndexError):
        coords[6]


def test_an_embedding_takes_as_much_memory_whatever_n_is():
    x = np.random.default_rng(0).normal(size=(3000, 20))
    found = [shadow_embeddings(KEY, PCA(), x[:n], x[-6:], factored=True).coords for n in (30, 2900)]
    assert found[0].nbytes == found[1].nbytes == 6 * 4 * (2 + 2 * 20 + 2)


def test_chunks_of_factors_are_parts_of_the_whole():
    whole = shadow_embeddings(KEY, PCA(), KNOWN, TARGETS, factored=True).coords
    chunks = list(iter_shadow_embeddings(KEY, PCA(), KNOWN, TARGETS, factored=True, batch_size=4))
    assert [start for start, _ in chunks] == [0, 4]
    for start, chunk in chunks:
        np.testing.assert_allclose(np.asarray(chunk.coords), whole[start : start + 4, :], atol=1e-6)


@pytest.mark.parametrize("method", [PCA(), TruncatedSVD(), SparseRandomProjection()], ids=repr)
def test_a_target_that_is_not_finite_spoils_its_own_lane_alone(method):
    targets = TARGETS.astype(np.float32)
    keys = jax.random.split(KEY, len(targets))
    shared, _ = method.prepare_factored(KNOWN, dtype=np.float32)
    insert_factors = jax.jit(method.insert_factors)
    fine = insert_factors(keys, shared, targets)
    targets[1, 3] = np.inf
    found = insert_factors(keys, shared, targets)
    is_bad = (np.asarray(found.status) & np.uint32(Status.NON_FINITE)) != 0
    assert is_bad.tolist() == [False, True, False, False, False, False]
    assert not np.isfinite(found.coords.target[1]).all()
    for one, other in zip(found.coords, fine.coords, strict=True):
        np.testing.assert_array_equal(np.asarray(one)[~is_bad], np.asarray(other)[~is_bad])
    with pytest.raises(ValueError, match="targets must be finite"):
        shadow_embeddings(KEY, method, KNOWN, targets, factored=True)


@pytest.mark.parametrize("farthest", [1, 4, 40])
def test_signs_come_from_the_rows_that_lie_farthest_out(farthest, monkeypatch):
    monkeypatch.setattr(extremes_module, "KEPT_ENTRIES", 0)
    monkeypatch.setattr(extremes_module, "READ_ENTRIES", 20 * 64)
    monkeypatch.setattr(extremes_module, "FARTHEST", farthest)
    method = ClassicalMDS(n_components=3)
    with jax.enable_x64(True):
        whole = shadow_embeddings(KEY, method, KNOWN, TARGETS)
        found = shadow_embeddings(KEY, method, KNOWN, TARGETS, factored=True)
    tie = (np.asarray(found.status) & Status.SIGN_TIE) > 0
    # With a few rows of each direction it is not known which sign is that of the largest, and said to be.
    same = np.abs(np.asarray(found.coords) - whole.coords).max(axis=(1, 2)) < 1e-10
    assert same[~tie].all()
    assert tie.any() == (farthest < 40)
    assert (np.asarray(found.info.sign_margin) <= np.asarray(whole.info.sign_margin) + 1e-12).all()


def test_rows_that_are_not_kept_stay_within_reach(monkeypatch):
    monkeypatch.setattr(extremes_module, "KEPT_ENTRIES", 0)
    monkeypatch.setattr(extremes_module, "READ_ENTRIES", 300)
    monkeypatch.setattr(extremes_module, "FARTHEST", 5)
    rows = np.random.default_rng(2).normal(size=(200, 6)) * np.array([5, 4, 3, 1, 1, 1])
    found = extremes_module.extremes(rows, 3)
    kept = (rows[:, None] == found.rows).all(axis=2).any(axis=1)
    assert 5 <= kept.sum() <= 15
    np.testing.assert_array_equal(np.sort(np.abs(rows[:, :3]), axis=0)[-6], found.reach)
    assert (np.abs(rows[~kept, :3]) <= found.reach).all()
    for direction in range(3):
        norms = np.linalg.norm(np.delete(rows, direction, axis=1), axis=1)
        np.testing.assert_allclose(found.rest[direction], norms.max())


def test_classical_mds_of_another_metric_has_no_factors():
    with pytest.raises(ValueError, match="factored must be False for method 'classical_mds'"):
        shadow_embeddings(KEY, ClassicalMDS(metric="cosine"), KNOWN, TARGETS, factored=True)


@pytest.mark.parametrize("name", [name for name, make in METHODS.items() if not isinstance(make(), Linear)])
def test_a_method_without_factors_says_so(name):
    with pytest.raises(ValueError, match=f"factored must be False for method '{name}'"):
        shadow_embeddings(KEY, METHODS[name](), KNOWN, TARGETS, factored=True)


def test_equal_records_have_one_direction(monkeypatch):
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    found = shadow_embeddings(KEY, PCA(n_components=1), np.full((30, 4), 0.5), np.full((2, 4), 0.5), factored=True)
    whole = shadow_embeddings(KEY, PCA(n_components=1), np.full((30, 4), 0.5), np.full((2, 4), 0.5))
    np.testing.assert_array_equal(np.asarray(found.coords), whole.coords)
    np.testing.assert_array_equal(found.status, whole.status)
