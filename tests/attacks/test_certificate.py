"""Certificates of maps that scikit-learn and umap-learn made."""

import warnings

import numpy as np
import pytest
from sklearn import datasets, manifold, preprocessing

import drjax
from drjax import dr
from drjax.attacks import certificate
from drjax.core.types import Reconstruction, Status
from tests.attacks.threats import of_shapes

N_KNOWN, N_TARGETS = 90, 6
BEHIND = dr.Pipeline(before=(dr.Standardise(),), method=drjax.MDS())


@pytest.fixture(scope="module")
def records():
    x = preprocessing.scale(datasets.load_wine().data)
    x = x[np.random.default_rng(0).permutation(len(x))]
    return x[:N_KNOWN], x[N_KNOWN : N_KNOWN + N_TARGETS], x[N_KNOWN + N_TARGETS :]


def fit(method, x, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method is BEHIND:
            return manifold.MDS(2, n_init=1, init="random", random_state=seed).fit_transform(preprocessing.scale(x))
        if method.name == "mds":
            return manifold.MDS(2, n_init=1, init="random", random_state=seed).fit_transform(x)
        if method.name == "tsne":
            return manifold.TSNE(perplexity=method.perplexity, random_state=seed).fit_transform(x)
        import umap

        return umap.UMAP(metric=method.metric, random_state=seed).fit_transform(x)


METHODS = {
    "MDS": drjax.MDS(),
    "MDS behind StandardScaler": BEHIND,
    "t-SNE": drjax.TSNE(perplexity=12.0),
    "UMAP": drjax.UMAP(metric="cosine"),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_true_record_is_certified_and_others_are_not(records, name):
    method, (known, targets, others) = METHODS[name], records
    assert certificate.can_tell(method)
    right, wrong = [], []
    for i, x in enumerate(targets):
        coords = fit(method, np.vstack([x, known]), seed=i)
        right.append(certificate.of_map(method, known, coords, x))
        wrong += [certificate.of_map(method, known, coords, other) for other in (others[i], known.mean(axis=0))]
    assert sum(one.is_at_rest for one in right) >= len(right) - 1
    assert sum(one.is_at_rest for one in wrong) <= 1
    assert np.median([one.own for one in right]) < 0.2 * np.median([one.own for one in wrong])


def test_what_was_done_to_a_map_as_a_whole_changes_nothing(records):
    known, targets, _ = records
    coords = fit(METHODS["MDS"], np.vstack([targets[:1], known]), seed=0)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 2)))[0]
    plain = certificate.of_map(METHODS["MDS"], known, coords, targets[0])
    moved = certificate.of_map(METHODS["MDS"], known, coords @ turn + 5, targets[0])
    np.testing.assert_allclose(moved[:2], plain[:2], rtol=1e-6)


def test_statuses_follow_the_map(records):
    known, targets, others = records
    coords = fit(METHODS["MDS"], np.vstack([targets[:1], known]), seed=0)
    threat = of_shapes("mds", known=known, coords=np.stack([coords] * 6), public=None, bounds=None)
    x = np.stack([targets[0], others[0]] * 3)
    x[5] = np.nan
    given = np.array([0, 0, Status.NOT_CONVERGED, Status.NOT_CONVERGED, Status.UNCERTIFIED, Status.NON_FINITE])
    found = Reconstruction(x, None, x[:, None], np.zeros(6), given.astype(np.uint32))
    expected = [0, Status.UNCERTIFIED, 0, Status.NOT_CONVERGED, Status.UNCERTIFIED, Status.NON_FINITE]
    np.testing.assert_array_equal(certificate.checked(threat, found).status, expected)


def test_maps_without_forces_are_left_alone():
    after = dr.Pipeline(before=(dr.Standardise(),), method=drjax.MDS(), after=(dr.UnitVariance(),))
    assert not any(certificate.can_tell(one) for one in (drjax.PCA(), drjax.Isomap(), after, drjax.MDS(n_components=1)))
    threat = of_shapes("pca", m=1)
    found = Reconstruction(np.zeros((1, 64)), None, np.zeros((1, 1, 64)), np.zeros(1), np.zeros(1, np.uint32))
    assert certificate.checked(threat, found) is found
