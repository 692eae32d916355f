"""Sparse random projections are recognised by the entries of their matrix, which the known records determine."""

import jax
import numpy as np
import pytest
from sklearn import datasets, decomposition, random_projection

import drjax
from drjax import dr
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.recognition import FAMILIES, checked, recognise
from drjax.attacks.recognition.agreement import Stated, is_by_seed
from drjax.attacks.recognition.belief import Candidate

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
    with pytest.raises(ValueError, match="known records cannot tell a projection"):
        recognise(KEY, x[1:], coords, methods=("srp",))
    assert recognise(KEY, x[1:], coords, methods=("pca", "srp")).method is None


def test_a_release_that_tells_nothing_has_no_misfit():
    x = records("digits", 50)
    coords = random_projection.SparseRandomProjection(3, random_state=1).fit_transform(x)
    (family,) = (one for one in FAMILIES if one.name == "srp")
    assert family.misfit(checked(x[1:], coords), Candidate("srp", drjax.SparseRandomProjection(), 0.0, 1.0)) == np.inf


@pytest.fixture(scope="module")
def few():
    """A release of fewer records than features, and public records."""
    x = datasets.load_digits().data / 16
    x = x[np.random.default_rng(0).permutation(len(x))]
    return x[:41], drjax.embed(x[:41], method="srp", n_components=20, seed=7), x[300:500]


def attacked(few, row, **stated):
    x, coords, public = few
    return drjax.attack(np.delete(x, row, 0), coords, method="srp", public=public, target_row=row, **stated)


def test_a_known_seed_gives_what_the_map_does_not_determine(few):
    x, _, _ = few
    row = 17
    answer = attacked(few, row, release_seed=7)
    unseeded = attacked(few, row)
    errors = [np.mean((one.found.x - x[row]) ** 2) for one in (answer, unseeded)]
    assert errors[0] < 0.8 * errors[1]
    assert answer.verdict == "partly"
    assert any("Seed 7 makes the rows of the known records" in line for line in answer.why)
    assert any("Nobody compared the map with the method" in line for line in unseeded.why)
    assert not unseeded.contradiction


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("decimals", [3, None])
def test_a_seed_is_compared_with_the_map(few, dtype, decimals):
    x, _, _ = few
    coords = drjax.embed(x, method="srp", n_components=4, seed=7, dtype=dtype)
    coords = coords if decimals is None else coords.astype(np.float64).round(decimals)
    given = x[1:], coords, decimals
    assert is_by_seed(Stated(drjax.SparseRandomProjection(n_components=4), seed=7), *given)
    assert not is_by_seed(Stated(drjax.SparseRandomProjection(n_components=4), seed=8), *given)
    assert not is_by_seed(Stated(drjax.SparseRandomProjection(n_components=4, density=0.2), seed=7), *given)


def test_a_seed_is_compared_behind_steps_that_move_known_records(few):
    x, _, _ = few
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.SparseRandomProjection(n_components=4))
    coords = drjax.embed(x, method=method, seed=7)
    assert is_by_seed(Stated(method, seed=7), x[1:], coords, None)
    assert not is_by_seed(Stated(method, seed=8), x[1:], coords, None)


def test_a_wrong_seed_is_contradicted(few):
    answer = attacked(few, 0, release_seed=8)
    assert answer.verdict == "not reconstructed"
    assert "Seed 8 makes other rows of the known records" in answer.contradiction


def test_the_seed_of_a_descent_is_left_aside():
    x = records("wine")[:41]
    coords = drjax.embed(x, method="mds", seed=7)
    answer = drjax.attack(x[1:], coords, method="mds", release_seed=7)
    assert any(line.startswith("The seed of the release is left aside: ") for line in answer.why)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"method": "pca", "release_seed": 1}, "release_seed must be left out for .* which draws nothing"),
        ({"method": "srp", "release_seed": -1}, "release_seed must be an integer >= 0"),
        ({"method": "srp", "release_seed": 2**32}, r"release_seed must be <= 2\^32 - 1"),
        ({"release_seed": 1}, "method must be named"),
        ({"method": "srp", "release_seed": 1, "shuffled": True}, "release_seed must be left out where rows are"),
        ({"method": "srp", "release_seed": 1, "target_row": [0, 1]}, "release_seed must be left out with several"),
    ],
)
def test_seeds_that_cannot_be_of_use_are_refused(few, stated, message):
    x, coords, public = few
    known = x[2:] if isinstance(stated.get("target_row"), list) else x[1:]
    with pytest.raises(ValueError, match=message):
        drjax.attack(known, coords, public=public, **stated)


def test_a_seed_that_the_generator_would_cut_is_refused(few):
    with pytest.raises(ValueError, match=r"seed must be <= 2\^32 - 1"):
        drjax.embed(few[0], method="srp", seed=2**32)
