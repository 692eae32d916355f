"""Sparse random projections are recognised by the entries of their matrix, which the known records determine."""

import jax
import numpy as np
import pytest
from sklearn import datasets, decomposition, random_projection

import drjax
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.recognition import recognise

KEY = jax.random.key(0)


def records(name, n=150):
    x = getattr(datasets, f"load_{name}")().data
    return x[np.random.default_rng(2).permutation(len(x))[:n]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("density", [None, 0.5, 1.0])
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "digits"])
def test_a_projection_is_named_with_its_density(data, density, dtype):
    x = records(data)
    peer = random_projection.SparseRandomProjection(4, density=density or "auto", random_state=1)
    belief = recognise(KEY, x[1:], peer.fit_transform(x).astype(dtype), methods=("pca", "svd", "srp"))
    assert isinstance(belief.method, drjax.SparseRandomProjection), belief.in_words()
    assert belief.method.density == (None if density is None else pytest.approx(density, rel=1e-3))


def test_the_attack_takes_what_was_recognised():
    x = records("wine")
    coords = random_projection.SparseRandomProjection(4, density=0.5, random_state=1).fit_transform(x)
    answer = attack_embedding(KEY, None, x[1:], coords)
    assert answer.attack.name == "srp-closed-form"


@pytest.mark.parametrize(
    "peer", [decomposition.PCA(3), random_projection.GaussianRandomProjection(3, random_state=0)], ids=str
)
def test_other_linear_maps_are_no_sparse_projection(peer):
    x = records("wine")
    assert recognise(KEY, x[1:], peer.fit_transform(x), methods=("srp",)).method is None


def test_fewer_records_than_features_cannot_tell():
    x = records("digits", 50)
    coords = random_projection.SparseRandomProjection(3, random_state=1).fit_transform(x)
    assert recognise(KEY, x[1:], coords, methods=("srp",)).method is None
