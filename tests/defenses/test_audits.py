"""Every mechanism of the project, run many times on neighbours that are as far apart as neighbours can be."""

import jax
import numpy as np
import pytest

from drjax.bounds import auditing, tradeoff
from drjax.defenses.dp_gd import DPGD, poisson_batches
from drjax.defenses.mechanisms import Gaussian, Laplace
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier

RUNS = 20_000
"""Of each arm. At a confidence of 0.999 a correct mechanism is refuted by one seed in a thousand; seeds are fixed."""

CONFIDENCE = 0.999


def scores(without, with_target):
    """Outputs (n, p) of both arms along the difference of the means of those runs that also choose the threshold."""
    first = int(0.3 * len(without))
    direction = with_target[:first].mean(axis=0) - without[:first].mean(axis=0)
    return without @ direction, with_target @ direction


def audited(without, with_target, claim):
    return auditing.audit_samples(*scores(without, with_target), claim=claim, confidence=CONFIDENCE)


def trained(mechanism, label, *, steps, rate, seed):
    """Parameters of RUNS models, a record with that label beside one other.

    Without a hidden layer the gradients of the two labels are opposite where training starts, and they are far longer
    than the norm that they are cut to. Steps are too small to move anything else.
    """
    training = Training(
        model=Classifier(hidden=(), n_classes=2), epochs=steps, learning_rate=1e-3, momentum=0.0, batch_size=None
    )
    x, other = np.full((RUNS, 2), 5.0, np.float32), np.zeros((1, 2), np.float32)
    init = jax.tree.map(lambda leaf: np.zeros_like(np.asarray(leaf)), training.model.init(jax.random.key(0), 2))
    noise_key, batch_key = jax.random.split(jax.random.key(seed))
    sampling = {}
    if rate < 1:
        keys = jax.random.split(batch_key, RUNS)
        batches = jax.vmap(lambda key: poisson_batches(key, 2, rate, steps))(keys)
        training = Training(model=training.model, epochs=steps, learning_rate=1e-3, momentum=0.0, batch_size=1)
        sampling = {"batches": np.asarray(batches), "own_batches": True}
    models = train_many(
        training,
        other,
        np.zeros(1, int),
        x,
        np.full(RUNS, label),
        init=init,
        mechanism=mechanism,
        noise_keys=jax.random.split(noise_key, RUNS),
        **sampling,
    )
    return np.concatenate([np.reshape(leaf, (RUNS, -1)) for leaf in jax.tree.leaves(models)], axis=1).astype(float)


@pytest.mark.parametrize(("steps", "rate"), [(1, 1.0), (4, 1.0), (4, 0.5)])
def test_dp_gd_keeps_its_guarantee_and_half_its_noise_does_not(steps, rate):
    noise = 2.0 * np.sqrt(steps)
    correct = DPGD(neighbouring="replace_one", clip_norm=0.1, noise_multiplier=noise)
    broken = DPGD(neighbouring="replace_one", clip_norm=0.1, noise_multiplier=noise / 2)
    claim = correct.guarantee(steps=steps, rate=rate).curve
    found = audited(*(trained(correct, label, steps=steps, rate=rate, seed=label) for label in (0, 1)), claim)
    assert not found.is_refuted
    if rate == 1:
        # The claim is 1: two opposite gradients are 2 clip_norm apart, and the audit sees nearly all of that.
        assert found.claim_mu == pytest.approx(1.0)
        assert 0.8 < found.mu_lower <= 1.0
    caught = audited(*(trained(broken, label, steps=steps, rate=rate, seed=2 + label) for label in (0, 1)), claim)
    assert caught.is_refuted


@pytest.mark.parametrize("value", [1e39, 3e38])
def test_a_record_beyond_the_largest_number_tells_nothing_of_dp_gd(value):
    mechanism = DPGD(neighbouring="replace_one", clip_norm=1.0, noise_multiplier=30.0)
    training = Training(model=Classifier(hidden=(3,), n_classes=2), epochs=1, learning_rate=1.0, momentum=0.0)
    init = jax.tree.map(np.asarray, training.model.init(jax.random.key(0), 2))
    claim = mechanism.guarantee(steps=1).curve
    assert claim.mu <= 0.07
    arms = []
    for seed, record in enumerate(([1.0, -1.0], [value, 0.5])):
        models = train_many(
            training,
            np.array([[0.5, 0.0], [-1.0, 2.0]]),
            np.array([0, 1]),
            np.tile(np.array([record], np.float64), (2000, 1)),
            np.ones(2000, int),
            init=init,
            mechanism=mechanism,
            noise_keys=jax.random.split(jax.random.key(seed), 2000),
        )
        flat = np.concatenate([np.reshape(leaf, (2000, -1)) for leaf in jax.tree.leaves(models)], axis=1)
        # What everybody sees: whether a parameter is not a number.
        arms.append(~np.isfinite(flat).all(axis=1) + np.nan_to_num(flat[:, 0].astype(float)) * 1e-3)
    assert not auditing.audit_samples(*arms, claim=claim, confidence=CONFIDENCE).is_refuted


@pytest.mark.parametrize("kind", [Gaussian, Laplace])
@pytest.mark.parametrize("is_release", [False, True])
def test_noise_on_a_vector_keeps_its_guarantee_and_half_of_it_does_not(kind, is_release):
    value = np.array([0.3, -1.7])
    # As far as the sensitivity allows: both norms are 1 where one coordinate moves.
    other = value + np.array([1.0, 0.0])

    def outputs(mechanism, where, seed):
        if is_release:
            # Noise of the operating system cannot be seeded; RUNS and CONFIDENCE leave a chance of one in a thousand.
            return mechanism.release(np.tile(where, (RUNS, 1)), grid=2.0**-20).value
        keys = jax.random.split(jax.random.key(seed), RUNS)
        return np.asarray(jax.vmap(lambda key: mechanism.sample(key, where))(keys), float)

    claim = kind(neighbouring="zero_out", sensitivity=1.0, scale=1.0).curve
    for scale, is_broken in ((1.0, False), (0.5, True)):
        mechanism = kind(neighbouring="zero_out", sensitivity=1.0, scale=scale)
        found = audited(outputs(mechanism, value, 0), outputs(mechanism, other, 1), claim)
        assert found.is_refuted == is_broken


def test_a_claim_is_held_against_the_direction_it_is_for():
    # A record in one batch of ten is easier to see present than absent.
    curve = tradeoff.subsampled_gaussian(0.5, 0.1, 1, neighbouring="zero_out")
    rng = np.random.default_rng(0)
    null = 0.5 * rng.standard_normal(RUNS)
    alternative = 0.5 * rng.standard_normal(RUNS) + (rng.random(RUNS) < 0.1)
    assert not auditing.audit_samples(null, alternative, claim=curve, confidence=CONFIDENCE).is_refuted
    weaker = tradeoff.subsampled_gaussian(0.5, 0.05, 1, neighbouring="zero_out")
    assert auditing.audit_samples(null, alternative, claim=weaker, confidence=CONFIDENCE).is_refuted
