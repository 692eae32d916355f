import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.random_projection import SparseRandomProjection

from drjax.attacks.reconstruction.closed_form.srp import reconstruct_srp, recover_matrix
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core.types import Status

D, K = 60, 2
N_NONZERO = np.sqrt(D)  # expected non-zeros of a column at density 1 / sqrt(d)
PLENTY = 61  # known rows: one more than columns, and about four times nnz log d / 2


def population(n, seed=0, d=D):
    """Gaussian records with a decaying spectrum, and their law."""
    rng = np.random.default_rng(seed)
    factor = np.random.default_rng(99).normal(size=(d, d)) * 0.95 ** np.arange(d)
    return rng.normal(size=(n, d)) @ factor.T / 4 + 0.5, factor @ factor.T / 16


def matrix(seed, k=K, d=D):
    projection = SparseRandomProjection(k, random_state=seed).fit(np.zeros((2, d)))
    return np.asarray(projection.components_.toarray().T)


def releases(known, targets, seed=0):
    """One release per target, each from its own matrix: (coords (m, n, k), matrices (m, d, k))."""
    drawn = np.stack([matrix(1000 * seed + i, d=known.shape[1]) for i in range(len(targets))])
    coords = np.stack([np.vstack([t, known]) @ r for t, r in zip(targets, drawn, strict=True)])
    return coords, drawn


def prior_of(covariance, mean=0.5):
    return GaussianPrior(mean=np.full(len(covariance), mean), covariance=covariance)


def conditional_mean(mean, covariance, operator, values, noise=0.0):
    """Gaussian conditioning from the joint covariance, written independently of the prior's own code."""
    gain = covariance @ operator.T @ np.linalg.inv(operator @ covariance @ operator.T + noise * np.eye(len(operator)))
    return mean + gain @ (values - operator @ mean)


def mse(x, targets):
    return np.mean((x - targets) ** 2)


def test_columns_are_recovered_exactly_from_fewer_rows_than_columns():
    known, _ = population(45)
    true = np.concatenate([matrix(seed) for seed in range(20)], axis=1)
    found = recover_matrix(known, known @ true, n_components=K)
    assert known.shape[0] < D
    assert found.is_exact.mean() > 0.8
    np.testing.assert_allclose(found.matrix[:, found.is_exact], true[:, found.is_exact], atol=1e-12)


def test_agrees_with_basis_pursuit_by_linear_programming():
    known, _ = population(50)
    true = matrix(3)
    found = recover_matrix(known, known @ true, n_components=K)
    for j in range(K):
        program = linprog(
            np.ones(2 * D), A_eq=np.hstack([known, -known]), b_eq=known @ true[:, j], bounds=(0, np.abs(true).max())
        )
        np.testing.assert_allclose(found.matrix[:, j], program.x[:D] - program.x[D:], atol=1e-6)  # HiGHS's tolerance


@pytest.mark.parametrize("density", [0.3, 1.0])
def test_dense_matrices_are_recovered_once_the_rows_span_the_space(density):
    known, _ = population(PLENTY)
    rng = np.random.default_rng(0)
    value = np.sqrt(1 / density / K)
    true = value * rng.choice([-1, 0, 1], size=(D, K), p=[density / 2, 1 - density, density / 2])
    found = recover_matrix(known, known @ true, n_components=K, density=density)
    assert found.is_exact.all()
    np.testing.assert_allclose(found.matrix, true, atol=1e-12)


@pytest.mark.parametrize("precision", [None, 0.5e-4, 0.5e-2])
def test_recovery_survives_float32_and_rounding(precision):
    known, _ = population(PLENTY)
    true = np.concatenate([matrix(seed) for seed in range(5)], axis=1)
    coords = known @ true
    step = precision and 2 * precision
    released = coords.astype(np.float32) if step is None else np.round(coords / step) * step
    found = recover_matrix(known, released, n_components=K, precision=precision)
    assert found.is_exact.all()
    np.testing.assert_allclose(found.matrix, true, atol=1e-12)


def test_no_certificate_is_given_for_a_matrix_of_another_alphabet():
    known, _ = population(PLENTY)
    found = recover_matrix(known, known @ (0.9 * matrix(0)), n_components=K)
    assert not found.is_exact.any()


def test_no_certificate_is_given_from_too_few_rows():
    # Binary rows: many alphabet vectors reproduce three coordinates.
    known = np.random.default_rng(0).integers(0, 2, size=(3, D)).astype(float)
    found = recover_matrix(known, known @ matrix(0), n_components=K)
    assert not found.is_exact.any()


def test_columns_that_the_rows_do_not_show_stay_at_their_mean():
    known, _ = population(PLENTY)
    known[:, [4, 9]] = 0
    true = matrix(0)
    true[[4, 9]] = np.abs(true).max()
    found = recover_matrix(known, known @ true, n_components=K)
    assert found.is_exact.all()
    assert not found.matrix[[4, 9]].any()
    shown = np.setdiff1d(np.arange(D), [4, 9])
    np.testing.assert_allclose(found.matrix[shown], true[shown], atol=1e-12)


def test_equal_columns_share_their_sum_because_the_rows_cannot_tell_them_apart():
    known, _ = population(PLENTY)
    known[:, 7] = known[:, 3]
    true = matrix(0)
    true[[3, 7]] = [[np.abs(true).max()] * K, [0] * K]
    found = recover_matrix(known, known @ true, n_components=K)
    assert found.is_exact.all()
    np.testing.assert_allclose(found.matrix[[3, 7]], true[[3, 7]].mean(axis=0, keepdims=True).repeat(2, 0), atol=1e-12)


def test_attack_equals_the_conditional_mean_with_the_true_matrix():
    known, covariance = population(PLENTY)
    targets, _ = population(6, seed=1)
    coords, drawn = releases(known, targets)
    found = reconstruct_srp(known, coords, prior=prior_of(covariance))
    mean = np.full(D, 0.5)
    for i, r in enumerate(drawn):
        expected = conditional_mean(mean, covariance, r.T, coords[i, 0])
        np.testing.assert_allclose(found.x[i], expected, atol=1e-4)  # float32 precision is allowed for as noise
    assert (found.status == Status.OK).all()
    assert np.isnan(found.residual_norm).all()


def test_two_numbers_leak_and_no_more():
    # The oracle that is given the matrix explains k of the d directions; knowing more rows buys nothing beyond it.
    known, covariance = population(PLENTY)
    targets, _ = population(150, seed=2)
    coords, drawn = releases(known, targets)
    mean = np.full(D, 0.5)
    oracle = np.stack([conditional_mean(mean, covariance, r.T, c[0]) for r, c in zip(drawn, coords, strict=True)])
    attack = mse(reconstruct_srp(known, coords, prior=prior_of(covariance)).x, targets)
    assert abs(attack - mse(oracle, targets)) < 1e-4
    assert 0.5 * mse(mean, targets) < attack < mse(mean, targets)


def test_more_known_rows_never_beat_the_oracle_and_approach_it():
    targets, covariance = population(200, seed=3)
    mean = np.full(D, 0.5)
    errors = []
    for n_known in (5, 20, PLENTY):
        known, _ = population(n_known)
        coords, drawn = releases(known, targets)
        errors.append(mse(reconstruct_srp(known, coords, prior=prior_of(covariance)).x, targets))
    oracle = np.stack([conditional_mean(mean, covariance, r.T, c[0]) for r, c in zip(drawn, coords, strict=True)])
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] > mse(oracle, targets) - 1e-6
    assert errors[0] < mse(mean, targets)


def test_noise_of_unrecovered_matrices_is_calibrated():
    # For a fixed record the coordinate's error has variance |P x|^2 / k over draws of the matrix, exactly.
    known, _ = population(8)
    x = population(1, seed=4)[0][0]
    # Half of 60 entries are non-zero: far from sparse enough for a certificate from 8 rows.
    true = np.sqrt(1 / 0.5 / K) * np.random.default_rng(0).choice([-1, 0, 0, 1], size=(D, 4000))
    found = recover_matrix(known, known @ true, n_components=K, density=0.5)
    assert not found.is_exact.any()
    errors = x @ true - x @ found.matrix
    basis = found.error_bases[0]
    expected = np.sum((x - basis @ (basis.T @ x)) ** 2) / K
    # The mean of 4000 nearly normal errors' squares has relative standard error 0.022; a missing factor k is 100%.
    np.testing.assert_allclose(np.mean(errors**2), expected, rtol=0.09)
    assert abs(errors.mean()) < 4 * np.sqrt(expected / errors.size)


def test_rows_that_say_nothing_give_back_nearly_the_prior_mean():
    known = np.full((3, D), 1e-3)
    targets, covariance = population(50, seed=5)
    coords, _ = releases(known, targets)
    found = reconstruct_srp(known, coords, prior=prior_of(covariance))
    spread = np.sqrt(np.mean((targets - 0.5) ** 2))
    assert np.sqrt(np.mean((found.x - 0.5) ** 2)) < 0.3 * spread


def test_without_a_prior_the_answer_is_the_smallest_correction_of_the_known_mean():
    known, _ = population(PLENTY)
    targets, _ = population(3, seed=6)
    coords, drawn = releases(known, targets)
    found = reconstruct_srp(known, coords, precision=0.0)
    mean = known.mean(axis=0)
    for i, r in enumerate(drawn):
        np.testing.assert_allclose(found.x[i], mean + np.linalg.pinv(r.T) @ (coords[i, 0] - mean @ r), atol=1e-8)


def test_one_release_gives_one_record():
    known, covariance = population(PLENTY)
    targets, _ = population(1, seed=7)
    coords, _ = releases(known, targets)
    many = reconstruct_srp(known, coords, prior=prior_of(covariance))
    one = reconstruct_srp(known, coords[0], prior=prior_of(covariance))
    np.testing.assert_array_equal(one.x, many.x[0])
    assert one.candidates.shape == (1, D)
    assert many.candidates.shape == (1, 1, D)
    assert np.shape(one.status) == np.shape(one.residual_norm) == ()


def test_the_target_may_be_in_any_row():
    known, covariance = population(PLENTY)
    targets, _ = population(2, seed=8)
    coords, _ = releases(known, targets)
    moved = np.concatenate([coords[:, 1:4], coords[:, :1], coords[:, 4:]], axis=1)
    first = reconstruct_srp(known, coords, prior=prior_of(covariance))
    fourth = reconstruct_srp(known, moved, prior=prior_of(covariance), target_index=3)
    np.testing.assert_array_equal(first.x, fourth.x)


def test_releases_of_one_shared_matrix_cost_one_recovery(monkeypatch):
    from drjax.attacks.reconstruction.closed_form import srp

    known, covariance = population(PLENTY)
    targets, _ = population(9, seed=9)
    r = matrix(0)
    coords = np.stack([np.vstack([t @ r, known @ r]) for t in targets])
    widths = []
    recover = srp.recover_matrix
    monkeypatch.setattr(srp, "recover_matrix", lambda *a, **o: (widths.append(a[1].shape[1]), recover(*a, **o))[1])
    found = srp.reconstruct_srp(known, coords, prior=prior_of(covariance))
    assert widths == [K]
    mean = np.full(D, 0.5)
    expected = np.stack([conditional_mean(mean, covariance, r.T, t @ r) for t in targets])
    np.testing.assert_allclose(found.x, expected, atol=1e-4)  # float32 precision is allowed for as noise


def test_bounds_clip_the_records():
    known, covariance = population(PLENTY)
    targets, _ = population(4, seed=10)
    coords, _ = releases(known, targets)
    found = reconstruct_srp(known, coords, prior=prior_of(covariance), bounds=(0.4, 0.6))
    assert found.x.min() == 0.4
    assert found.x.max() == 0.6


def test_a_release_that_measures_nothing_is_degenerate():
    known, covariance = population(PLENTY)
    coords = np.zeros((PLENTY + 1, K))
    found = reconstruct_srp(known, coords, prior=prior_of(covariance))
    assert found.status & Status.DEGENERATE
    np.testing.assert_allclose(found.x, 0.5)


def test_a_matrix_that_is_not_recovered_is_flagged_and_kept():
    known, covariance = population(4)
    targets, _ = population(3, seed=11)
    found = reconstruct_srp(known, releases(known, targets)[0], prior=prior_of(covariance))
    assert (found.status == Status.NOT_CONVERGED).all()
    assert np.isfinite(found.x).all()


def test_coordinates_that_are_not_finite_spoil_their_own_release_only():
    known, covariance = population(PLENTY)
    targets, _ = population(3, seed=12)
    coords, _ = releases(known, targets)
    clean = reconstruct_srp(known, coords, prior=prior_of(covariance))
    coords[1, 0, 0] = np.nan
    found = reconstruct_srp(known, coords, prior=prior_of(covariance))
    assert found.status.tolist() == [Status.OK, Status.NON_FINITE, Status.OK]
    assert np.isnan(found.x[1]).all()
    np.testing.assert_allclose(found.x[[0, 2]], clean.x[[0, 2]], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_index": 6}, "target_index must be <= n - 1 = 5"),
        ({"target_index": -1}, "target_index must be an integer >= 0"),
        ({"density": 0.0}, "density must be > 0"),
        ({"density": float("nan")}, "density must be > 0"),
        ({"density": 1.5}, "density must be <= "),
        ({"precision": -1.0}, "precision must be >= 0"),
        ({"bounds": (1.0, 0.0)}, "bounds must be"),
        ({"coords": np.zeros((5, K))}, r"coords must have shape \(6, k\)"),
        ({"coords": np.zeros(6)}, r"coords must have shape \(6, k\)"),
        ({"known": np.full((5, D), np.nan)}, "known must be finite"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    arguments = {"known": population(5)[0], "coords": np.zeros((6, K)), **change}
    with pytest.raises(ValueError, match=message):
        reconstruct_srp(**arguments)
