"""What is believed, what is said of it, and when releases made for comparison decide."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.manifold import MDS

import drjax
from drjax.attacks import recognition
from drjax.attacks.recognition import checked, recognise
from drjax.attacks.recognition.belief import Candidate, believed
from drjax.attacks.recognition.mds import MDSFamily
from drjax.attacks.recognition.stand_ins import confirmed
from drjax.dr import FirstPCA, MinMax, Pipeline, Standardise

X = load_breast_cancer().data[:60]
KEY = jax.random.key(0)


def candidate(misfit: float, *, before=(), method=None, family="mds", limit=0.01, metric="euclidean") -> Candidate:
    own = method or drjax.MDS()
    return Candidate(family, Pipeline(before=before, method=own) if before else own, misfit, limit, metric)


@pytest.fixture(scope="module")
def scaled_map() -> np.ndarray:
    x = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    return MDS(random_state=0, n_init=1, init="classical_mds").fit_transform(x)


def test_the_least_misfit_in_units_of_its_limit_is_believed():
    isomap = candidate(0.02, family="isomap", method=drjax.Isomap(), limit=0.1)
    belief = believed([candidate(0.005), isomap, candidate(0.5, before=(Standardise(),))])
    assert belief.method == drjax.Isomap()
    assert belief.runner_up.family == "mds"
    assert belief.margin == pytest.approx(2.5)


def test_nothing_is_believed_beyond_the_limit():
    belief = believed([candidate(0.011), candidate(0.5, before=(Standardise(),))])
    assert belief.method is None
    assert belief.title == "none of these"
    assert "Nothing fits" in belief.in_words()


def test_hypotheses_of_nearly_one_misfit_are_not_told_apart():
    belief = believed(
        [candidate(0.00100), candidate(0.00101, before=(Standardise(),)), candidate(0.004, before=(MinMax(),))]
    )
    assert [one.before for one in belief.tied] == [(Standardise(),)]
    assert "standardised records" in belief.undetermined[-1]
    assert belief.runner_up.before == (MinMax(),)


def test_first_components_that_do_not_show_are_a_step_too_many():
    first = FirstPCA(n_components=9)
    on_nine = candidate(0.00099, before=(Standardise(), first))
    belief = believed([on_nine, candidate(0.001, before=(Standardise(),)), candidate(0.0012)])
    assert belief.best.before == (Standardise(),)
    assert on_nine in belief.tied
    # Where they show, and where they are whitened, which is more than a step left out, they stay.
    assert believed([on_nine, candidate(0.002, before=(Standardise(),))]).best == on_nine
    white = candidate(0.00099, before=(Standardise(), FirstPCA(n_components=9, whiten=True)))
    assert believed([white, candidate(0.001, before=(Standardise(),))]).best == white


def test_no_hypothesis_is_no_belief():
    assert believed([candidate(np.inf)]).method is None


def test_inputs_that_make_the_same_map_are_named_together(scaled_map):
    x = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    # The target is neither the least nor the greatest of any feature, so that the known records show the scale.
    target = next(i for i in range(60) if ((x[i] > 0) & (x[i] < 1)).all())
    belief = recognise(KEY, np.delete(x, target, axis=0), scaled_map, target_row=target)
    assert belief.method == drjax.MDS()
    assert "records scaled to [0, 1], which makes the same map" in belief.in_words()


class _Measured(MDSFamily):
    """Releases made for comparison have this misfit."""

    def __init__(self, misfit: float):
        self.value = misfit

    def misfit(self, release, candidate):
        assert release.coords.shape == (57, 2)  # of 59 known records 3 take the target's place in turn
        assert candidate.family == self.name
        return self.value


def test_a_loose_fit_is_one_where_releases_made_for_it_fit_no_better(scaled_map):
    release, doubtful = checked(X[1:], scaled_map), candidate(0.015, before=(MinMax(),))
    assert confirmed(KEY, release, doubtful, _Measured(0.0105)).fits
    assert not confirmed(KEY, release, doubtful, _Measured(0.009)).fits


def test_what_fits_not_at_all_is_not_saved_by_releases_made_for_it(scaled_map):
    hopeless = candidate(0.025, before=(MinMax(),))
    assert not confirmed(KEY, checked(X[1:], scaled_map), hopeless, _Measured(1.0)).fits


def test_misfits_of_a_map_can_be_asked_for_again(scaled_map):
    release, family = checked(X[1:], scaled_map), MDSFamily()
    best = min(family.candidates(release), key=lambda one: one.misfit)
    assert family.misfit(release, best) == pytest.approx(best.misfit)


def test_decimals_are_read_off_the_map(scaled_map):
    assert checked(X[1:], np.round(scaled_map, 2)).rounding == pytest.approx(0.005)
    assert checked(X[1:], np.round(scaled_map.astype(np.float32), 1)).rounding == pytest.approx(0.05)
    assert checked(X[1:], scaled_map).rounding == 0
    assert checked(X[1:], scaled_map, decimals=0).rounding == pytest.approx(0.5)


def test_what_releases_made_for_the_best_show_holds_for_its_family(monkeypatch, scaled_map):
    class Family(_Measured):
        def candidates(self, release):
            assert release.known.shape == (59, 30)
            return [candidate(0.0150, before=(MinMax(),)), candidate(0.0151, before=(Standardise(),))]

    monkeypatch.setattr(recognition, "FAMILIES", (Family(0.02),))
    belief = recognise(KEY, X[1:], scaled_map)
    assert belief.best.before == (MinMax(),)
    assert [one.before for one in belief.tied] == [(Standardise(),)]
