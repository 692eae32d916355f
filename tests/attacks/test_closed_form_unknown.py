import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

from drjax.attacks.reconstruction.closed_form import reconstruct_pca, reconstruct_pca_many
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.core.types import Status


@pytest.fixture(scope="module")
def digits():
    x = load_digits().data / 16
    return x[np.random.default_rng(0).permutation(len(x))]


def attacked(x, unknown, k, change=lambda coords: coords, **options):
    coords = change(SklearnPCA(k, svd_solver="full").fit_transform(x))
    found = reconstruct_pca_many(np.delete(x, unknown, axis=0), coords, unknown=unknown, **options)
    return found, ((found.x - x[unknown]) ** 2).mean(axis=1)


@pytest.mark.parametrize(("k", "unknown"), [(2, [5, 0]), (3, [0, 1]), (3, [150, 9, 40]), (6, [1, 2, 3, 4, 5, 6])])
def test_as_many_unknown_records_as_components_are_exact(digits, k, unknown):
    found, error = attacked(digits[:200], unknown, k)
    assert np.median(error) < 1e-16  # pixels that vary in no known record are the prior's
    assert (found.status == Status.OK).all()


def test_one_unknown_record_is_that_of_the_other_closed_form(digits):
    x = digits[:120]
    prior = GaussianPrior.fit(digits[500:])
    for decimals in (10, 4, 2):
        found, _ = attacked(x, [7], 3, lambda c, decimals=decimals: np.round(c, decimals), prior=prior)
        coords = np.round(SklearnPCA(3, svd_solver="full").fit_transform(x), decimals)
        one = reconstruct_pca(np.delete(x, 7, axis=0), coords, target_index=7, prior=prior)
        # The two estimate the level of the noise in their own ways, and only one knows how long the rest is.
        spanned = np.ptp(np.delete(x, 7, axis=0), axis=0) > 0
        difference = np.abs(found.x[0] - one.x)[spanned].max()
        assert difference < {10: 1e-6, 4: 0.02, 2: 0.2}[decimals]


def test_more_unknown_records_than_components_get_the_conditional_mean_of_the_joint_gaussian():
    rng = np.random.default_rng(0)
    d, u, k = 4, 5, 2
    mixing = rng.normal(size=(d, d)) + 2 * np.diag([4, 2, 1, 1])
    x = rng.normal(size=(30, d)) @ mixing
    unknown = np.arange(3, 3 + u)
    known = np.delete(x, unknown, axis=0)
    prior = GaussianPrior(rng.normal(size=d), mixing.T @ mixing)
    pca = SklearnPCA(k, svd_solver="full")
    theta = pca.fit_transform(x)
    found = reconstruct_pca_many(known, theta, unknown=unknown, prior=prior, noise=0.0)

    # By the textbook: every linear equation that the release gives, on the stacked vector of all unknown records.
    v, lam = pca.components_, (theta**2).sum(axis=0)
    of_known = np.delete(theta, unknown, axis=0)
    equations, values = [], []
    for c in range(k):
        equations.append(np.kron(theta[unknown, c], np.eye(d)))
        values.append(lam[c] * v[c] - of_known[:, c] @ known)
        for i in range(u):
            row = np.zeros(u * d)
            row[i * d : (i + 1) * d] = v[c]
            equations.append(row[None])
            values.append([theta[unknown[i], c] + (known @ v[c] - of_known[:, c]).mean()])
    operator, values = np.vstack(equations), np.concatenate(values)
    covariance = np.kron(np.eye(u), prior.covariance)
    gain = covariance @ operator.T @ np.linalg.pinv(operator @ covariance @ operator.T, rcond=1e-11)
    mean = np.tile(prior.mean, u)
    joint = mean + gain @ (values - operator @ mean)
    np.testing.assert_allclose(operator @ x[unknown].ravel(), values, atol=1e-9)
    np.testing.assert_allclose(found.x, joint.reshape(u, d), atol=1e-5)


def test_what_leaks_falls_with_every_unknown_record_beyond_the_components(digits):
    prior = GaussianPrior.fit(digits[500:])
    errors = [attacked(digits[:200], range(u), 2, prior=prior, bounds=(0, 1))[1].mean() for u in (2, 3, 6, 60)]
    assert errors[0] < 1e-4 < errors[1] < errors[2]
    guess = ((digits[:60] - prior.mean) ** 2).mean()
    assert 0.4 * guess < errors[3] < 0.95 * guess


def test_float32_and_rounding_cost_accuracy_only(digits):
    prior = GaussianPrior.fit(digits[500:])
    plain = attacked(digits[:200], [0, 1], 2, lambda c: c.astype(np.float32), prior=prior, bounds=(0, 1))[1]
    rounded = attacked(digits[:200], [0, 1], 2, lambda c: np.round(c, 2), prior=prior, bounds=(0, 1))[1]
    assert plain.max() < 1e-4
    assert plain.mean() < rounded.mean() < ((digits[:2] - prior.mean) ** 2).mean()


def test_batches_wanted_rows_and_signs(digits):
    x = digits[:100]
    coords = SklearnPCA(2, svd_solver="full").fit_transform(x)
    batch = np.stack([coords, coords * [1, -1]])
    for unknown in ([4, 9], list(range(10))):
        known = np.delete(x, unknown, axis=0)
        found = reconstruct_pca_many(known, batch, unknown=unknown, n_wanted=1)
        assert found.x.shape == (2, 1, 64)
        whole = reconstruct_pca_many(known, coords, unknown=unknown)
        np.testing.assert_allclose(found.x[:, 0], np.tile(whole.x[0], (2, 1)), atol=1e-9)


def test_unknown_records_with_one_place_cannot_be_told_apart(digits):
    x = digits[:50].copy()
    x[1] = x[0]
    found, _ = attacked(x, [0, 1], 2)
    assert (found.status == Status.DEGENERATE).all()
    np.testing.assert_array_equal(found.x[0], x[2:].mean(axis=0))
    nothing = reconstruct_pca_many(x[5:], np.zeros((50, 2)), unknown=range(5))
    assert (nothing.status == Status.DEGENERATE).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"unknown": [0]}, "unknown must be 2 different rows"),
        ({"unknown": [0, 0]}, "unknown must be 2 different rows"),
        ({"unknown": [0, 10]}, "rows must be in 0 to 9"),
        ({"n_wanted": 3}, "n_wanted must be <= the unknown rows = 2"),
        ({"coords": np.full((10, 2), np.nan)}, "coords must be finite"),
        ({"coords": np.zeros(10)}, "coords must have shape"),
        ({"bounds": (1, 1)}, "bounds"),
        ({"noise": -1.0}, "noise"),
    ],
)
def test_bad_input_names_the_argument(change, match):
    arguments = {"known": np.eye(8, 4), "coords": np.ones((10, 2)), "unknown": [0, 1], **change}
    with pytest.raises(ValueError, match=match):
        reconstruct_pca_many(**arguments)
