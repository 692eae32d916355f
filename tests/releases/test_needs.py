"""Memory that commands say they need is what they were seen to take.

Peaks beyond what the process held when the estimate was made, in MB, of one run each on two cores with VmHWM (Linux,
jax 0.10, float64 tables of uniform numbers).
"""

import pytest

from drjax.attacks import embedding
from drjax.attacks.registry import fitting
from drjax.audits import needs as audit_needs
from drjax.core import host
from drjax.dr import METHODS
from drjax.releases import needs
from tests.attacks.threats import of_shapes


@pytest.mark.parametrize(
    ("n", "d", "trials", "measured"),
    [(100_000, 784, 0, 5801), (30_000, 400, 19, 1655), (200_000, 60, 19, 1620), (3_000, 700, 80, 1372)],
)
def test_components(n, d, trials, measured):
    assert 0.5 <= needs.of_pca(n, d, 10, trials=trials) / 1e6 / measured <= 2


@pytest.mark.parametrize(
    ("n", "columns", "width", "is_regression", "trials", "measured"),
    [(200_000, 21, 212, False, 0, 3844), (200_000, 21, 212, False, 2, 4499), (500_000, 12, 12, False, 0, 902),
     (500_000, 12, 11, True, 2, 2025)],
)  # fmt: skip
def test_a_synthetic_table(n, columns, width, is_regression, trials, measured):
    found = needs.of_synthetic(n, columns, width, is_regression=is_regression, trials=trials)
    assert 0.5 <= found / 1e6 / measured <= 2


@pytest.mark.parametrize(
    ("name", "n", "d", "with_quality", "measured"),
    [("pca", 100_000, 784, False, 2561), ("pca", 20_000, 3000, False, 2110), ("srp", 100_000, 784, False, 954),
     ("pca", 9_000, 784, True, 2490)],
)  # fmt: skip
def test_an_embedding(name, n, d, with_quality, measured, monkeypatch):
    monkeypatch.setattr(host, "n_cores", lambda: 2)
    found = audit_needs.of_embedding(METHODS[name](), n, d, with_quality=with_quality)
    assert 0.5 <= found.bytes / 1e6 / measured <= 2


@pytest.mark.parametrize(("method", "measured"), [("pca", 810), ("srp", 984)])
def test_an_attack_on_an_embedding(method, measured):
    """50,000 records with 400 features, without public ones: one attack alone does not take too long."""
    threat = of_shapes(method, n_known=50_000, d=400, m=1, public=None)
    pool = embedding._pool({n: a for n, a in fitting(threat).items() if not a.is_baseline}, threat)
    assert len(pool) == 1
    assert 0.5 <= embedding.bytes_needed(pool, threat) / 1e6 / measured <= 2
