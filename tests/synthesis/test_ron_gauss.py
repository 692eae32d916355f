"""RON-Gauss: records of one norm, random directions, the way back, and what its code claims."""

import dataclasses
import math
import warnings

import jax
import numpy as np
import pytest

from drjax.bounds import auditing
from drjax.synthesis import sensitivity
from drjax.synthesis.contract import Box, NotPrivateWarning, SynthesisMethod, Synthesizer
from drjax.synthesis.ron_gauss import RONGauss
from tests.synthesis.programs import fitted, promised, sampled

N, D, K = 800, 6, 2
DELTA, PLENTY = 1e-5, 1e7
BOX = Box.of(-1.0, 1.0, D)


def records(seed=0):
    """Records about a centre away from the middle of the box, and of much the same norm, as the method wants them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, N)
    x = 0.5 + rng.normal(size=(N, D)) * 0.1
    x[:, 0] += 0.2 * (y - 0.5)
    return np.clip(x, -1, 1).astype(np.float32), y.astype(np.int32), (x[:, 0] * 3).astype(np.float32)


def method(neighbouring="replace_one", **fields):
    return RONGauss(neighbouring=neighbouring, box=BOX, **{"n_components": 3, **fields})


@pytest.mark.parametrize("neighbouring", ["replace_one", "add_or_remove"])
def test_with_much_budget_centre_radius_and_scale_are_those_of_records_of_norm_1(neighbouring):
    x, _, _ = records()
    found = fitted(method(neighbouring, correct=False), jax.random.key(0), x, None, PLENTY, DELTA)
    norms = np.linalg.norm(x, axis=1)
    unit = x / norms[:, None]
    center = unit.mean(axis=0)
    np.testing.assert_allclose(found.frame.center, center, atol=1e-4)
    assert float(found.frame.radius) == pytest.approx(np.sqrt(((unit - center) ** 2).sum(axis=1).mean()), rel=1e-3)
    assert float(found.frame.scale) == pytest.approx(norms.mean(), rel=1e-3)
    np.testing.assert_allclose(found.components @ found.components.T, np.eye(3), atol=1e-5)
    shifted = unit - center
    z = shifted / np.linalg.norm(shifted, axis=1, keepdims=True) @ np.asarray(found.components).T
    np.testing.assert_allclose(found.mixture.covariances[0], np.cov(z.T, bias=True), atol=1e-4)


def test_with_all_directions_the_way_back_leads_to_the_records_law():
    x, y, _ = records()
    found = fitted(method(n_components=D, n_classes=K), jax.random.key(0), x, y, PLENTY, DELTA)
    drawn = sampled(found, jax.random.key(1), 40_000)
    # Distances from the centre are taken for their mean, which shortens and lengthens records but turns none.
    np.testing.assert_allclose(np.mean(drawn.x, axis=0), x.mean(axis=0), atol=0.01)
    ratio = np.trace(np.cov(np.asarray(drawn.x).T)) / np.trace(np.cov(x.T))
    assert 0.8 < ratio < 1.2
    gap = []
    for points, labels in ((x, y), drawn):
        points, labels = np.asarray(points), np.asarray(labels)
        gap.append(points[labels == 1].mean(axis=0) - points[labels == 0].mean(axis=0))
    assert gap[1][0] == pytest.approx(gap[0][0], rel=0.25)


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_a_release_of_much_budget_agrees_with_a_fit_up_to_its_directions(delta):
    x, _, numbers = records()
    made = method(n_components=D, target_range=(-3.0, 3.0))
    published = made.release(x, numbers, 1e6, delta)
    own = fitted(dataclasses.replace(made, correct=False), jax.random.key(0), x, numbers, 1e6, delta)
    np.testing.assert_allclose(published.frame.center, own.frame.center, atol=1e-3)
    np.testing.assert_allclose(published.frame.scale, own.frame.scale, rtol=1e-3)
    # All directions are released, so only the basis differs.
    turned = [
        np.asarray(f.components).T @ np.asarray(f.mixture.covariances)[0, :D, :D] @ np.asarray(f.components)
        for f in (published, own)
    ]
    np.testing.assert_allclose(turned[0], turned[1], atol=3e-3)
    assert published.guarantee.epsilon(delta) <= 1e6 * (1 + 1e-9)
    drawn = sampled(published, jax.random.key(1), 20_000)
    assert np.corrcoef(np.asarray(drawn.x)[:, 0], drawn.y)[0, 1] > 0.7


def test_samples_are_in_the_box_and_records_without_a_direction_harm_nothing():
    x, y, _ = records()
    x[0] = 0
    x[1] = np.nan
    found = fitted(method(n_classes=K), jax.random.key(0), x, y, 0.05, 0.0)
    drawn = sampled(found, jax.random.key(1), 300)
    assert np.abs(drawn.x).max() <= 1
    assert isinstance(found, Synthesizer)
    assert isinstance(method(), SynthesisMethod)


def test_an_audit_finds_no_violation_and_catches_a_wrong_sensitivity(monkeypatch):
    neighbouring = "replace_one"
    made = method(neighbouring, n_components=2, correct=False)
    x = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0.5, 0, 0, 0]], np.float32)
    other = x.copy()
    other[0] = [-1, 0, 0, 0, 0, 0]
    claim = made.plan(4.0, DELTA).guarantee.curve

    one = sensitivity.sum_l2

    def run(key, rows, share):
        # An argument of the program, so that right and wrong noise are not compiled apart.
        with monkeypatch.context() as patch:
            patch.setattr(sensitivity, "sum_l2", lambda **fields: one(**fields) * share)
            found = made.fit(key, rows, None, 4.0, DELTA)
        return found.frame, found.mixture.covariances

    program = jax.jit(run)

    def audit(share):
        return auditing.audit_mechanism(
            jax.random.key(0),
            lambda key, rows: program(key, rows, share),
            other,
            x,
            claim=claim,
            n=5_000,
            confidence=0.999,
        )

    assert not audit(1.0).is_refuted
    assert audit(0.1).is_refuted


def test_the_code_s_claim_is_too_small_by_the_root_of_half_the_dimension_and_says_so():
    x, y, numbers = records()
    made = method(paper=True, decode=False, n_components=6)
    with pytest.warns(NotPrivateWarning, match="L1 sensitivities are 2 and 1.732 times"):
        found = promised(made, x, None, 1.0, 0.0)
    shares = np.array([0.1, 0.6]) / 0.7
    assert found.guarantee.epsilon(0.0) == pytest.approx(shares[0] * 2 + shares[1] * math.sqrt(3))
    with pytest.warns(NotPrivateWarning, match="change class"):
        nothing = promised(method(paper=True, decode=False, n_classes=K), x, y, 1.0, 0.0)
    assert nothing.guarantee.epsilon(0.5) == math.inf
    with pytest.warns(NotPrivateWarning, match="L1 sensitivities"):
        promised(method(paper=True, decode=False, target_range=(-3, 3)), x, numbers, 1.0, 0.0)
    with warnings.catch_warnings():
        # A record that is left out moves a matrix of few dimensions by less than the code takes.
        warnings.simplefilter("error", NotPrivateWarning)
        promised(method("zero_out", paper=True, decode=False), x, None, 1.0, 0.0)
    with pytest.warns(NotPrivateWarning, match="number of records"):
        promised(method("add_or_remove", paper=True, decode=False), x, None, 1.0, 0.0)


@pytest.mark.parametrize("task", ["unsupervised", "classification", "regression"])
def test_the_paper_s_algorithms_without_noise_are_gaussians_of_normalised_records(task):
    x, classes, numbers = records()
    y = {"classification": classes, "regression": numbers}.get(task)
    fields = {"classification": {"n_classes": K}, "regression": {"target_range": (-3.0, 3.0)}}.get(task, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        found = fitted(method(paper=True, decode=False, **fields), jax.random.key(0), x, y, PLENTY, 0.0)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    w = np.asarray(found.components)
    for k in range(K if task == "classification" else 1):
        own = unit[classes == k] if task == "classification" else unit
        shifted = own - own.mean(axis=0)
        z = shifted / np.linalg.norm(shifted, axis=1, keepdims=True) @ w.T
        second = z.T @ z / len(z)
        np.testing.assert_allclose(found.mixture.covariances[k][:3, :3], second, atol=1e-3)
        if task == "classification":
            np.testing.assert_allclose(found.mixture.means[k], w @ own.mean(axis=0), atol=1e-3)
    drawn = found.sample(jax.random.key(1), 50)
    assert drawn.x.shape == (50, 3)
    assert found.transform(x).shape == (N, 3)


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match="decode must be False"):
        method(paper=True)
    with pytest.raises(ValueError, match="paper must be False"):
        method(paper=True, decode=False).release(records()[0], None, 1.0, DELTA)
