"""The likelihood ratio: against brute force, against the exact ratio of Wishart laws and against the paper's attack."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.datasets import load_digits

from drjax.attacks import membership_shadows, roc
from drjax.attacks.membership_ratio import METHODS, PRIOR_SHADOWS, ratio_score_prefixes
from drjax.attacks.membership_ratio import ratio_scores as scores_of
from drjax.attacks.membership_scores import Release, pca_scores, release_of
from drjax.attacks.membership_shadows import Shadows, fit_shadows

KEY = jax.random.key(11)
D = 20


def population(n, d=D, seed=0):
    """Gaussian records whose variances fall off, in a random basis."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(np.random.default_rng(99).normal(size=(d, d)))[0]
    return (rng.normal(size=(n, d)) / np.sqrt(np.arange(1, d + 1)) + 0.2) @ basis


@functools.cache
def setting(n=60, d=D, centred=False, n_shadows=6):
    """Members, candidates (members first), which are members, and shadows from other records."""
    x = population(2 * n + 400, d)
    members, candidates, public = x[:n], x[: 2 * n], x[2 * n :]
    shadows = fit_shadows(KEY, public, n, centred=centred, n_shadows=n_shadows)
    return members, candidates, np.repeat([1, 0], n), shadows


def brute_force(shadows, release, candidates, method):
    """The scores as the module's docstring defines them, one candidate and one shadow at a time."""
    n, d = shadows.n_records, candidates.shape[1]
    k = min(release.n_components, shadows.components.shape[1])
    expected = shadows.eigenvalues.mean(axis=0)

    def log_q(z, components, values):
        along = components[:k] @ z
        rest = z - along @ components[:k]
        values = values if release.eigenvalues is not None else expected
        inside = np.sum(along**2 / (values[:k] + shadows.floor)) / n
        outside = rest @ shadows.precision @ rest / n
        q = inside + outside
        energy = z @ shadows.precision @ z / n
        return np.log(q / energy), np.log(q / (1 + q) + outside**2 / (1 + outside)) - np.log(q)

    def pca(scatter):
        values, vectors = np.linalg.eigh(scatter)
        return vectors.T[::-1], np.maximum(values[::-1], 0)

    found = []
    for z in candidates:
        center = shadows.center if release.mean is None else release.mean
        observed, _ = log_q(z - center, release.components, release.eigenvalues)
        seen = []
        for v, values, mean in zip(shadows.components, shadows.eigenvalues, shadows.means, strict=True):
            seen.append(log_q(z - (shadows.center if release.mean is None else mean), v, values))
        outside, shifts = np.array(seen).T
        if method == "rank_one" and k < d:
            shifts = []
            for i, (basis, squares, mean) in enumerate(
                zip(shadows.bases, shadows.base_squares, shadows.base_means, strict=True)
            ):
                offset = z - mean
                weight = (n - 1) / n if shadows.centred else 1
                scatter = (basis.T * squares) @ basis + weight * np.outer(offset, offset)
                inserted, _ = log_q(weight * offset, *pca(scatter / n))
                without, _ = log_q(z - shadows.means[i], shadows.components[i], shadows.eigenvalues[i])
                shifts.append(inserted - without)
        found.append((observed, outside.mean(), outside.var(ddof=1), np.mean(shifts)))
    observed, mean, variance, shift = np.array(found).T
    m = len(shadows.components)
    variance = ((m - 1) * variance + PRIOR_SHADOWS * np.median(variance)) / (m - 1 + PRIOR_SHADOWS)
    if method == "offline":
        return (mean - observed) / np.sqrt(variance)
    ratio = ((observed - mean) ** 2 - (observed - mean - shift) ** 2) / (2 * variance)
    if release.mean is None:
        return ratio
    # And the mean, which a member moves by its own n-th part.
    offset = candidates - shadows.center
    along = offset @ shadows.precision @ (release.mean - shadows.center)
    shift = np.einsum("ij,jk,ik->i", offset, shadows.precision, offset) / n
    spread = np.sum((offset @ shadows.precision @ (shadows.means - shadows.center).T) ** 2, axis=1)
    variance = (spread + PRIOR_SHADOWS * shift) / (m + PRIOR_SHADOWS)
    return ratio + (along**2 - (along - shift) ** 2) / (2 * variance)


@pytest.mark.parametrize(
    ("mean", "eigenvalues", "method"),
    [  # every pair of two values
        ("not subtracted", False, "rank_one"),
        ("not subtracted", True, "first_order"),
        ("kept back", False, "first_order"),
        ("kept back", True, "rank_one"),
        ("released", False, "rank_one"),
        ("released", True, "first_order"),
    ],
)
def test_scores_are_what_a_decomposition_for_every_candidate_gives(method, eigenvalues, mean):
    members, candidates, _, shadows = setting(centred=mean != "not subtracted")
    release = release_of(members, 4, centred=mean != "not subtracted", eigenvalues=eigenvalues)
    if mean == "kept back":
        release = Release(release.components, release.eigenvalues, n_records=60)
    found = scores_of(shadows, release, candidates[50:70], method=method)
    np.testing.assert_allclose(found, brute_force(shadows, release, candidates[50:70], method), rtol=1e-7, atol=1e-9)


def test_offline_scores_are_deviations_from_the_shadows():
    members, candidates, _, shadows = setting()
    release = release_of(members, 4)
    found = scores_of(shadows, release, candidates[50:70], method="offline")
    np.testing.assert_allclose(found, brute_force(shadows, release, candidates[50:70], "offline"), rtol=1e-7, atol=1e-9)


def test_fewer_records_than_dimensions_are_no_exception():
    members, candidates, _, shadows = setting(n=12)
    assert shadows.components.shape[1:] == (12, D)
    release = release_of(members)  # eight directions beyond the rank among them
    found = scores_of(shadows, release, candidates[2:22])
    expected = brute_force(shadows, release, candidates[2:22], "rank_one")
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_the_first_order_is_exact_where_everything_is_released():
    members, candidates, _, shadows = setting()
    release = release_of(members, eigenvalues=True)
    some, lift = candidates[50:70], 60 * shadows.floor * np.eye(D)
    observed = np.log(np.einsum("ij,ij->i", some, np.linalg.solve(members.T @ members + lift, some.T).T))
    outside, inside = np.empty((2, len(shadows.components), len(some)))
    for i, (v, values) in enumerate(zip(shadows.components, shadows.eigenvalues, strict=True)):
        scatter = 60 * (v.T * values) @ v + lift
        for j, z in enumerate(some):
            outside[i, j] = np.log(z @ np.linalg.solve(scatter, z))
            inside[i, j] = np.log(z @ np.linalg.solve(scatter + np.outer(z, z), z))
    m = len(outside)
    variance = (m - 1) * outside.var(axis=0, ddof=1) + PRIOR_SHADOWS * np.median(outside.var(axis=0, ddof=1))
    variance /= m - 1 + PRIOR_SHADOWS
    expected = ((observed - outside.mean(axis=0)) ** 2 - (observed - inside.mean(axis=0)) ** 2) / (2 * variance)
    for method in ("first_order", "rank_one"):
        np.testing.assert_allclose(scores_of(shadows, release, some, method=method), expected, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS[1:])
def test_one_pass_gives_what_every_prefix_gives_alone(method):
    members, candidates, _, shadows = setting()
    release = release_of(members, 8, eigenvalues=True)
    prefixes = ratio_score_prefixes(shadows, release, candidates, method=method)
    assert prefixes.shape == (len(candidates), 8)
    alone = scores_of(shadows, release.leading(5), candidates, method=method)
    np.testing.assert_allclose(prefixes[:, 4], alone, rtol=1e-9, atol=1e-9)
    some = ratio_score_prefixes(shadows, release, candidates, ks=[8, 1], method=method)
    np.testing.assert_allclose(some, prefixes[:, [7, 0]], rtol=1e-9, atol=1e-9)


def test_of_gaussian_records_it_ranks_like_the_exact_ratio_of_two_wishart_laws():
    x = population(1700)
    x -= 0.2 * np.ones(D) @ np.linalg.qr(np.random.default_rng(99).normal(size=(D, D)))[0]  # centred population
    members, candidates, public = x[:100], x[:200], x[200:]
    shadows = fit_shadows(KEY, public, 100, n_shadows=64, n_pairs=0)
    release = release_of(members, eigenvalues=True)
    h = np.einsum("ij,ij->i", candidates, np.linalg.solve(members.T @ members, candidates.T).T)
    truth = np.linalg.inv(np.diag(1 / np.arange(1, D + 1)))
    basis = np.linalg.qr(np.random.default_rng(99).normal(size=(D, D)))[0]
    energy = np.einsum("ij,ij->i", (candidates @ basis.T) @ truth, candidates @ basis.T)
    exact = energy / 2 + (100 - D - 2) / 2 * np.log1p(-np.minimum(h, 1 - 1e-12))
    found = scores_of(shadows, release, candidates, method="first_order")
    # 64 shadows know a deviation to 9% and a mean to an eighth of it.
    assert spearmanr(found, exact).statistic > 0.95


@functools.cache
def digits(n=200):
    """Standardised digits: members, candidates, which are members, and shadows."""
    x = load_digits().data
    x = (x - x.mean(axis=0)) / np.where(x.std(axis=0) == 0, 1, x.std(axis=0))
    x = x[np.random.default_rng(0).permutation(len(x))]
    return x[:n], x[: 2 * n], np.repeat([1, 0], n), fit_shadows(KEY, x[2 * n :], n, n_shadows=24, n_pairs=1)


@pytest.mark.parametrize(
    ("k", "method", "least"),
    [*((10, method, 0.65) for method in METHODS), (40, "first_order", 0.84), (64, "rank_one", 0.88)],
)
def test_of_digits_it_beats_the_reconstruction_error_beyond_both_intervals(k, method, least):
    members, candidates, flags, shadows = digits()
    release = release_of(members, k)
    ratio = scores_of(shadows, release, candidates, method=method)
    error = -pca_scores(release.components, candidates)
    assert roc.auc(ratio, flags).low > roc.auc(error, flags).high
    found, base = (roc.tpr_at_fpr(s, flags, fpr=0.05) for s in (ratio, error))
    assert found.low > base.high
    assert roc.auc(ratio, flags).low > least


def test_few_dimensions_and_many_records_hide_everybody():
    x = population(3400, d=5)
    members, candidates, public = x[:1000], x[:2000], x[2000:]
    shadows = fit_shadows(KEY, public, 1000, n_shadows=16, n_pairs=0)
    scores = scores_of(shadows, release_of(members, 3), candidates, method="first_order")
    found = roc.auc(scores, np.repeat([1, 0], 1000))
    assert 0.48 < found.estimate < 0.58


@pytest.mark.parametrize("method", ["first_order", "offline", "gaussian"])
def test_a_released_mean_adds_to_the_evidence(method):
    x = population(1600)
    candidates, public = x[:1200].reshape(10, 120, D), x[1200:]
    shadows = fit_shadows(KEY, public, 60, centred=True, n_shadows=16, n_pairs=0)
    more, less = [], []
    for both in candidates:
        release = release_of(both[:60], 1, centred=True)
        more.append(scores_of(shadows, release, both, method=method))
        less.append(scores_of(shadows, Release(release.components, n_records=60), both, method=method))
    flags = np.tile(np.repeat([1, 0], 60), 10)
    gained = roc.auc(np.concatenate(more), flags), roc.auc(np.concatenate(less), flags)
    # Of Gaussian records the mean alone has d' = sqrt(d / N) = 0.58: from an AUC of 0.69 it makes about 0.74.
    assert gained[0].estimate > gained[1].estimate + 0.02


def test_eigenvalues_that_are_released_take_the_place_of_expected_ones():
    members, candidates, _, shadows = setting()
    known = release_of(members, 6, eigenvalues=True)
    hidden = Release(known.components, n_records=known.n_records)
    same = Release(known.components, shadows.eigenvalues.mean(axis=0)[:6], n_records=known.n_records)
    found = [scores_of(shadows, r, candidates, method="gaussian") for r in (known, hidden, same)]
    np.testing.assert_allclose(found[1], found[2], rtol=1e-12)
    assert np.abs(found[0] - found[1]).max() > 1e-3


def test_signs_of_components_and_order_of_candidates_do_not_matter():
    members, candidates, _, shadows = setting()
    release = release_of(members, 4)
    flipped = Release(release.components * np.array([1, -1, -1, 1])[:, None], n_records=60)
    found = scores_of(shadows, release, candidates[50:70])
    turned = scores_of(shadows, flipped, candidates[69:49:-1])
    np.testing.assert_allclose(turned, found[::-1], rtol=1e-8)


def test_a_shadow_depends_on_its_number_and_the_key_alone():
    public = population(100)
    few, many = (fit_shadows(KEY, public, 30, n_shadows=m, n_pairs=1) for m in (2, 4))
    np.testing.assert_allclose(few.eigenvalues, many.eigenvalues[:2], rtol=1e-12)
    np.testing.assert_allclose(few.base_squares, many.base_squares, rtol=1e-12)
    other = fit_shadows(jax.random.key(12), public, 30, n_shadows=2, n_pairs=1)
    assert np.abs(few.eigenvalues - other.eigenvalues).max() > 1e-3


def test_shadows_are_releases_of_public_records():
    public = population(40)
    shadows = fit_shadows(KEY, public, 40, centred=True, n_shadows=2, n_pairs=2)  # all of them
    release = release_of(public, centred=True, eigenvalues=True)
    np.testing.assert_allclose(shadows.eigenvalues, np.tile(release.eigenvalues, (2, 1)), rtol=1e-10)
    np.testing.assert_allclose(shadows.means, np.tile(release.mean, (2, 1)), atol=1e-12)
    overlap = np.abs(np.einsum("mrd,rd->mr", shadows.components, release.components))
    np.testing.assert_allclose(overlap, 1, rtol=1e-10)
    # One record less takes away n / (n - 1) of its squared distance from the mean of all.
    lost = 40 * release.eigenvalues.sum() - shadows.base_squares.sum(axis=1)
    distances = np.sum((public - release.mean) ** 2, axis=1) * 40 / 39
    assert np.abs(lost[:, None] - distances).min(axis=1).max() < 1e-9
    np.testing.assert_allclose(shadows.precision @ (np.cov(public.T, bias=True) + shadows.floor * np.eye(D)), np.eye(D),
                               atol=1e-8)  # fmt: skip


def planted(key, scatter):
    """Not noise: a matrix whose eigenvectors are the axes."""
    del key
    return jnp.diag(jnp.arange(scatter.shape[0], 0, -1.0) - 2)


def heavy(key, scatter):
    noise = jax.random.normal(key, scatter.shape)
    return scatter + 10 * (noise + noise.T)


def test_shadows_of_a_private_curator_have_the_curators_noise():
    shadows = fit_shadows(KEY, population(60), 30, noise=planted, n_shadows=2, n_pairs=0)
    np.testing.assert_allclose(np.abs(shadows.components), np.tile(np.eye(D), (2, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(shadows.eigenvalues[0], np.maximum(np.arange(D, 0, -1) - 2, 0), atol=1e-12)


def test_noise_that_drowns_the_data_leaves_nothing_to_find():
    x = population(400)
    shadows = fit_shadows(KEY, x[200:], 100, noise=heavy, n_shadows=8, n_pairs=0)
    assert np.abs(shadows.components[0] @ shadows.components[1].T).max() < 0.99  # each has its own draw
    noisy = np.asarray(heavy(jax.random.key(3), x[:100].T @ x[:100] / 100), np.float64)
    release = Release(np.linalg.eigh(noisy)[1].T[::-1], n_records=100)
    found = roc.auc(scores_of(shadows, release, x[:200], method="first_order"), np.repeat([1, 0], 100), level=0.999)
    assert found.low < 0.5 < found.high


def test_a_candidate_at_the_center_scores_0():
    members, _, _, shadows = setting()
    release = release_of(members, 4)
    for method in METHODS:
        assert scores_of(shadows, release, np.zeros((1, D)), method=method)[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"public": np.full((9, 3), np.nan)}, "public"),
        ({"public": np.zeros((1, 3))}, "at least 2 rows"),
        ({"public": np.zeros((9, 3))}, "variance"),
        ({"n_records": 1}, "n_records"),
        ({"n_records": 10}, "rows of public"),
        ({"n_shadows": 1}, "n_shadows"),
        ({"n_pairs": -1}, "n_pairs"),
        ({"n_pairs": 3, "n_shadows": 2}, "n_shadows = 2"),
        ({"floor": 0.0}, "floor"),
        ({"floor": np.nan}, "floor"),
        ({"noise": planted}, "n_pairs must be 0"),
        ({"key": 0}, "key"),
    ],
)
def test_shadows_refuse_what_makes_no_sense(change, message):
    arguments = {"key": KEY, "public": population(9, 3), "n_records": 5} | change
    with pytest.raises(ValueError, match=message):
        fit_shadows(arguments.pop("key"), arguments.pop("public"), arguments.pop("n_records"), **arguments)


def no_pairs(shadows):
    return Shadows(**{**vars(shadows), "bases": shadows.bases[:0]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "best"}, "method must be one of"),
        ({"candidates": np.full((2, D), np.inf)}, "candidates must be finite"),
        ({"candidates": np.zeros((2, 3))}, "20 columns"),
        ({"release": Release(np.eye(3))}, "d = 20"),
        ({"release": Release(np.eye(D), n_records=61)}, "n_records = 61"),
        ({"release": Release(np.eye(D), mean=np.zeros(D))}, "centred"),
        ({"shadows": no_pairs}, "n_pairs >= 1"),
    ],
)
def test_an_attack_refuses_what_does_not_fit(change, message):
    members, candidates, _, shadows = setting()
    arguments = {"shadows": shadows, "release": release_of(members, 2), "candidates": candidates} | change
    if callable(arguments["shadows"]):
        arguments["shadows"] = arguments["shadows"](shadows)
    with pytest.raises(ValueError, match=message):
        scores_of(**arguments)


@pytest.mark.parametrize("ks", [[0], [3], [1.5], []])
def test_prefixes_must_be_released(ks):
    members, candidates, _, shadows = setting()
    with pytest.raises(ValueError, match="ks"):
        ratio_score_prefixes(shadows, release_of(members, 2), candidates, ks=ks)


def test_shadows_that_are_not_held_are_drawn_again_to_the_same_bits(monkeypatch):
    members, candidates, _, _ = setting()
    public = population(520)[120:]
    release = release_of(members, 5, eigenvalues=True)
    held = fit_shadows(KEY, public, 60, n_shadows=3)
    monkeypatch.setattr(membership_shadows, "HELD_BYTES", held.components.nbytes - 1)
    drawn = fit_shadows(KEY, public, 60, n_shadows=3)
    assert isinstance(drawn.components, membership_shadows.Redrawn)
    assert drawn.components.shape == held.components.shape
    for name in ("eigenvalues", "means", "bases"):
        np.testing.assert_array_equal(getattr(drawn, name), getattr(held, name))
    np.testing.assert_array_equal(np.array(list(drawn.components)), held.components)
    np.testing.assert_array_equal(drawn.components[-1], held.components[-1])
    with pytest.raises(IndexError):
        drawn.components[3]
    for method in METHODS:
        found, wanted = (scores_of(shadows, release, candidates, method=method) for shadows in (drawn, held))
        np.testing.assert_array_equal(found, wanted)
    monkeypatch.undo()
    assert isinstance(fit_shadows(KEY, public, 60, n_shadows=3).components, np.ndarray)
