import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.manifold import ClassicalMDS
from sklearn.random_projection import SparseRandomProjection

from drjax.attacks.reconstruction.closed_form import (
    outside,
    reconstruct_pca,
    reconstruct_pca_each,
    reconstruct_srp,
    reconstruct_srp_each,
    srp_each,
)
from drjax.attacks.reconstruction.closed_form.downdate import decompose, leave_out
from drjax.attacks.reconstruction.closed_form.srp import RecoveredMatrix
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.shadow import shadow_embeddings
from drjax.core import streamed
from drjax.core.types import Status
from drjax.dr import PCA


@pytest.fixture(scope="module")
def digits():
    return load_digits().data / 16


def graded(n, d):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0, 9, d)


def lone(n, d):
    """Every record but the first is zero in the last feature."""
    x = np.random.default_rng(0).normal(size=(n, d))
    x[1:, -1] = 0
    return x


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(load_digits().data[:30] / 16, id="fewer records than features"),
        pytest.param(load_digits().data[:130:2] / 16, id="constant features"),
        pytest.param(np.repeat(load_digits().data[:20], 2, axis=0), id="every record twice"),
        pytest.param(graded(40, 25), id="nine orders of magnitude"),
        pytest.param(lone(30, 8), id="a feature of one record"),
        pytest.param(np.eye(6), id="equal singular values"),
        pytest.param(np.arange(12.0)[:, None], id="one feature"),
    ],
)
def test_leaving_a_row_out_gives_the_decomposition_of_the_others(x):
    everything = decompose(x)
    for row in range(len(x)):
        found = leave_out(everything, row)
        others = np.delete(x, row, axis=0)
        others = others - others.mean(axis=0)
        singular = np.linalg.svd(others, compute_uv=False)
        rank = np.linalg.matrix_rank(others)
        assert len(found.singular) == rank
        # Relative, the smallest ones too: what LAPACK itself leaves of nine orders of magnitude.
        np.testing.assert_allclose(found.singular, singular[:rank], rtol=1e-6 if x.shape == (40, 25) else 1e-11)
        right = found.right.T @ everything.basis
        np.testing.assert_allclose(right @ right.T, np.eye(rank), atol=1e-12)
        scores = others @ right.T
        np.testing.assert_allclose(scores.T @ scores, np.diag(found.singular**2), atol=1e-12 * found.singular[0] ** 2)


@pytest.mark.parametrize(("n", "step"), [(40, 1), (300, 10), (1797, 60)])
def test_every_record_is_reconstructed_as_by_the_attack_on_it_alone(digits, n, step):
    x, rows = digits[:n], np.arange(0, n, step)
    coords = SklearnPCA(2, svd_solver="full").fit_transform(x)
    found = reconstruct_pca_each(x, coords, rows=rows)
    for lane, row in enumerate(rows):
        one = reconstruct_pca(np.delete(x, row, axis=0), coords, target_index=row)
        assert one.status == found.status[lane] == Status.OK
        np.testing.assert_allclose(found.x[lane], one.x, atol=1e-8)
        # The rest of a unit vector has half the digits.
        np.testing.assert_allclose(found.residual_norm[lane], one.residual_norm, rtol=1e-6, atol=1e-2)
        np.testing.assert_allclose(found.expected_mse[lane], one.expected_mse, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("make", [lambda c: c.astype(np.float32), lambda c: np.round(c, 2), lambda c: c[:, :1]])
def test_agrees_on_imprecise_releases_within_bounds(digits, make):
    x = digits[:60]
    coords = make(SklearnPCA(3, svd_solver="full").fit_transform(x))
    rows = range(0, 60, 5)
    found = reconstruct_pca_each(x, coords, rows=rows, bounds=(0, 1))
    for lane, row in enumerate(rows):
        one = reconstruct_pca(np.delete(x, row, axis=0), coords, target_index=row, bounds=(0, 1))
        np.testing.assert_allclose(found.x[lane], one.x, atol=1e-5)  # the box is fitted to 1e-6


def test_a_record_has_no_part_in_its_own_reconstruction_but_its_row(digits):
    # Beyond the span of the others the reconstruction must not know the record: two records that differ there only.
    x = np.hstack([digits[:50], np.zeros((50, 1))])
    coords = SklearnPCA(2, svd_solver="full").fit_transform(x)
    x[7, -1] = 0.5
    found = reconstruct_pca_each(x, coords, rows=[7])
    assert abs(found.x[0, -1]) < 1e-12
    np.testing.assert_allclose(
        found.x[0], reconstruct_pca(np.delete(x, 7, axis=0), coords, target_index=7).x, atol=1e-10
    )


def test_classical_mds_is_reconstructed_as_pca_is(digits):
    x = digits[:120]
    coords = ClassicalMDS(n_components=2).fit_transform(x)
    found = reconstruct_pca_each(x, coords)
    assert np.median(((found.x - x) ** 2).mean(axis=1)) < 1e-12


def test_a_release_by_the_kernel_in_float32_gives_the_digits_away(digits):
    x = digits[:400]
    coords = shadow_embeddings(jax.random.key(0), PCA(), x[1:].astype(np.float32), x[:1].astype(np.float32)).coords[0]
    found = reconstruct_pca_each(x, coords, bounds=(0, 1))
    assert ((found.x - x) ** 2).mean() < 1e-5


def test_records_that_equal_each_other_or_say_nothing_are_no_error():
    x = np.zeros((5, 3))
    x[2] = 1
    coords = SklearnPCA(1, svd_solver="full").fit_transform(x)
    found = reconstruct_pca_each(x, coords, noise=0.0)
    np.testing.assert_allclose(found.x[[0, 1, 3, 4]], 0, atol=1e-12)  # in the span of the others
    assert found.status.tolist() == [0, 0, Status.DEGENERATE, 0, 0]
    flat = reconstruct_pca_each(np.ones((4, 3)), np.zeros((4, 2)))
    assert (flat.status == Status.DEGENERATE).all()
    np.testing.assert_array_equal(flat.x, 1)


@pytest.mark.parametrize("expectation", srp_each.EXPECTATIONS)
@pytest.mark.parametrize("n", [40, 300])
def test_projections_are_attacked_as_one_by_one_where_the_matrix_is_certain(digits, expectation, n):
    x, rows = digits[:n], np.arange(0, n, n // 20)
    coords = np.asarray(SparseRandomProjection(2, random_state=1, dense_output=True).fit_transform(x))
    found = reconstruct_srp_each(x, coords, rows=rows, expectation=expectation, bounds=(0, 1))
    assert (found.status == Status.OK).all()
    for lane, row in enumerate(rows):
        known = np.delete(x, row, axis=0)
        prior = GaussianPrior.fit(known) if expectation == "known" else None
        one = reconstruct_srp(known, coords, target_index=row, prior=prior, bounds=(0, 1))
        np.testing.assert_allclose(found.x[lane], one.x, atol=1e-12)


def test_a_matrix_is_certain_or_not_whatever_its_sign(digits):
    matrix, known = np.zeros((64, 1)), digits[:100]
    matrix[[10, 20, 30]] = 2
    for sign in (1, -1):
        whole = RecoveredMatrix(sign * matrix, np.ones(1, bool), (np.eye(64), np.eye(64)))
        for end, is_certain in ((known, True), (known + 1, False)):
            found = srp_each._certified(whole, known, sign * end @ matrix, rank=50, error=1e-9)
            assert (found is not None) == is_certain


def test_without_a_certain_matrix_the_projection_is_searched_without_the_row(digits):
    x = digits[:8]
    coords = np.asarray(SparseRandomProjection(2, random_state=0, dense_output=True).fit_transform(x))
    found = reconstruct_srp_each(x, coords, expectation="isotropic")
    for row in range(8):
        one = reconstruct_srp(np.delete(x, row, axis=0), coords, target_index=row)
        assert one.status == found.status[row] == Status.NOT_CONVERGED
        np.testing.assert_array_equal(found.x[row], one.x)


@pytest.mark.parametrize("attack", [reconstruct_pca_each, reconstruct_srp_each])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"coords": np.ones((9, 2))}, "coords must have"),
        ({"coords": np.full((10, 2), np.nan)}, "coords must be finite"),
        ({"rows": [10]}, "rows must be in 0 to 9, got 10"),
        ({"rows": []}, "rows must be a sequence"),
        ({"rows": [0.5]}, "rows must be a sequence"),
        ({"bounds": (1, 0)}, "bounds must be"),
        ({"x": np.ones((2, 4))}, "x must have at least 3 rows"),
    ],
)
def test_bad_input_names_the_argument(attack, change, match):
    arguments = {"x": np.eye(10, 4), "coords": np.ones((10, 2)), **change}
    with pytest.raises(ValueError, match=match):
        attack(**arguments)


def test_an_unknown_expectation_is_refused_by_name():
    with pytest.raises(ValueError, match="expectation must be one of"):
        reconstruct_srp_each(np.eye(10, 4), np.ones((10, 2)), expectation="public")


@pytest.mark.parametrize("make", [lambda c: c, lambda c: c.astype(np.float32), lambda c: np.round(c, 2)])
def test_records_that_are_read_in_blocks_are_reconstructed_as_by_one_decomposition(digits, make, monkeypatch):
    x = digits.astype(np.float32)
    coords = make(SklearnPCA(2, svd_solver="full").fit_transform(x.astype(np.float64)))
    rows = np.arange(0, len(x), 90)
    expected = reconstruct_pca_each(x, coords, rows=rows, bounds=(0, 1))
    of_one = reconstruct_pca(np.delete(x, 90, axis=0), coords, target_index=90)
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 500 * x.shape[1])
    found = reconstruct_pca_each(x, coords, rows=rows, bounds=(0, 1))
    np.testing.assert_array_equal(found.status, expected.status)
    np.testing.assert_allclose(found.x, expected.x, atol=1e-7)
    np.testing.assert_allclose(found.expected_mse, expected.expected_mse, rtol=1e-5, atol=1e-9)  # to rounding
    again = reconstruct_pca(np.delete(x, 90, axis=0), coords, target_index=90)
    assert again.status == of_one.status
    np.testing.assert_allclose(again.x, of_one.x, atol=1e-7)
    # Of exact scores what is expected of pixels that are never on is rounding, which depends on the processor's BLAS.
    is_exact = coords.dtype == np.float64 and not np.array_equal(coords, np.round(coords, 2))
    atol = 1e-9 if is_exact else 1e-12
    np.testing.assert_allclose(again.feature_mse, of_one.feature_mse, rtol=1e-5, atol=atol)
    if is_exact:
        for one in (of_one, again):
            assert np.mean((one.x - x[90]) ** 2) < 10 * one.feature_mse.mean() < 1e-9


@pytest.mark.parametrize("decimals", [6, 4, None])
def test_truncated_svd_is_reconstructed_from_blocks_too(digits, monkeypatch, decimals):
    x = digits[:400]
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    exact = u[:, :2] * s[:2]
    coords = exact if decimals is None else np.round(exact, decimals)
    whole = reconstruct_pca(x[1:], coords, is_centred=False)
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    blocks = reconstruct_pca(x[1:], coords, is_centred=False)
    # Sums over blocks round more: with the BLAS of NumPy 2.5 by 2e-8, of 2.4 by 2e-9.
    np.testing.assert_allclose(blocks.x, whole.x, atol=1e-7)
    if decimals is not None:
        np.testing.assert_allclose(blocks.feature_mse, whole.feature_mse, rtol=1e-5, atol=1e-12)
        return
    # Sums over blocks round more, by how much depends on the processor: each expects what its own rounding explains.
    for found in (whole, blocks):
        assert np.mean((found.x - x[0]) ** 2) < 10 * found.feature_mse.mean() < 1e-9


def test_what_sums_over_blocks_round_is_no_row_of_another_record(digits, monkeypatch):
    x = digits[:400]
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    coords = u[:, :2] * s[:2]
    coords[5] += 2e-12
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    assert Status(int(reconstruct_pca(x[1:], coords, is_centred=False).status)) == Status.OK
    coords[5] = coords[9]
    assert Status(int(reconstruct_pca(x[1:], coords, is_centred=False).status)) == Status.MISFIT


def blank(n, d=12, n_blank=4):
    """Records in float32 of which some features are next to never on."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, d)) * np.linspace(3, 0.5, d)
    x[:, -n_blank:] = rng.random((n, n_blank)) * (rng.random((n, n_blank)) < 1 / n)
    return x.astype(np.float32)


@pytest.mark.parametrize("is_centred", [True, False], ids=["centred", "as it is"])
@pytest.mark.parametrize(
    "x",
    [
        pytest.param(load_digits().data[:30] / 16, id="fewer records than features"),
        pytest.param(load_digits().data[:130:2] / 16, id="constant features"),
        pytest.param(lone(30, 8), id="a feature of one record"),
        pytest.param(blank(60), id="features that are seldom on"),
    ],
)
def test_outside_the_others_is_expected_what_each_has_there(x, is_centred):
    squares = []
    for row in range(len(x)):
        others, own = np.delete(x, row, axis=0).astype(np.float64), x[row].astype(np.float64)
        mean = others.mean(axis=0) if is_centred else 0
        # What lstsq cannot fit of the record's offset.
        basis = np.linalg.svd((others - mean), full_matrices=False)
        kept = basis[2][basis[1] > 1e-9 * basis[1][0]]
        squares.append(np.sum(((own - mean) - (own - mean) @ kept.T @ kept) ** 2))
    whole = decompose(x, is_centred=is_centred)
    seldom = min(whole.singular[-1] ** 2, np.sum(whole.singular**2) / len(x))
    wanted = (np.sum(squares) + seldom) / (len(x) + 1)
    assert outside.expected_outside(whole, is_centred=is_centred) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("sample", [4096, 7], ids=["all", "some"])
@pytest.mark.parametrize("x", [load_digits().data[:30] / 16, blank(60), lone(30, 8)], ids=["few", "blank", "lone"])
def test_what_is_expected_outside_of_each_records_others_is_that_of_their_decomposition(monkeypatch, x, sample):
    monkeypatch.setattr(outside, "SAMPLE", sample)
    others_of = outside.Others(decompose(x))
    for row in range(len(x)):
        others = decompose(np.delete(x, row, axis=0))
        found = others_of.expected_outside(row, others.singular)
        assert found == pytest.approx(outside.expected_outside(others), rel=1e-9)


@pytest.mark.parametrize("each", [True, False], ids=["each record", "one release each"])
def test_rounding_that_hides_the_length_outside_does_not_stand_for_it(each):
    known, targets = blank(20_000), blank(20_100)[-40:]
    targets[:, -4:] = 0
    key, method = jax.random.key(0), PCA(n_components=2)
    if each:
        x = np.concatenate([targets, known])
        scores = np.asarray(method.fit_transform(key, x).coords)
        found = reconstruct_pca_each(x, scores, rows=np.arange(40), noise=0.0)
    else:
        found = reconstruct_pca(known, shadow_embeddings(key, method, known, targets).coords, noise=0.0)
    assert found.expected_mse is not None
    error = np.mean((found.x - targets) ** 2, axis=1)
    # Some features may be on for once, and are no more than that.
    assert found.expected_mse.max() < 1e-3 * known.var(axis=0).mean()
    assert found.residual_norm.max() < 0.1
    assert found.expected_mse.mean() > error.mean()
