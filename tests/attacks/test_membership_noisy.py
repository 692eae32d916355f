"""Attacks that know the law of the noise: against the definition, and against the attack that does not know it."""

import jax
import numpy as np
import pytest

from drjax.attacks import roc
from drjax.attacks.membership import fit_shadows, release_of
from drjax.attacks.membership_noisy import matrix_ratio, shadow_errors
from drjax.defenses.dp_pca import AnalyticGauss
from drjax.releases.mechanism import MomentNoise, bounded

KEY, D = jax.random.key(7), 6
SPREAD = 1.5 ** -np.arange(D)


def population(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D)) * SPREAD


def gauss(noise, **fields):
    given = {"n_components": 3, "row_norm": 4.0, "center": np.zeros(D), "neighbouring": "replace_one"}
    return AnalyticGauss(**{**given, "noise_multiplier": noise, **fields})


def test_without_noise_the_ratio_of_the_matrix_is_that_of_two_gaussians_of_the_scatter():
    # In the eigenbasis of E, by the definition, entry by entry.
    people, z = population(300), population(5, 3)
    expect = people.T @ people / 300
    values, basis = np.linalg.eigh(expect)
    released = expect + np.diag(np.arange(D)) / 50

    def silent(key, scatter):
        del key
        return scatter * 1.0

    found = matrix_ratio(KEY, released, people, z, 100, silent)
    shift = np.einsum("mi,mj->mij", z @ basis, z @ basis) / 100
    seen = basis.T @ (released - expect) @ basis
    # On and above the diagonal, where entries are independent.
    variance = np.outer(values, values) * (1 / 100 + 1 / 300) * (1 + np.eye(D))
    upper = np.triu_indices(D)
    exact = ((2 * seen - shift) * shift / (2 * variance))[:, *upper].sum(axis=1)
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_attacks_that_know_the_noise_find_more_than_the_reconstruction_error():
    x, n = population(3000), 60
    mechanism = gauss(0.2, divisor=float(n))
    noise, truth = MomentNoise(mechanism), np.repeat([1, 0], n)
    aucs = {"error": [], "shadows": [], "matrix": [], "swapped": []}
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(len(x))
        z = bounded(mechanism, x[order])
        members, candidates, people = z[:n], z[: 2 * n], z[2 * n : 2000]
        key = jax.random.fold_in(KEY, seed)
        matrix = np.asarray(noise(key, members.T @ members / n))
        release = release_of(members, 3)
        values, vectors = np.linalg.eigh(matrix)
        release = type(release)(vectors[:, ::-1].T[:3], np.maximum(values[::-1][:3], 0), n_records=n)
        shadows = fit_shadows(key, people, n, noise=noise, n_shadows=12, n_pairs=0)
        error = np.sum((candidates - candidates @ release.components.T @ release.components) ** 2, axis=1)
        ratio = matrix_ratio(key, matrix, people, candidates, n, noise)
        for name, scores, flags in (
            ("error", -error, truth),
            ("shadows", shadow_errors(shadows, release, candidates), truth),
            ("matrix", ratio, truth),
            ("swapped", ratio, 1 - truth),
        ):
            aucs[name].append(roc.auc(scores, flags).estimate)
    found = {name: np.mean(values) for name, values in aucs.items()}
    assert found["matrix"] > found["error"] + 0.02
    assert found["matrix"] >= found["shadows"] - 0.01
    assert found["shadows"] > found["error"]
    assert found["matrix"] > 0.55 > 0.45 > found["swapped"]


def test_the_ratio_refuses_what_does_not_match():
    people, z = population(30), population(4, 2)
    noise = MomentNoise(gauss(1.0, divisor=10.0))
    with pytest.raises(ValueError, match=r"moment must have shape \(6, 6\)"):
        matrix_ratio(KEY, np.zeros((3, D)), people, z, 10, noise)
    with pytest.raises(ValueError, match="n_records must be an integer >= 1"):
        matrix_ratio(KEY, np.eye(D), people, z, 0, noise)
    with pytest.raises(ValueError, match="candidates must have 6 columns"):
        matrix_ratio(KEY, np.eye(D), people, z[:, :3], 10, noise)
