"""No release has a part in another's answer: every registered attack on a batch, and on one release of it alone."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax import dr
from drjax.attacks.attack import EmbeddingThreat, EveryRecord, Shadows
from drjax.attacks.reconstruction import closed_form, invariant_network, moving_geodesics, neural
from drjax.attacks.reconstruction.mixture_prior import MixturePrior
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.attacks.registry import ATTACKS, answer
from drjax.attacks.shadow import shadow_embeddings
from drjax.dr import MDS, METHODS, PCA, TSNE

N_SHADOW, N_VALIDATION = 70, 8
MIDDLE = slice(1, 2)
STEPS = (dr.CentredRows(), dr.Standardise())


@functools.cache
def records():
    x = (load_digits().data[:, 18:42] / 16).astype(np.float32)
    return x[np.random.default_rng(0).permutation(len(x))]


def method_of(attack):
    """The first method that the attack works on, PCA where it can, and behind steps or not known where it must."""
    plain = [METHODS["pca"](), *(_short(kind()) for kind in METHODS.values())]
    scaled = dr.Pipeline(before=(dr.Standardise(),), method=plain[0])
    behind = [scaled, *(dr.Pipeline(before=(step,), method=one) for step in STEPS for one in plain)]
    unnamed = dr.Unnamed(n_components=plain[0].n_components)
    return next(one for one in [*plain, *behind, unnamed] if attack.suits(one, seed_known=False) is None)


def made_by(method):
    """What makes maps for an attack on a method: for one that is not known PCA."""
    return PCA(n_components=method.n_components) if isinstance(method, dr.Unnamed) else method


def n_known_of(method):
    """Records that an attack on a method knows: without it no fewer than it takes to see how far it errs."""
    return 34 if isinstance(method, dr.Unnamed) else 14


def _short(method):
    short = {"max_iter": 260} if isinstance(method, TSNE | MDS) else {}
    return dataclasses.replace(method, **short, **({"perplexity": 4.0} if isinstance(method, TSNE) else {}))


@functools.cache
def releases(method):
    x = records()
    known, others = x[: n_known_of(method)], x[100 : 103 + N_SHADOW + N_VALIDATION]
    made = shadow_embeddings(jax.random.key(0), made_by(method), known, others)
    return np.asarray(made.coords)


@pytest.fixture
def short_runs(monkeypatch):
    """Searches and training end early: no release may have a part in another's answer at any time."""
    recover = functools.partial(moving_geodesics.recover, most_evaluations=moving_geodesics.MOST_EVALUATIONS // 8)
    monkeypatch.setattr(moving_geodesics, "recover", recover)
    config = invariant_network.InvariantNetworkConfig(epochs=6)
    monkeypatch.setattr(invariant_network, "fit", functools.partial(invariant_network.fit, config=config))
    recipes = {name: dataclasses.replace(recipe, epochs=6) for name, recipe in neural.RECIPES.items()}
    monkeypatch.setattr(neural, "RECIPES", recipes)


EMBEDDING = {name: attack for name, attack in ATTACKS["embedding"].items() if not attack.only_each}


@pytest.mark.usefixtures("short_runs")
@pytest.mark.parametrize("name", EMBEDDING)
def test_an_attack_on_a_batch_is_that_on_each_release_alone(name, tmp_path):
    attack = EMBEDDING[name]
    method, x = method_of(attack), records()
    coords, known = releases(method), x[: n_known_of(method)]
    targets, shadow, validation = np.split(x[100 : 103 + N_SHADOW + N_VALIDATION], [3, 3 + N_SHADOW])
    under_attack = coords[:3].copy()
    # Noisy neighbours: nothing of that may reach the release between them.
    noise = np.random.default_rng(1).normal(size=under_attack[::2].shape)
    under_attack[::2] += 0.01 * under_attack.std() * noise.astype(under_attack.dtype)
    shadows = Shadows(
        known=known,
        records=shadow,
        coords=coords[3 : 3 + N_SHADOW],
        validation=validation,
        validation_coords=coords[3 + N_SHADOW :],
    )

    def run(lanes):
        threat = EmbeddingThreat(
            method=method,
            known=known,
            coords=under_attack[lanes],
            shadows=lambda: shadows,
            public=np.concatenate([shadow, validation]),
            dtype="float32",
            bounds=(0.0, 1.0),
            truth=targets[lanes],
            checkpoint=tmp_path / str(lanes),
        )
        assert attack.fits(threat) is None
        return answer(attack, jax.random.key(1), threat)

    batch, alone = run(slice(None)), run(MIDDLE)
    # Sums of float32 products in another order; descents go on until 1e-6, in float64.
    np.testing.assert_allclose(batch.x[1], alone.x[0], atol=2e-5)
    np.testing.assert_allclose(batch.residual_norm[1], alone.residual_norm[0], rtol=1e-4, atol=1e-5)
    assert batch.status[1] == alone.status[0]


@pytest.mark.parametrize("name", [name for name, attack in EMBEDDING.items() if attack.shares_each])
def test_an_attack_on_every_record_is_that_on_each_alone(name):
    attack = EMBEDDING[name]
    method = method_of(attack)
    x = records()[: n_known_of(method) + 6]
    coords = np.asarray(shadow_embeddings(jax.random.key(0), made_by(method), x[1:], x[:1]).coords[0])

    def run(rows):
        every = EveryRecord(
            method=method, x=x, coords=coords, rows=np.array(rows), stand_ins=None, dtype="float32", bounds=(0.0, 1.0)
        )
        return attack.run_each(jax.random.key(0), every)

    all_rows, one = run([2, 7, 11]), run([7])
    np.testing.assert_allclose(all_rows.x[1], one.x[0], atol=1e-9)
    assert all_rows.status[1] == one.status[0]


@functools.cache
def prior_of(fit):
    return fit(records()[500:700].astype(np.float64))


@pytest.mark.parametrize(
    ("fit", "bounds", "n_known"),
    [  # every pair of two values
        (None, None, 14),
        (None, (0, 1), 90),
        (GaussianPrior.fit, None, 90),
        (GaussianPrior.fit, (0, 1), 14),
        (MixturePrior.fit, None, 14),
        (MixturePrior.fit, (0, 1), 90),
    ],
)
def test_closed_forms_of_pca_are_the_same_to_rounding(fit, bounds, n_known):
    x = records().astype(np.float64)
    known, prior = x[:n_known], None if fit is None else prior_of(fit)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        coords = np.array(shadow_embeddings(jax.random.key(0), PCA(), known, x[100:112]).coords)
    coords[::2] += rng.normal(size=coords[::2].shape) * 10.0 ** rng.integers(-6, -1, 6)[:, None, None]
    batch = closed_form.reconstruct_pca(known, coords, prior=prior, bounds=bounds)
    for i, release in enumerate(coords):
        one = closed_form.reconstruct_pca(known, release, prior=prior, bounds=bounds)
        # Products of one row and of many differ in the last digits, which the conditioning multiplies.
        np.testing.assert_allclose(batch.x[i], one.x, atol=1e-9)
        np.testing.assert_allclose(batch.residual_norm[i], one.residual_norm, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(batch.expected_mse[i], one.expected_mse, rtol=1e-6, atol=1e-12)
        assert batch.status[i] == one.status
