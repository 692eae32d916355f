"""Scores of candidates against scikit-learn and definitions, what proves what, and the informed game."""

import functools

import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD

from drjax.attacks import membership, roc
from drjax.attacks.membership import Release, informed_game, pca_score_prefixes, pca_scores, release_of
from drjax.core.statistics import UNKNOWN
from drjax.defenses.mechanisms import Gaussian, Laplace

KEY = jax.random.key(4)


@functools.cache
def digits():
    x = load_digits().data
    x = (x - x.mean(axis=0)) / np.where(x.std(axis=0) == 0, 1, x.std(axis=0))
    return x[np.random.default_rng(1).permutation(len(x))]


def points(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("k", [1, 5, 30, 45])
def test_scores_are_scikit_learns_reconstruction_errors(k):
    members, candidates = digits()[:150], digits()[100:200]
    pca = PCA(n_components=k, svd_solver="full").fit(members)
    expected = np.sum((candidates - pca.inverse_transform(pca.transform(candidates))) ** 2, axis=1)
    found = pca_scores(pca.components_, candidates, mean=pca.mean_)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-20)
    release = release_of(members, k, centred=True)
    np.testing.assert_allclose(release.mean, pca.mean_, atol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(release.components * pca.components_, axis=1)), 1, rtol=1e-9)


@pytest.mark.parametrize("released", [64, 40])
@pytest.mark.parametrize("centred", [False, True])
def test_one_pass_gives_the_error_of_every_k(released, centred):
    release = release_of(digits()[:150], released, centred=centred)
    candidates = digits()[100:200]
    found = pca_score_prefixes(release.components, candidates, mean=release.mean)
    assert found.shape == (100, released)
    for k in range(1, released + 1):
        expected = pca_scores(release.components[:k], candidates, mean=release.mean)
        # `expected` has the rounding of z, about 1e-15 in each coordinate, in what may be a thousandth of z.
        np.testing.assert_allclose(found[:, k - 1], expected, rtol=1e-10, atol=1e-25)
    assert np.all(np.diff(found, axis=1) <= 0)


def test_errors_near_the_last_component_keep_their_digits():
    # All but 1e-12 of the candidate lies in the first component: |z|^2 minus the squares would be rounding.
    basis = np.linalg.qr(points(6, 6))[0]
    tiny = np.array([1e6, 0, 0, 0, 3e-6, 4e-6])
    found = pca_score_prefixes(basis, (tiny @ basis)[None])[0]
    # The candidate's own rounding is 1e-16 of its length, 1e-10: a share of 3e-5 of the smallest coordinate.
    np.testing.assert_allclose(found[:5], [2.5e-11, 2.5e-11, 2.5e-11, 2.5e-11, 1.6e-11], rtol=1e-4)
    assert found[5] == 0
    assert pca_scores(basis, (tiny @ basis)[None])[0] < 1e-18


def test_all_components_leave_only_rounding_that_says_nothing():
    members, candidates = digits()[:150], digits()[:300]
    release = release_of(members)
    errors = pca_scores(release.components, candidates)
    assert errors.max() < 1e-24 * np.sum(candidates**2, axis=1).max()
    assert not pca_score_prefixes(release.components, candidates)[:, -1].any()
    found = roc.auc(-errors, np.repeat([1, 0], 150))
    assert found.low < 0.5 < found.high


@pytest.mark.parametrize(("n", "d", "k", "least", "most"), [(80, 200, 79, 0.9, 1.0), (2000, 6, 3, 0.47, 0.54)])
def test_few_records_of_many_features_are_found_and_many_of_few_are_not(n, d, k, least, most):
    x = points(2 * n, d) / np.sqrt(np.arange(1, d + 1))
    scores = -pca_score_prefixes(release_of(x[:n], k).components, x)
    found = roc.auc_columns(scores, np.repeat([1, 0], n))
    assert least <= found[-1] <= most
    assert found[-1] > found[0] - 0.02


def test_leverage_is_the_quadratic_form_of_the_bounding_matrix():
    members, candidates = points(50, 8) * np.arange(8, 0, -1), points(30, 8, seed=1)
    release = release_of(members, 5, eigenvalues=True)
    found = membership.leverages(release, candidates)
    for k in range(1, 6):
        v, values = release.components[:k], release.eigenvalues[:k]
        bound = 50 * (v.T @ np.diag(values) @ v + values[-1] * (np.eye(8) - v.T @ v))
        assert np.linalg.eigvalsh(bound - members.T @ members).min() > -1e-9
        expected = np.einsum("ij,ij->i", candidates, np.linalg.solve(bound, candidates.T).T)
        np.testing.assert_allclose(found[:, k - 1], expected, rtol=1e-9)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("n", "proven"), [(40, 0.95), (80, 0.5), (600, 0.0)])
def test_a_leverage_above_1_is_a_proof_that_no_member_gets(n, proven, centred):
    release = release_of(digits()[:n], eigenvalues=True, centred=centred)
    members, strangers = (membership.leverages(release, x) for x in (digits()[:n], digits()[n : n + 300]))
    assert members.max() < 1 + 1e-6
    assert np.mean(strangers[:, -1] > 1 + 1e-6) >= proven


FITS = {
    "randomised": PCA(9, svd_solver="randomized", random_state=0),
    "iterative": PCA(9, svd_solver="arpack", random_state=0),
    "in batches": IncrementalPCA(9, batch_size=25),
    "not centred": TruncatedSVD(9, random_state=0),
}


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("n", [50, 150])
def test_what_other_fits_release_proves_nothing_wrong(fit, n):
    x, model = digits()[: 2 * n], FITS[fit]
    scores = model.fit_transform(x[:n])
    # The variance of scores that were not centred is not that about 0.
    release = Release(model.components_, model.singular_values_**2 / n, getattr(model, "mean_", None), scores)
    assert membership.leverages(release, x[:n]).max() < 1 + 1e-6
    found = membership.embedding_distances(release, x)
    assert found[:n].max() < 0.1 * found[n:].min()
    assert roc.auc(-pca_scores(release.components, x, mean=release.mean), np.repeat([1, 0], n)).estimate > 0.5


@pytest.mark.parametrize("decimals", [None, 3])
def test_whitened_scores_are_no_proof_of_membership_unless_eigenvalues_undo_it(decimals):
    x, n = digits()[:400], 200
    model = PCA(9, whiten=True).fit(x[:n])
    scores = model.transform(x[:n])
    scores = scores if decimals is None else scores.round(decimals)
    bare = Release(model.components_, None, model.mean_, scores)
    assert membership.strongest_attack(bare).name == "ratio"
    assert membership.strongest_attack(bare, has_public=False).name == "reconstruction"
    with pytest.raises(ValueError, match="scores must not be whitened"):
        membership.embedding_distances(bare, x)
    # The eigenvalues of A, not the variances that whitening divided by, of n - 1 degrees of freedom.
    known = Release(model.components_, model.singular_values_**2 / n, model.mean_, scores)
    assert membership.strongest_attack(known).name == "embedding"
    found = membership.embedding_distances(known, x)
    assert found[:n].max() < 0.1 * found[n:].min()
    # One column is no more whitened than records scaled beforehand.
    assert membership.strongest_attack(bare.leading(1)).name == "embedding"


def test_members_are_rows_of_the_embedding():
    release = release_of(digits()[:100], 10, centred=True, scores=True)
    found = membership.embedding_distances(release, digits()[:200])
    assert found[:100].max() < 1e-6
    assert found[100:].min() > 0.1
    few = membership.embedding_distances(release.leading(2), digits()[:200])
    assert few[:100].max() < 1e-6
    assert roc.auc(-few, np.repeat([1, 0], 100)).estimate == 1


SHADOWS = functools.cache(lambda **kwargs: membership.fit_shadows(KEY, digits()[400:], 100, n_shadows=4, **kwargs))


@pytest.mark.parametrize(
    ("parts", "fit", "name"),
    [
        ({"scores": True}, {"n_pairs": 0}, "embedding"),
        ({"eigenvalues": True}, {"n_pairs": 0}, "ratio"),
        ({}, {"n_pairs": 1}, "ratio"),
        ({"centred": True}, {"n_pairs": 0, "centred": True}, "ratio"),
        ({"eigenvalues": True}, None, "leverage"),
        ({}, None, "reconstruction"),
    ],
)
def test_the_strongest_attack_is_the_one_that_runs(parts, fit, name):
    members, candidates = digits()[:100], digits()[:200]
    release = release_of(members, 3, **parts)
    shadows = None if fit is None else SHADOWS(**fit)
    attack = membership.strongest_attack(release, has_public=fit is not None)
    assert attack.name == name
    assert attack.is_exact == (name == "embedding")
    found = membership.attack_scores(release, candidates, shadows=shadows)
    expected = {
        "embedding": lambda: -membership.embedding_distances(release, candidates),
        "leverage": lambda: -membership.leverages(release, candidates)[:, -1],
        "reconstruction": lambda: -pca_scores(release.components, candidates),
        "ratio": lambda: membership.ratio_scores(
            shadows, release, candidates, method="rank_one" if fit["n_pairs"] else "first_order"
        ),
    }[name]()
    np.testing.assert_array_equal(found, expected)
    assert membership.strongest_attack(release, knows_others=True).name == "informed"


def test_a_member_of_any_party_is_found_by_adding_up_likelihoods():
    ratios = np.array([[0.0, 3.0, -800.0], [0.0, -1.0, 700.0]])
    found = membership.any_party(ratios)
    np.testing.assert_allclose(found, [0, np.log((np.exp(3) + np.exp(-1)) / 2), 700 - np.log(2)])
    np.testing.assert_array_equal(membership.any_party(ratios[::-1]), found)
    # Two parties of 100 records each, intercepted both: finding whose record it is costs little.
    shadows = SHADOWS(n_pairs=0)
    releases = [release_of(digits()[rows], 20) for rows in (slice(100), slice(100, 200))]
    each = np.array([membership.ratio_scores(shadows, r, digits()[:400], method="first_order") for r in releases])
    flags = np.repeat([1, 0], 200)
    assert roc.auc(membership.any_party(each), flags).low > 0.7
    np.testing.assert_allclose(membership.any_party(each), logsumexp(each, axis=0, b=0.5))


# ---- the informed game


def pairs_of_digits(m, n=60):
    return digits()[: n - 1], digits()[n : n + 2 * m].reshape(m, 2, 64)


def noise(kind, deviation):
    scale = deviation if kind is Gaussian else deviation / np.sqrt(2)
    return kind(neighbouring="replace_one", sensitivity=1.0, scale=scale)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(
    ("published", "k"), [("components", 1), ("components", 64), ("eigenvalues", 5), ("scatter", None)]
)
def test_without_noise_who_knows_all_but_one_always_wins(published, k, centred):
    game = informed_game(KEY, *pairs_of_digits(40), n_components=k, published=published, centred=centred)
    assert game.accuracy.estimate == game.auc.estimate == 1
    np.testing.assert_allclose(game.scores, 2.0 * game.bits - 1, atol=1e-9)
    assert set(game.bits) == {0, 1}
    assert game.tpr[0.01] is UNKNOWN  # of about 20 games nobody can tell


def test_the_release_of_the_game_is_the_pca_of_its_records():
    known, pairs = pairs_of_digits(4)
    game = informed_game(KEY, known, pairs, n_components=3, published="eigenvalues", centred=True)
    # The wrong candidate's misfit is what the true release says of the wrong records; the right one's is 0.
    for pair, bit in zip(pairs, game.bits, strict=True):
        right, wrong = (np.vstack([known, pair[b]]) for b in (bit, 1 - bit))
        release = release_of(right, 3, centred=True, eigenvalues=True)
        for x, is_right in ((right, True), (wrong, False)):
            scatter = np.cov(x.T, bias=True)
            rest = scatter @ release.components.T - release.components.T * release.eigenvalues
            assert (np.abs(rest).max() < 1e-12) == is_right


def test_the_same_candidate_twice_cannot_be_told():
    known, pairs = pairs_of_digits(30)
    game = informed_game(KEY, known, pairs[:, [0, 0]])
    assert not game.scores.any()
    assert not game.guesses.any()
    assert game.auc.estimate == 0.5


@pytest.mark.parametrize("deviation", [0.05, 0.2, 0.6])
def test_of_a_noisy_matrix_exactly_as_much_is_learnt_as_noise_allows(deviation):
    known, pairs = pairs_of_digits(300, n=200)
    rows, columns = np.triu_indices(64)
    apart = np.einsum("mbi,mbj->mbij", pairs, pairs)[:, :, rows, columns] / 200
    distance = np.linalg.norm(apart[:, 1] - apart[:, 0], axis=1)
    best = norm.cdf(distance / deviation / 2).mean()
    game = informed_game(KEY, known, pairs, published="scatter", mechanism=noise(Gaussian, deviation), level=0.9999)
    assert game.accuracy.low < best < game.accuracy.high
    # The score is the log-likelihood ratio: its mean is half its squared signal.
    signal = (distance / deviation) ** 2
    error = (game.scores - (2.0 * game.bits - 1) * signal / 2) / np.sqrt(signal)
    assert abs(error.mean()) < 4 / np.sqrt(300)
    assert error.std() == pytest.approx(1, abs=4 / np.sqrt(600))


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
def test_eigenvectors_of_a_noisy_matrix_say_less_than_the_matrix_and_still_something(kind):
    known, pairs = pairs_of_digits(300, n=200)
    play = functools.partial(informed_game, KEY, known, pairs, mechanism=noise(kind, 0.15))
    matrix, ten = play(published="scatter"), play(n_components=10)
    assert matrix.accuracy.estimate > ten.accuracy.estimate
    assert ten.accuracy.low > 0.55
    assert ten.auc.low > 0.6
    # Eigenvalues and all eigenvectors are the matrix.
    np.testing.assert_allclose(play(published="eigenvalues").scores, matrix.scores, rtol=1e-9)


def test_noisy_eigenvalues_tell_candidates_of_one_direction_apart():
    known, pairs = np.diag([4.0, 3.0, 2.0]), np.array([[[1.0, 0, 0], [2.0, 0, 0]]] * 20)
    play = functools.partial(informed_game, KEY, known, pairs, n_components=2, mechanism=noise(Gaussian, 0.02))
    assert play(published="eigenvalues", centred=False).accuracy.estimate == 1


def test_noise_that_drowns_everything_leaves_guessing():
    known, pairs = pairs_of_digits(300, n=200)
    game = informed_game(KEY, known, pairs, n_components=10, mechanism=noise(Gaussian, 50.0))
    assert game.accuracy.low < 0.5 < game.accuracy.high
    assert game.auc.low < 0.5 < game.auc.high


def test_a_game_depends_on_its_own_pair_alone():
    known, pairs = pairs_of_digits(12)
    play = functools.partial(informed_game, KEY, known, mechanism=noise(Gaussian, 0.1), n_components=5, batch_size=1)
    few, many = play(pairs[:4]), play(pairs)
    assert few.bits.tolist() == many.bits[:4].tolist()
    np.testing.assert_allclose(few.scores, many.scores[:4], rtol=1e-8)
    one = play(pairs[:1])
    assert one.auc is UNKNOWN


# ---- what is refused

EYE = np.eye(4)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"components": np.ones((2, 4))}, "orthonormal"),
        ({"components": 1.1 * EYE}, "orthonormal"),
        ({"components": EYE[:, :2]}, "rows k of components"),
        ({"components": np.full((2, 4), np.nan)}, "components must be finite"),
        ({"components": EYE[0]}, "components must be a non-empty"),
        ({"components": np.full((4, 4), "a")}, "components must be numeric"),
        ({"eigenvalues": np.ones(3)}, r"shape \(4,\)"),
        ({"eigenvalues": np.array([4.0, 3, 2, -1])}, "eigenvalues"),
        ({"eigenvalues": np.array([1.0, 2, 3, 4])}, "not increase"),
        ({"eigenvalues": np.array([1.0, np.nan, 0, 0])}, "eigenvalues must be finite"),
        ({"mean": np.zeros(5)}, r"shape \(4,\)"),
        ({"mean": np.full(4, np.inf)}, "mean must be finite"),
        ({"scores": np.zeros((9, 3))}, "4 columns"),
        ({"scores": np.zeros((9, 4)), "n_records": 8}, "n_records = 8"),
        ({"n_records": 0}, "n_records"),
        ({"n_records": 2.5}, "n_records"),
    ],
)
def test_a_release_that_cannot_be_is_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        Release(**({"components": EYE} | parts))


def test_a_release_knows_its_parts_and_prefixes():
    release = Release(EYE.astype(np.float32), np.array([3, 2, 1, 0]), np.zeros(4), np.zeros((9, 4)))
    assert release.n_records == 9
    first = release.leading(2)
    assert (first.components.shape, first.eigenvalues.tolist(), first.scores.shape) == ((2, 4), [3, 2], (9, 2))
    for k in (0, 5):
        with pytest.raises(ValueError, match="k must be"):
            release.leading(k)


def test_components_rounded_to_four_decimals_are_still_components():
    components = release_of(digits()[:100], 20).components
    np.testing.assert_allclose(
        pca_scores(components.round(4), digits()[:50]), pca_scores(components, digits()[:50]), rtol=0.01
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pca_scores(EYE, np.zeros((2, 3))), "candidates must have 4 columns"),
        (lambda: pca_scores(EYE, np.full((1, 4), np.nan)), "candidates must be finite"),
        (lambda: pca_scores(EYE, np.zeros(4)), "candidates must be a non-empty"),
        (lambda: pca_scores(EYE, np.zeros((2, 4)), mean=np.zeros(3)), r"mean must be numeric of shape \(4,\)"),
        (lambda: pca_score_prefixes(2 * EYE, np.zeros((2, 4))), "orthonormal"),
        (lambda: membership.leverages(Release(EYE, n_records=3), EYE), "eigenvalues"),
        (lambda: membership.leverages(Release(EYE, np.ones(4)), EYE), "n_records"),
        (lambda: membership.embedding_distances(Release(EYE), EYE), "scores"),
        (lambda: release_of(EYE, 5), "n_components"),
        (lambda: release_of(EYE, 0), "n_components"),
        (lambda: release_of(np.zeros(3)), "records"),
        (lambda: membership.any_party(np.zeros(3)), "log_ratios"),
        (lambda: membership.any_party(np.array([[np.nan]])), "log_ratios"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": 1}, "key"),
        ({"known": np.full((3, 4), np.nan)}, "known must be finite"),
        ({"pairs": np.zeros((2, 3, 4))}, r"pairs must have shape \(m, 2, 4\)"),
        ({"pairs": np.zeros((0, 2, 4))}, "m >= 1"),
        ({"pairs": np.full((1, 2, 4), np.inf)}, "pairs must be finite"),
        ({"n_components": 5}, "n_components"),
        ({"n_components": 0}, "n_components"),
        ({"published": "scores"}, "published must be one of"),
        ({"mechanism": 0.1}, "mechanism"),
        ({"level": 1.0}, "level"),
    ],
)
def test_a_game_refuses_what_makes_no_sense(change, message):
    arguments = {"key": KEY, "known": points(3, 4), "pairs": points(4, 4).reshape(2, 2, 4)} | change
    with pytest.raises(ValueError, match=message):
        informed_game(arguments.pop("key"), arguments.pop("known"), arguments.pop("pairs"), **arguments)
