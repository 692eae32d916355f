"""The seed of a release, known or not, for every method that draws."""

import dataclasses
import importlib

import numpy as np
import pytest

from drjax.audits import AuditConfig, choice, run
from drjax.dr import METHODS
from drjax.reports import records

SHORT = {
    "mds": {"max_iter": 20},
    "tsne": {"init": "random", "perplexity": 4.0, "max_iter": 250},
    "umap": {"n_epochs": 20, "n_neighbors": 4},
}
RANDOM = [name for name, method in METHODS.items() if not method(**SHORT.get(name, {})).deterministic]
SMALL = AuditConfig(n_known=12, n_shadow=30, n_validation=5, n_targets=6, attacks=("ridge",))


@pytest.mark.parametrize("method", RANDOM)
@pytest.mark.parametrize("seed_known", [True, False])
def test_shadows_repeat_the_release_where_its_seed_is_known_and_only_there(tmp_path, monkeypatch, method, seed_known):
    # The targets are made the first shadows' records, so that a repeated draw repeats the map.
    module = importlib.import_module("drjax.audits.embedding")
    whole = module.split

    def split(*args, **kwargs):
        parts = whole(*args, **kwargs)
        return parts._replace(targets=parts.shadow[:6])

    monkeypatch.setattr(module, "split", split)
    config = dataclasses.replace(SMALL, method=method, hyperparameters=SHORT.get(method, {}), seed_known=seed_known)
    run(config, tmp_path / "out")
    shadows, released = (
        records.load_arrays(tmp_path / "out" / stage / "00000000.npz")["coords"][:6]
        for stage in ("shadows", "releases")
    )
    same = [np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(shadows, released, strict=True)]
    assert all(same) if seed_known else not any(same)


def test_inversion_asks_for_the_seed_where_it_needs_it():
    choice.check(AuditConfig(method="mds", attacks=("inversion",)))
    with pytest.raises(ValueError, match="seed_known must be True for attack 'inversion' on method 'srp'"):
        choice.check(AuditConfig(method="srp", attacks=("inversion",)))
    choice.check(AuditConfig(method="srp", attacks=("inversion",), seed_known=True))
    with pytest.raises(ValueError, match="attacks must be among all, mean, nearest, map"):
        choice.check(AuditConfig(method="umap", attacks=("inversion",)))


def test_an_audit_inverts_projections_of_known_seed(tmp_path):
    config = dataclasses.replace(SMALL, method="srp", seed_known=True, n_targets=3, attacks=("inversion",))
    result = run(config, tmp_path / "out")
    released = records.load_arrays(tmp_path / "out/releases/00000000.npz")["coords"]
    # Only the matrix that the shadows share can make records whose coordinates are those released.
    shadows = records.load_arrays(tmp_path / "out/shadows/00000000.npz")["coords"]
    np.testing.assert_array_equal(released[0, 1:], shadows[0, 1:])
    mean = np.mean((result.reconstructions["mean"] - result.targets) ** 2)
    assert np.mean((result.reconstructions["inversion"] - result.targets) ** 2) < mean
