import dataclasses

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks.reconstruction.closed_form import factored, noise_of, reconstruct_pca, reconstruct_srp
from drjax.attacks.reconstruction.closed_form import pca as closed_form
from drjax.attacks.shadow import shadow_embeddings
from drjax.core import streamed
from drjax.core.types import Status
from drjax.dr import PCA, ClassicalMDS, SparseRandomProjection, TruncatedSVD
from drjax.dr.factored import FactoredCoords

DIGITS = load_digits().data / 16
KNOWN, TARGETS = DIGITS[:150], DIGITS[150:156]
METHODS = (PCA(), PCA(n_components=5), TruncatedSVD(n_components=3), ClassicalMDS(n_components=3))


@pytest.fixture(autouse=True)
def in_blocks(monkeypatch):
    monkeypatch.setattr(streamed, "is_large", lambda *_: True)
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 40 * KNOWN.shape[1])
    monkeypatch.setattr(factored, "COLUMNS", 7)


def released(method, dtype="float64", decimals=None, **options):
    with jax.enable_x64(dtype == "float64"):
        made = shadow_embeddings(jax.random.key(3), method, KNOWN, TARGETS, factored=True, dtype=dtype, **options)
    return dataclasses.replace(made.coords, decimals=decimals)


# Nobody takes 8 decimals for the digits of a grid: what they leave over is looked at row by row, and for curves.
@pytest.mark.parametrize(
    ("dtype", "decimals", "error"),
    [("float64", None, 1e-9), ("float32", None, 1e-4), ("float64", 3, 0.1), ("float64", 8, 1e-7)],
)
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_factors_say_what_the_scores_say(method, dtype, decimals, error):
    coords, is_centred = released(method, dtype, decimals), not isinstance(method, TruncatedSVD)
    found, of_scores = (
        reconstruct_pca(KNOWN, given, bounds=(0, 1), is_centred=is_centred) for given in (coords, np.asarray(coords))
    )
    assert (found.status == Status.OK).all()
    np.testing.assert_array_equal(found.status, of_scores.status)
    np.testing.assert_allclose(found.x, of_scores.x, atol=1e-7)
    # A square root of rounding.
    np.testing.assert_allclose(found.residual_norm, of_scores.residual_norm, atol=1e-4)
    assert ((found.x - TARGETS) ** 2).mean(axis=1).max() < error
    noise, of_scores = (noise_of(KNOWN, given, is_centred=is_centred) for given in (coords, np.asarray(coords)))
    assert noise == pytest.approx(of_scores, rel=1e-6)


def test_of_unrounded_releases_the_first_scores_alone_are_made(monkeypatch):
    coords, made = released(PCA()), []
    make = FactoredCoords._others

    def counted(factors, rows):
        made.append(len(rows))
        return make(factors, rows)

    monkeypatch.setattr(FactoredCoords, "_others", staticmethod(counted))
    monkeypatch.setattr(closed_form, "DIGITS", 10)
    assert (reconstruct_pca(KNOWN, coords).status == Status.OK).all()
    assert made
    assert max(made) < 10


def test_factors_are_refused_where_they_are_none_of_the_known_records():
    with pytest.raises(ValueError, match=r"coords must have shape \(140, k\)"):
        reconstruct_pca(KNOWN[:139], released(PCA()))
    nan = released(PCA())
    nan.factors.target[0, 0] = np.nan
    with pytest.raises(ValueError, match="target must be finite"):
        reconstruct_pca(KNOWN, nan)
    # Factors of other records are scores like any others.
    assert (reconstruct_pca(KNOWN[::-1].copy(), released(PCA())).status == Status.MISFIT).all()


@pytest.mark.parametrize("randomness", ["fresh", "shared"])
@pytest.mark.parametrize(("decimals", "precision"), [(None, None), (3, 5e-4)])
def test_a_projection_is_recovered_from_factors(randomness, decimals, precision):
    coords = released(SparseRandomProjection(n_components=3), decimals=decimals, randomness=randomness)
    coords.factors.target[2, 0] = np.nan
    found, of_scores = (reconstruct_srp(KNOWN, given, precision=precision) for given in (coords, np.asarray(coords)))
    np.testing.assert_array_equal(found.status, of_scores.status)
    assert [status == Status.NON_FINITE for status in found.status] == [i == 2 for i in range(len(TARGETS))]
    np.testing.assert_allclose(found.x, of_scores.x, atol=1e-8)
    np.testing.assert_allclose(found.feature_mse, of_scores.feature_mse, atol=1e-8)
