"""Memory that commands say they need is what they were seen to take.

Peaks beyond what the process held when the estimate was made, in MB, of one run each on two cores with VmHWM (Linux,
jax 0.10, float64 tables of uniform numbers).
"""

import numpy as np
import pytest

from drjax.attacks import embedding
from drjax.attacks.registry import fitting
from drjax.audits import needs as audit_needs
from drjax.cli import main
from drjax.core import host, progress
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
     ("pca", 9_000, 784, True, 464)],
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


@pytest.mark.parametrize(("name", "trials"), [("pca", "19"), ("synthetic", "2")])
def test_the_cost_of_rehearsals_is_said_beforehand(name, trials, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LONG", 0.0)
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "x.csv", rng.random((60, 3)), delimiter=",", header="a,b,c", comments="")
    (tmp_path / "b.json").write_text('{"a": [0, 1], "b": [0, 1], "c": [0, 1]}')
    options = ["--epsilon", "5", "--delta", "1e-6", "--bounds", f"{tmp_path}/b.json", "--out", f"{tmp_path}/o"]
    main(["release", name, f"{tmp_path}/x.csv", *options, "--trials", trials])
    said = capsys.readouterr().err
    assert "drjax: rehearsals of this release take about 0 s" in said
    assert needs.seconds_of_pca(10**5, 784, trials=400, splits=20) > 60
    assert needs.seconds_of_pca(10**5, 784, trials=0, splits=20) == 0
    assert needs.seconds_of_synthetic(10**5, 200, trials=8) > 2 * needs.seconds_of_synthetic(10**4, 200, trials=8)
