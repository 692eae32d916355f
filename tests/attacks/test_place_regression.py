"""Records of maps that no known method made: errors and intervals are held against the truth, at many targets."""

import jax
import numpy as np
import pytest
from sklearn import datasets, decomposition, preprocessing
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

from drjax.attacks import unrecognised
from drjax.attacks.attack import EmbeddingThreat, EveryRecord, KnownFeatures
from drjax.attacks.case import case_of, of_row
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.recognition import Belief
from drjax.attacks.reconstruction.place_regression import PlaceRegression, reconstruct_by_place
from drjax.core.types import Status
from drjax.dr import PCA, Unnamed

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
ATTACK = PlaceRegression()


def records(name, n):
    x = getattr(datasets, f"load_{name}")().data
    return np.random.default_rng(1).permutation(x)[:n]


def threat_of(x, coords, row=0, **options):
    known = np.delete(x, row, axis=0)
    release = np.concatenate([coords[row : row + 1], np.delete(coords, row, axis=0)])
    options = {"method": Unnamed(n_components=coords.shape[1]), "shadows": None, **options}
    return EmbeddingThreat(known=known, coords=release[None], **options)


def factor_scores(x, k=3):
    return make_pipeline(preprocessing.StandardScaler(), decomposition.FactorAnalysis(k)).fit_transform(x)


def test_a_map_that_a_matrix_makes_of_the_records_is_undone():
    x = records("wine", 100)
    coords = (x - x.mean(axis=0)) @ RNG.normal(size=(13, 15)) + 7
    found = ATTACK.run(KEY, threat_of(x, coords))
    assert found.status[0] == Status.OK
    np.testing.assert_allclose(found.x[0], x[0], atol=1e-3 * x.std(axis=0).min())
    assert (found.feature_mse[0] < 1e-6 * x.var(axis=0)).all()


def test_of_a_linear_map_it_errs_as_scikit_learn_s_regression_does_where_that_is_right():
    # Gaussian records and a linear map: nothing does better than least squares.
    x = RNG.normal(size=(1001, 6)) @ RNG.normal(size=(6, 6))
    coords = x @ RNG.normal(size=(6, 2))
    own = reconstruct_by_place(threat_of(x, coords), coords)
    fitted = LinearRegression().fit(coords[1:], x[1:])
    best = np.mean((fitted.predict(coords[1:]) - x[1:]) ** 2)
    assert np.mean((own.known.x - x[1:]) ** 2) == pytest.approx(best, rel=0.02)
    np.testing.assert_allclose(own.found.x, fitted.predict(coords[:1]), atol=0.1 * x.std())


def test_nothing_of_a_record_enters_its_own_reconstruction():
    x = records("wine", 80)
    every = EveryRecord(method=Unnamed(), x=x, coords=factor_scores(x, 2), rows=np.array([4, 9]), stand_ins=None)
    found = ATTACK.run_each(KEY, every).x
    other = x.copy()
    other[4] = x[4] * 3
    again = ATTACK.run_each(
        KEY, EveryRecord(method=Unnamed(), x=other, coords=every.coords, rows=every.rows, stand_ins=None)
    ).x
    np.testing.assert_array_equal(found[0], again[0])
    assert np.mean(((found - x[[4, 9]]) / x.std(axis=0)) ** 2) < 1


def test_errors_and_intervals_are_those_of_the_truth():
    x = records("wine", 150)
    coords, unit = factor_scores(x), x.std(axis=0)
    own = reconstruct_by_place(threat_of(x, coords), coords)
    expected = np.mean(own.known.feature_mse / unit**2)
    assert np.mean(((own.known.x - x[1:]) / unit) ** 2) == pytest.approx(expected, rel=0.1)
    held, errors = [], []
    for row in range(0, 150, 12):
        answer = attack_answer(x, coords, row)
        low, high = answer.found.interval.T
        held.append(np.mean((low <= x[row]) & (x[row] <= high)))
        errors.append(np.mean(((answer.found.x - x[row]) / unit) ** 2))
    assert 0.85 < np.mean(held) < 0.98
    assert np.mean(errors) < 1.3 * expected


def attack_answer(x, coords, row):
    given = case_of(np.delete(x, row, axis=0), coords, (row,), None, None, None, None, ())
    belief = Belief(None, "none of these", "", None, np.inf, (), (), ("Nothing fits.",))
    return unrecognised.answered(KEY, belief, of_row(given, (row,), 0, progress=False), row, shuffled=False)


def test_a_map_that_tells_nothing_is_misfit():
    x = records("wine", 80)
    threat = threat_of(x, RNG.normal(size=(80, 2)))
    found = ATTACK.run(KEY, threat)
    assert found.status[0] == Status.MISFIT
    np.testing.assert_allclose(found.x[0], x[1:].mean(axis=0))
    np.testing.assert_allclose(found.feature_mse[0], x[1:].var(axis=0))


def test_known_features_are_kept_and_help_with_the_others():
    x = records("breast_cancer", 120)
    coords, unit = factor_scores(x), x.std(axis=0)
    which = np.zeros(30, bool)
    which[[0, 4, 9]] = True
    without, told = [], []
    for row in range(0, 120, 12):
        features = KnownFeatures(which, x[row : row + 1, which])
        found = ATTACK.run(KEY, threat_of(x, coords, row, features=features))
        np.testing.assert_array_equal(found.x[0, which], x[row, which])
        alone = ATTACK.run(KEY, threat_of(x, coords, row))
        told.append(np.mean((((found.x[0] - x[row]) / unit) ** 2)[~which]))
        without.append(np.mean((((alone.x[0] - x[row]) / unit) ** 2)[~which]))
    assert np.mean(told) < 0.9 * np.mean(without)


def test_releases_that_are_not_finite_say_so():
    x = records("wine", 80)
    coords = factor_scores(x)
    coords[3] = np.nan
    found = ATTACK.run(KEY, threat_of(x, coords))
    assert found.status[0] == Status.NON_FINITE
    assert np.isnan(found.x).all()


def test_it_is_of_maps_whose_method_is_not_known_and_of_enough_records():
    x = records("wine", 80)
    coords = factor_scores(x)
    assert ATTACK.fits(threat_of(x, coords)) is None
    assert ATTACK.fits(threat_of(x[:30], coords[:30])) == "needs at least 30 known records"
    assert "not known" in ATTACK.fits(threat_of(x, coords, method=PCA(n_components=3)))


def test_a_map_by_another_library_is_answered_from_its_places():
    x = records("breast_cancer", 70)
    answer = attack_embedding(KEY, None, x[1:], factor_scores(x, 6))
    assert answer.belief.method is None
    assert answer.attack.name == "regression"
    assert answer.verdict == "partly"
    words = "\n".join(answer.in_words())
    assert "Nothing fits" in words
    assert "69 known records, each predicted from others" in words
    assert "whoever knows may take back far more" in words
    assert answer.facts()["intervals"]["practice_records"] == 69
    assert "was asked for" not in words


def test_another_attack_that_was_asked_for_is_not_run_and_the_answer_says_so():
    x = records("wine", 40)
    noise = RNG.normal(size=(40, 2))
    answer = attack_embedding(KEY, None, x[1:], noise, attack="closed-form")
    assert answer.status & Status.MISFIT
    assert "“Closed form with prior” was asked for; where nothing fits it is not run." in answer.in_words()
    with pytest.raises(ValueError, match="attack must be one of"):
        attack_embedding(KEY, None, x[1:], noise, attack="none such")
