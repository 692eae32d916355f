"""A method that drjax does not know, in audits, attacks and benchmarks: one class, one line in `METHODS`."""

from __future__ import annotations

import types
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from bench import device_table, shadow_embeddings
from bench.gpu_hour import grid, parity, registry
from drjax.attacks.reconstruction import inversion
from drjax.attacks.reconstruction.priors import GaussianPrior
from drjax.audits import AuditConfig, run
from drjax.cli import main
from drjax.core import linalg, validate
from drjax.core.types import Cost, Embedding, Status, hyperparams
from drjax.dr import METHODS
from drjax.reports import records


@hyperparams
class LaplacianEigenmaps:
    """The smoothest coordinates on the graph of similarities, in which every record counts by its degree.

    Source: Belkin & Niyogi (2003).
    """

    name: ClassVar[str] = "laplacian"
    title = "Laplacian eigenmaps"
    unit = None
    minimises = "squared differences weighted by similarity"
    repeatable = True
    stationary = False
    n_components: int = 2

    def __post_init__(self):
        validate.integer(n_components=self.n_components)

    @property
    def deterministic(self):
        return True

    def cost(self, n, d, *, itemsize=4):
        return Cost(0.0, float(itemsize * n * d), 2.0 * n**2 * d + 10.0 * n**3, 5.0 * itemsize * n**2)

    def fit_transform(self, key, x):
        del key
        validate.shape_2d(x=x)
        weights = _similarities(jnp.asarray(x, linalg.compute_dtype(x)))
        root = jnp.sqrt(weights.sum(axis=1))
        _, vectors = jnp.linalg.eigh(-weights / jnp.outer(root, root))
        smooth = vectors[:, 1 : 1 + self.n_components] / root[:, None]
        # Two records have one direction.
        smooth = jnp.pad(smooth, ((0, 0), (0, self.n_components - smooth.shape[1])))
        coords = smooth * linalg.sign_and_margin(smooth.T)[0]
        status = jnp.where(jnp.isfinite(coords).all(), jnp.uint32(Status.OK), jnp.uint32(Status.NON_FINITE))
        return Embedding(coords, self.objective(coords, x), jnp.int32(0), status, ())

    def objective(self, coords, x):
        weights = _similarities(jnp.asarray(x, linalg.compute_dtype(x)))
        return jnp.sum(weights * _squared(coords)) / 2

    def prepare(self, known, *, shared_key=None):
        del shared_key
        known = validate.matrix(known, "known")
        return jnp.asarray(known, linalg.compute_dtype(known))

    def insert(self, key, shared, target):
        if target.shape != shared.shape[1:]:
            raise ValueError(f"target must have shape {shared.shape[1:]}, got {target.shape}")
        return self.fit_transform(key, jnp.concatenate([jnp.asarray(target, shared.dtype)[None], shared]))

    def insert_batch(self, keys, shared, targets):
        return jax.vmap(self.insert, in_axes=(0, None, 0))(keys, shared, targets)


def _squared(x):
    return jnp.sum((x[:, None] - x[None]) ** 2, axis=-1)


def _similarities(x):
    squared = _squared(x)
    mean = squared.mean()
    return jnp.exp(-squared / jnp.where(mean > 0, mean, 1))


PEAKS = [
    {"name": "peak/gemm", "dtype": "float32", "gflop_per_s": 100.0},
    {"name": "peak/triad", "dtype": "float32", "gbyte_per_s": 10.0},
]


@pytest.fixture(autouse=True)
def method(monkeypatch):
    monkeypatch.setitem(METHODS, "laplacian", LaplacianEigenmaps)
    return LaplacianEigenmaps()


def digits(n):
    return (load_digits().data / 16)[np.random.default_rng(0).permutation(1797)[:n]]


SIZES = {"n_known": 30, "n_shadow": 60, "n_validation": 5, "n_targets": 4}


def test_a_default_audit_runs_what_does_best_on_its_shadows_and_reports_its_words(tmp_path, capsys):
    options = [word for name, n in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(n))]
    main(["audit", "--method", "laplacian", "--out", str(tmp_path / "o"), *options])
    tried = {file.stem for file in (tmp_path / "o" / "practice").glob("*.npz")}
    assert tried == {"map", "ridge", "invariant", "inversion"}
    written = records.read_records(tmp_path / "o" / "records.jsonl")
    ran = {record["name"] for record in written if record["kind"] == "attack"}
    assert {"mean", "nearest"} < ran <= {"mean", "nearest"} | tried
    page = (tmp_path / "o" / "report.html").read_text("utf-8")
    for words in (
        "What this Laplacian eigenmaps release gives away",
        "Laplacian eigenmaps to 2 components",
        "makes as small as it can: squared differences weighted by similarity.",
        "at the scale of the coordinates that makes it least",  # it has no unit
    ):
        assert words in page
    assert "chance would keep 16.7%" in capsys.readouterr().out


def test_an_audit_of_every_record_takes_it(tmp_path):
    np.save(tmp_path / "x.npy", digits(40))
    config = AuditConfig(data=str(tmp_path / "x.npy"), method="laplacian", each_record=True)
    result = run(config, tmp_path / "o")
    assert set(result.reconstructions) == {"mean", "nearest", "map"}
    assert "Who is exposed by this Laplacian eigenmaps release" in result.report.read_text("utf-8")


def test_the_attack_on_a_published_embedding_takes_it(method, tmp_path, capsys):
    x = digits(24) @ np.random.default_rng(1).normal(size=(64, 5)) / 8
    with jax.enable_x64(True):
        coords = np.asarray(method.fit_transform(jax.random.key(0), x).coords)
    np.save(tmp_path / "known.npy", x[1:])
    np.save(tmp_path / "coords.npy", coords)
    files = ["--known", f"{tmp_path}/known.npy", "--coords", f"{tmp_path}/coords.npy", "--out", f"{tmp_path}/o.npz"]
    main(["attack", "embedding", "--method", "laplacian", "--attack", "inversion", *files])
    assert "Attack: Inversion." in capsys.readouterr().out
    with np.load(tmp_path / "o.npz") as found:
        np.testing.assert_allclose(found["x"], x[0], atol=1e-3)


def test_the_inversion_matches_its_releases_since_they_are_repeatable(method):
    x = digits(24) @ np.random.default_rng(1).normal(size=(64, 5)) / 8
    known, target = x[1:], x[0]
    with jax.enable_x64(True):
        coords = method.fit_transform(jax.random.key(0), x).coords
    prior = GaussianPrior.fit(known)
    found = inversion.reconstruct(jax.random.key(0), method, known, np.asarray(coords), prior=prior, noise=1e-9)
    np.testing.assert_allclose(found.x, target, atol=1e-4)  # 48 equations for 5 unknowns
    with pytest.raises(ValueError, match="match must not be 'gradient' for 'laplacian'"):
        inversion.reconstruct(jax.random.key(0), method, known, coords, prior=prior, match="gradient")


def test_the_benchmarks_take_it():
    config = shadow_embeddings.Config(n=[12], d=[8], shadows=3, repeats=1, budget_s=0.01)
    assert config.method[-1] == "laplacian"
    cells = [cell for cell, _ in shadow_embeddings.cells(config, "float32") if cell.method == "laplacian"]
    assert [cell.kind for cell in cells] == [("laplacian", "fresh")]
    pool = types.SimpleNamespace(load=lambda *_: None)
    row, rivals = shadow_embeddings.measure_cell(cells[0], config, pool, PEAKS, {})
    assert row["gflop_per_s"] > 0
    assert row["status"] == {"OK": 3}
    assert [rival["name"] for rival in rivals] == ["naive"]
    assert device_table.Measured(device_table.SHADOWS, row, None, ()).what == "Laplacian eigenmaps"
    planned = {cell.name for part in (grid, parity) for step in part.steps(registry.CARD) for cell in step.cells(None)}
    assert {"grid/laplacian/seed-unknown/200", "parity/laplacian/insert_batch/float32/whole"} <= planned
