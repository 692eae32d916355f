import jax
import numpy as np
import pytest
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score

from drjax.attacks.attack import EveryRecord
from drjax.attacks.exposure import measure
from drjax.audits import AuditConfig
from drjax.data import load
from drjax.decisions import usefulness
from drjax.decisions.audited import Audited, Made
from drjax.decisions.usefulness import Yardstick
from drjax.dr import PCA

KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def audited():
    rng = np.random.default_rng(0)
    at = np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0) + rng.normal(size=(90, 2))
    data = load(np.hstack([at, 0.1 * rng.normal(size=(90, 3))]))
    coords = np.asarray(PCA().fit_transform(KEY, data.x).coords)
    rows = np.arange(90)
    every = EveryRecord(method=PCA(), x=data.x, coords=coords, rows=rows, stand_ins=lambda _: None)
    return Audited(
        config=AuditConfig(),
        data=data,
        every=every,
        in_records=lambda x: x,
        attacks={},
        exposure=measure(data.x, data.x, rows, np.zeros(90, np.uint32)),
        table=None,
        key=KEY,
    )


def made(audited, coords, kept=None):
    kept = np.arange(90) if kept is None else kept
    return Made(kept, audited.every.x[kept], coords, audited.every.method)


def test_the_audited_map_keeps_everything_and_places_at_random_keep_nothing(audited):
    yardstick = Yardstick(audited, KEY)
    assert yardstick.measure(made(audited, audited.every.coords)).share == 1
    noise = np.random.default_rng(1).normal(size=(90, 2))
    assert yardstick.measure(made(audited, noise)).share < 0.15


def test_figures_are_those_of_scikit_learn(audited, monkeypatch):
    monkeypatch.setattr(usefulness, "SHARE", 1.0)
    yardstick = Yardstick(audited, KEY)
    coords = audited.every.coords + 0.3 * np.random.default_rng(2).normal(size=(90, 2))
    found = yardstick.measure(made(audited, coords))
    assert found.trustworthiness == pytest.approx(
        trustworthiness(audited.every.x, coords, n_neighbors=usefulness.MOST_NEIGHBORS), abs=1e-5
    )
    clusters = np.repeat([0, 1, 2], 30)
    assert found.clusters == pytest.approx(silhouette_score(coords, clusters), abs=0.05)


def test_clusters_of_many_records_are_found_among_some_that_hold_all_that_is_looked_at(audited, monkeypatch):
    monkeypatch.setattr(usefulness, "MOST_RECORDS", 30)
    whole = Yardstick(audited, KEY).own.clusters
    monkeypatch.setattr(usefulness, "MOST_CLUSTERED", 60)
    assert Yardstick(audited, KEY).own.clusters == pytest.approx(whole, abs=0.02)


def test_a_map_of_fewer_records_is_measured_on_those(audited):
    kept = np.flatnonzero(np.arange(90) % 9 > 0)
    found = Yardstick(audited, KEY).measure(made(audited, audited.every.coords[kept], kept))
    assert found.share > 0.9
