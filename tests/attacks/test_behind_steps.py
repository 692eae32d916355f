"""The target of scikit-learn's PCA behind its scalers, solved for with the scaler recomputed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import datasets, decomposition, preprocessing
from sklearn.pipeline import make_pipeline

import drjax
from drjax import dr
from drjax.attacks.attack import EmbeddingThreat
from drjax.attacks.intervals import with_intervals
from drjax.attacks.reconstruction import behind_steps
from drjax.attacks.reconstruction.eigen_equations import Eigen, fold
from drjax.attacks.reconstruction.eigen_noise import LEAST, of_scores
from drjax.attacks.registry import ATTACKS, answer
from drjax.core.types import Status

KEY = jax.random.key(0)
ATTACK = ATTACKS["embedding"]["behind-steps"]
N, M = 100, 4
LOG = preprocessing.FunctionTransformer(np.log1p)


@pytest.fixture(scope="module")
def table():
    x = datasets.load_wine().data
    return x[np.random.default_rng(3).permutation(len(x))]


def attacked(table, peer, steps, *, after=(), k=2, precision=None, method=None):
    """Finding and truth for M targets beside N - 1 known records."""
    known, targets = table[: N - 1], table[N - 1 : N - 1 + M]
    coords = np.stack([peer.fit_transform(np.vstack([target[None], known])) for target in targets])
    if precision is not None:
        coords = np.round(coords, precision)
    threat = EmbeddingThreat(
        method=method or dr.Pipeline(before=steps, method=drjax.PCA(n_components=k), after=after),
        known=known,
        coords=coords,
        shadows=pytest.fail,
        decimals=precision,
    )
    assert ATTACK.fits(threat) is None
    return answer(ATTACK, KEY, threat), targets, known


def ratios(found, targets, known):
    """Squared error over that of the mean record, in units of the features, for each target."""
    spread = known.std(axis=0)
    error, mean = (found.x - targets) / spread, (known.mean(axis=0) - targets) / spread
    return (error**2).mean(axis=1) / (mean**2).mean(axis=1)


@pytest.mark.parametrize(
    ("peer", "steps", "after"),
    [
        (make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2)), (dr.Standardise(),), ()),
        (
            make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2, whiten=True)),
            (dr.Standardise(),),
            (dr.UnitVariance(),),
        ),
        (make_pipeline(preprocessing.MinMaxScaler(), decomposition.PCA(2)), (dr.MinMax(),), ()),
        # Folded, as 100 records of 13 features are.
        (make_pipeline(LOG, decomposition.PCA(2)), (dr.Log(),), ()),
        (make_pipeline(LOG, preprocessing.StandardScaler(), decomposition.PCA(2)), (dr.Log(), dr.Standardise()), ()),
    ],
    ids=["standard", "standard, whitened", "min-max", "log", "log, standard"],
)
def test_the_record_behind_a_scaler_comes_out_exactly(table, peer, steps, after):
    found, targets, known = attacked(table, peer, steps, after=after)
    assert (found.status == Status.OK).all()
    assert ratios(found, targets, known).max() < 1e-8
    assert (found.expected_mse < 1e-3 * known.var()).all()


@pytest.mark.parametrize(
    ("peer", "steps"),
    [(None, ()), (preprocessing.MinMaxScaler(), (dr.MinMax(),)), (preprocessing.StandardScaler(), (dr.Standardise(),))],
    ids=["raw", "min-max", "standard"],
)
@pytest.mark.parametrize("solver", ["arpack", "randomized"])
def test_records_that_were_not_centred_come_out_exactly(table, peer, steps, solver):
    svd = decomposition.TruncatedSVD(2, algorithm=solver, random_state=0)
    peer = svd if peer is None else make_pipeline(peer, svd)
    method = dr.Pipeline(before=steps, method=drjax.TruncatedSVD())
    found, targets, known = attacked(table, peer, steps, method=method)
    assert (found.status == Status.OK).all()
    # Of raw records the noise that equations are weighed by leaves features a millionth of the largest score open.
    assert ratios(found, targets, known).max() < (1e-8 if steps else 0.1)


@pytest.mark.parametrize("solver", ["arpack", "randomized"])
def test_truncated_svd_has_a_closed_form_and_pca_is_not_taken_for_it(table, solver):
    known, target = table[: N - 1], table[N]
    peer = decomposition.TruncatedSVD(2, algorithm=solver, random_state=0)
    records = np.vstack([target[None], known])
    threat = EmbeddingThreat(
        method=drjax.TruncatedSVD(), known=known, coords=peer.fit_transform(records)[None], shadows=pytest.fail
    )
    found = answer(ATTACKS["embedding"]["closed-form-known"], KEY, threat)
    assert found.status[0] == Status.OK
    assert ratios(found, target[None], known).max() < 1e-12
    centred = EmbeddingThreat(
        method=drjax.TruncatedSVD(),
        known=known,
        coords=decomposition.PCA(2).fit_transform(records)[None],
        shadows=pytest.fail,
    )
    refused = answer(ATTACKS["embedding"]["closed-form-known"], KEY, centred)
    assert refused.status[0] & Status.MISFIT
    np.testing.assert_allclose(refused.x[0], known.mean(axis=0))


def test_directions_behind_truncated_svd_come_out_to_rounding(table):
    peer = make_pipeline(preprocessing.Normalizer(), decomposition.TruncatedSVD(2, algorithm="arpack"))
    method = dr.Pipeline(before=(dr.UnitRows(),), method=drjax.TruncatedSVD())
    found, targets, _ = attacked(table, peer, (dr.UnitRows(),), method=method)
    cosine = (found.x * targets).sum(axis=1) / np.linalg.norm(found.x, axis=1) / np.linalg.norm(targets, axis=1)
    assert (cosine > 1 - 1e-12).all()


def test_centred_scores_of_truncated_svd_are_left_alone():
    for after, is_taken in (((), True), ((dr.Centre(),), False)):
        method = dr.Pipeline(before=(dr.MinMax(),), method=drjax.TruncatedSVD(), after=after)
        assert (ATTACK.suits(method, seed_known=False) is None) == is_taken


def test_three_decimals_leave_what_is_expected(table):
    peer = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2))
    found, targets, known = attacked(table, peer, (dr.Standardise(),), after=(dr.Round(decimals=3),), precision=3)
    own = ratios(found, targets, known)
    usable = found.status == Status.OK
    assert usable.sum() >= M - 1
    assert own[usable].max() < 0.1
    error = ((found.x - targets) ** 2).mean(axis=1)
    assert (error[usable] < 10 * found.expected_mse[usable]).all()


def test_unit_rows_show_a_direction_and_others_its_size(table):
    peer = make_pipeline(preprocessing.Normalizer(), decomposition.PCA(2))
    found, targets, known = attacked(table, peer, (dr.UnitRows(),))
    cosine = (found.x * targets).sum(axis=1) / np.linalg.norm(found.x, axis=1) / np.linalg.norm(targets, axis=1)
    assert (cosine > 1 - 1e-8).all()
    assert ratios(found, targets, known).max() < 0.5
    error = ((found.x - targets) ** 2).mean()
    assert 0.05 < error / found.expected_mse.mean() < 20


def test_scores_behind_another_scaler_are_refused_and_the_answer_is_the_mean(table):
    peer = make_pipeline(preprocessing.MinMaxScaler(), decomposition.PCA(2))
    found, _, known = attacked(table, peer, (dr.Standardise(),))
    assert (found.status == Status.MISFIT).all()
    np.testing.assert_allclose(found.x, np.tile(known.mean(axis=0), (M, 1)), rtol=1e-9)


def test_steps_on_single_records_behind_a_scaler_are_left_alone():
    method = dr.Pipeline(before=(dr.MinMax(), dr.Log()), method=drjax.PCA())
    assert (
        ATTACK.suits(method, seed_known=False)
        == "is of PCA and truncated SVD behind steps on single records and scalers"
    )


def test_methods_that_are_no_scores_of_pca_are_left_alone():
    for method in (drjax.TSNE(), dr.Pipeline(before=(dr.Standardise(),), method=drjax.MDS())):
        assert ATTACK.suits(method, seed_known=False) is not None
    mixing = dr.Pipeline(before=(dr.Standardise(), dr.UnitRows()), method=drjax.PCA())
    assert ATTACK.suits(mixing, seed_known=False) is not None


@pytest.mark.parametrize("form", ["scores", "directions", "span"])
def test_the_derivative_of_the_equations_is_that_of_differences(table, form):
    known = table[:12, :4]
    with jax.enable_x64(True):
        release = jnp.asarray(np.random.default_rng(0).normal(size=(13, 2)))
        equations = Eigen(
            steps=(dr.Standardise(),),
            known=jnp.asarray(known),
            record=jnp.asarray(known[0]),
            where=jnp.arange(4),
            new=jnp.zeros(13),
            form=form,
        )
        u = jnp.append(table[20, :4], 0.0)
        residual, slope = equations.linearise(release, u)
        step = 1e-5 * known.std(axis=0)
        for j in range(4):
            ahead, behind = (np.asarray(equations.residual(release, u + s * step[j] * np.eye(5)[j])) for s in (1, -1))
            np.testing.assert_allclose(slope[:, j], (ahead - behind) / (2 * step[j]), rtol=1e-4, atol=1e-6 / step[j])
        np.testing.assert_allclose(residual, equations.residual(release, u))


@pytest.mark.parametrize(
    ("steps", "is_centred", "form"),
    [  # every form and all steps with either
        ((dr.Standardise(),), True, "scores"),
        ((dr.Standardise(),), False, "directions"),
        ((dr.MinMax(),), True, "directions"),
        ((dr.MinMax(),), False, "span"),
        ((dr.UnitRows(), dr.Standardise()), True, "span"),
        ((dr.UnitRows(), dr.Standardise()), False, "scores"),
        ((), True, "scores"),
        ((), False, "directions"),
    ],
)
def test_folded_equations_are_as_large_and_as_steep_as_all_of_them(table, form, steps, is_centred):
    rng = np.random.default_rng(0)
    known, releases = table[1:], rng.normal(size=(2, len(table), 3))
    new = np.asarray([1.0, *np.full(len(known), -1 / len(known))])
    with jax.enable_x64(True):
        whole = Eigen(
            steps=steps, known=jnp.asarray(known), record=jnp.asarray(known[0]), where=jnp.arange(12),
            new=jnp.asarray(new), form=form, is_centred=is_centred,
        )  # fmt: skip
        folded, small = fold(whole, releases)
        assert small.shape == (2, 13 + 2 + 3, 3)
        u = jnp.asarray(np.append(table[5, :12] * 1.1, 2.0))
        for release, few in zip(releases, small, strict=True):
            (r, slope), (s, own) = whole.linearise(release, u), folded.linearise(few, u)
            np.testing.assert_allclose(folded.residual(few, u), s, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(own.T @ own, slope.T @ slope, rtol=1e-8)  # sums of products, 16 digits
            np.testing.assert_allclose(own.T @ s, slope.T @ r, rtol=1e-8)
            np.testing.assert_allclose(s @ s, r @ r, rtol=1e-10)
        few_records = dataclasses.replace(whole, known=jnp.asarray(known[:25]), new=jnp.zeros(26))
        assert fold(few_records, releases[:, :26])[0] is few_records


def added(covariance):
    """What eigenvalues that are not known exactly add to the errors of 40 rows."""
    return LEAST**2 * np.kron(np.eye(40), covariance)


@pytest.mark.parametrize(
    ("form", "mixing"),
    [("scores", np.eye(3)), ("directions", np.diag([3.0, 1.0, 0.2])), ("span", np.eye(3) + np.tri(3, k=-1))],
)
def test_errors_of_the_equations_are_those_of_the_scores_through_their_derivative(table, form, mixing):
    x = preprocessing.scale(table[:40])
    coords = decomposition.PCA(3).fit_transform(x) @ mixing
    with jax.enable_x64(True):
        equations = Eigen(
            steps=(), known=jnp.asarray(x[1:]), record=jnp.asarray(x[0]), where=jnp.arange(13), new=jnp.zeros(40),
            form=form,
        )  # fmt: skip
        u = jnp.asarray(np.append(x[0], 0.0))
        covariance = np.diag([1.0, 2.0, 0.5]) + 0.3
        errors = of_scores(equations, jnp.asarray(coords), u, jnp.asarray(covariance))
        slope = np.asarray(jax.jacfwd(lambda y: equations.residual(y, u))(jnp.asarray(coords))).reshape(120, 120)
        whole = slope @ np.kron(np.eye(40), covariance) @ slope.T
        basis, factor = np.asarray(errors.basis), np.asarray(errors.factor)
        whitened = np.asarray(errors.whiten(errors.whiten(jnp.asarray(whole + added(covariance))).T))
        scale = float(errors.log_scale)
    each = factor @ factor.transpose(0, 2, 1)
    assert 2 * scale == pytest.approx(np.linalg.slogdet(each)[1].sum())
    found = np.einsum("ij,kj,jab->iakb", basis, basis, each).reshape(120, 120)
    # Apart along mixed components no equation tells anything: what errors they are given counts for nothing.
    span = np.linalg.qr(coords)[0] if form == "span" else np.zeros((40, 1))
    outside = np.kron(np.eye(40) - span @ span.T, np.eye(3))
    expected = whole + added(covariance)
    np.testing.assert_allclose(outside @ found @ outside, outside @ expected @ outside, atol=1e-9 * np.abs(found).max())
    if form != "span":
        np.testing.assert_allclose(whitened, np.eye(120), atol=1e-9)


# Of six components the last errs along the first six times as much as it is rounded.
@pytest.mark.parametrize("k", [2, 6])
def test_intervals_of_rounded_scores_hold_as_many_features_as_they_say(k):
    x = datasets.load_wine().data
    x = x[np.random.default_rng(7).permutation(len(x))]
    peer = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(k))
    known, targets = x[:140], x[140:164]
    coords = np.round(np.stack([peer.fit_transform(np.vstack([target[None], known])) for target in targets]), 4)
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.PCA(n_components=k))
    threat = EmbeddingThreat(method=method, known=known, coords=coords, shadows=pytest.fail, decimals=4)
    found = with_intervals(answer(ATTACK, KEY, threat), threat)
    ok = found.status == Status.OK
    assert ok.sum() >= 20
    missed = (found.x - targets) ** 2 / found.feature_mse
    assert 0.6 < missed[ok].mean() < 1.5
    held = (found.interval[..., 0] <= targets) & (targets <= found.interval[..., 1])
    # Some 5 independent features a record: 90% plus or minus twice 2.7%.
    assert 0.83 < held[ok].mean() < 0.97


def test_answers_are_those_of_all_equations_and_cost_does_not_grow_as_they_do(table, monkeypatch):
    peer, steps = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2)), (dr.Standardise(),)
    found, targets, _ = attacked(table, peer, steps)
    monkeypatch.setattr(behind_steps, "fold", lambda equations, releases: (equations, releases))
    whole, _, _ = attacked(table, peer, steps)
    np.testing.assert_array_equal(found.status, whole.status)
    np.testing.assert_allclose(found.x, whole.x, rtol=1e-6)
    np.testing.assert_allclose(found.expected_mse, whole.expected_mse, rtol=0.05, atol=1e-12)
    np.testing.assert_allclose(found.x, targets, rtol=1e-4)

    def seconds(n):
        known, coords = np.broadcast_to(0.0, (n - 1, 30)), np.broadcast_to(0.0, (1, n, 2))
        method = dr.Pipeline(before=steps, method=drjax.PCA())
        return ATTACK.cost(EmbeddingThreat(method=method, known=known, coords=coords, shadows=pytest.fail)).seconds

    assert seconds(20_000) < 3 * seconds(2_000)


def test_one_component_is_enough_where_features_are_recorded_in_steps():
    x = datasets.load_breast_cancer().data
    x = x[np.random.default_rng(5).permutation(len(x))]
    peer = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(1))
    found, targets, known = attacked(x, peer, (dr.Standardise(),), k=1)
    assert ratios(found, targets, known).max() < 1e-6
    assert not found.status.any()


def test_one_component_of_features_that_depend_on_each_other_is_not_certified(table):
    doubled = np.concatenate([table, table[:, :1] + table[:, 1:2]], axis=1)
    peer = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(1))
    found, _, _ = attacked(doubled, peer, (dr.Standardise(),), k=1)
    assert not (found.status == Status.OK).any()


def test_one_component_of_forty_measured_features_is_not_certified_where_it_is_wrong():
    # Two values each, and no steps: so many combinations that some fulfil the target's own equation by chance.
    rng = np.random.default_rng(3)
    loadings = rng.normal(size=(4, 40))
    x = np.exp(rng.normal(size=(210, 4)) @ loadings / 2 + 0.7 * rng.normal(size=(210, 40)))
    peer = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(1))
    known, targets = x[:199], x[199:207]
    coords = np.stack([peer.fit_transform(np.vstack([target[None], known])) for target in targets])
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.PCA(n_components=1))
    found = answer(ATTACK, KEY, EmbeddingThreat(method=method, known=known, coords=coords, shadows=pytest.fail))
    error = ratios(found, targets, known)
    assert (error > 0.01).any()
    assert (error[found.status == Status.OK] < 1e-6).all()
