"""The contract of attacks: what each says of itself, and one that drjax does not know."""

import dataclasses

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks import practice, shadow_sets
from drjax.attacks.attack import EmbeddingAttack, EveryRecord, Shadows
from drjax.attacks.case import decimals_of
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.registry import ATTACKS, answer, fitting
from drjax.audits import AuditConfig, run
from drjax.cli import main
from drjax.core.types import Reconstruction, Status
from drjax.dr import METHODS
from drjax.reports import records
from tests import contributing
from tests.attacks.threats import of_shapes


def test_a_feature_that_is_rarely_on_does_not_decide_between_attacks_alone():
    tried = dataclasses.replace(of_shapes("pca", d=4, m=2), truth=np.array([[0.0, 0, 0, 0], [0, 0, 0, 1]]))
    x = np.array([[2.0, 0, 0, 0], [0, 0, 0, 0]])
    found = Reconstruction(x, None, x[:, None], np.full(2, np.nan), np.zeros(2, np.uint32), None)
    unit = np.array([1.0, 1, 1, 0.01])
    np.testing.assert_allclose(practice.errors_in(found, tried, None, unit), [1, 1])
    np.testing.assert_allclose(practice.errors_in(found, tried), [1, 0.25])


def test_an_inversion_through_distances_says_what_a_derivative_for_each_feature_takes():
    """Measured at 200 records: 1.3 s of a core with 10 features, 15 s with 64. With 784 the command leaves it out."""
    attack = ATTACKS["embedding"]["inversion"]
    seconds = [attack.cost(of_shapes("mds", d=d, m=1)).seconds for d in (10, 64, 784)]
    np.testing.assert_allclose(seconds[:2], [1.3, 15], rtol=0.5)
    assert seconds[2] > practice.MOST_SECONDS


@pytest.mark.parametrize("kind", ATTACKS)
def test_attacks_say_what_they_are_and_go_by_their_names(kind):
    attacks = ATTACKS[kind]
    assert all(name == attack.name and attack.kind == kind for name, attack in attacks.items())
    assert len({attack.label for attack in attacks.values()}) == len(attacks)
    for attack in attacks.values():
        assert attack.description.endswith(".")
        assert not attack.trains or attack.needs_shadows
        assert dataclasses.fields(attack)
        with pytest.raises(dataclasses.FrozenInstanceError):
            attack.name = "other"


@pytest.mark.parametrize("method", METHODS)
def test_costs_grow_with_sizes_and_need_no_releases(method):
    small, large = of_shapes(method), of_shapes(method, n_known=999, d=784, n_public=4000)
    for name, attack in fitting(small).items():
        for threat in (small, large):
            assert all(np.isfinite(value) and value >= 0 for value in attack.cost(threat))
        assert attack.cost(large).bytes > attack.cost(small).bytes, name
        assert attack.cost(large).seconds >= attack.cost(small).seconds, name


def test_an_attack_says_why_it_does_not_fit():
    attacks = ATTACKS["embedding"]
    assert attacks["geodesics"].fits(of_shapes("pca")) == "is of Isomap"
    assert attacks["inversion"].fits(of_shapes("srp")) == "needs the seed"
    assert attacks["inversion"].fits(of_shapes("srp", seed_key=jax.random.key(0))) is None
    assert attacks["inversion"].fits(of_shapes("umap")) == "needs releases that can be made again or are at rest"
    assert attacks["ridge"].fits(of_shapes("pca", public=None)) == "needs public records"
    hidden = of_shapes("mds", hidden=np.zeros((400, 1, 2)))
    assert attacks["stationarity"].fits(hidden) == "must know all released records but the target"
    assert attacks["nearest"].fits(of_shapes("pca", truth=None)) == "needs the target itself"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Flagged(EmbeddingAttack):
    """Answers 5 everywhere, with the status and predicted errors that it is given."""

    status: tuple[Status, ...]
    predicted: tuple[float, ...] | None
    left: float = np.nan

    def run(self, key, threat):
        del key
        m, d = len(self.status), threat.known.shape[1]
        x, expected = np.full((m, d), 5.0), None if self.predicted is None else np.array(self.predicted)
        return Reconstruction(x, None, x[:, None], np.full(m, self.left), np.array(self.status, np.uint32), expected)


def test_flagged_answers_that_promise_no_less_error_than_the_mean_record_are_the_mean_record():
    rng = np.random.default_rng(0)
    known, public = rng.normal(size=(19, 3)), rng.normal(1.0, 2.0, size=(30, 3))
    usual = float(public.var(axis=0).mean())
    misfit, lost, open_ = Status.MISFIT, Status.NOT_CONVERGED, Status.UNCERTIFIED
    cases = [
        ((misfit, lost, lost, Status.OK, open_), (np.nan, 2 * usual, 0.5 * usual, np.nan, 2 * usual), np.nan, (0, 1)),
        ((lost | open_, Status.OK), None, np.nan, ()),  # predicts nothing
        ((lost,), (np.inf,), np.inf, (0,)),
        ((lost, lost), None, np.sqrt(3 * 0.5 * usual), ()),  # less is left open than of any record
        ((lost, lost), None, np.sqrt(3 * 1.5 * usual), (0, 1)),
    ]
    for status, predicted, left, fallen in cases:
        attack = Flagged(name="flagged", label="", description="", status=status, predicted=predicted, left=left)
        coords = np.zeros((len(status), 20, 2))
        threat = of_shapes("pca", known=known, coords=coords, public=public)
        found = answer(attack, jax.random.key(0), threat)
        is_mean = np.isin(np.arange(len(status)), fallen)
        np.testing.assert_allclose(found.x, np.where(is_mean[:, None], public.mean(axis=0), 5.0))
        np.testing.assert_array_equal(found.candidates, 5.0)
        np.testing.assert_array_equal(found.status, np.array(status, np.uint32))
        np.testing.assert_allclose(found.residual_norm[is_mean] ** 2, 3 * usual)
        if predicted is not None:
            np.testing.assert_allclose(found.expected_mse, np.where(is_mean, usual, predicted))


def test_so_they_are_where_every_record_is_attacked():
    x = np.random.default_rng(0).normal(size=(20, 3))
    every = EveryRecord(method=METHODS["pca"](), x=x, coords=np.zeros((20, 2)), rows=np.arange(2), stand_ins=Shadows)
    attack = Flagged(name="flagged", label="", description="", status=(Status.MISFIT,), predicted=None)
    found = attack.run_each(jax.random.key(0), every)
    np.testing.assert_allclose(found.x, [x[1:].mean(axis=0), np.delete(x, 1, axis=0).mean(axis=0)])


def test_a_new_attack_runs_in_every_place(monkeypatch, tmp_path, capsys):
    contributing.add(monkeypatch, "Add an attack")
    sizes = {"n_known": 30, "n_shadow": 40, "n_validation": 10, "n_targets": 5}
    result = run(AuditConfig(method="isomap", attacks=("nearest-in-map",), **sizes), tmp_path / "audit")
    assert "Nearest in the map" in result.report.read_text("utf-8")
    np.save(tmp_path / "x.npy", digits()[:40])
    each = run(AuditConfig(data=str(tmp_path / "x.npy"), method="isomap", each_record=True), tmp_path / "each")
    assert "nearest-in-map" in each.reconstructions
    np.save(tmp_path / "known.npy", digits()[1:40])
    np.save(tmp_path / "coords.npy", records.load_arrays(tmp_path / "each" / "release.npz")["coords"])
    files = ["--known", f"{tmp_path}/known.npy", "--coords", f"{tmp_path}/coords.npy", "--out", f"{tmp_path}/o.npz"]
    main(["attack", "embedding", "--method", "isomap", "--attack", "nearest-in-map", *files])
    assert "Attack: Nearest in the map." in capsys.readouterr().out
    row = np.flatnonzero(each.exposure.row == 0)[0]
    with np.load(tmp_path / "o.npz") as found:
        np.testing.assert_allclose(found["x"], each.reconstructions["nearest-in-map"][row])


def digits():
    return (load_digits().data / 16)[np.random.default_rng(0).permutation(1797)]


QUICK = {
    "mds": {"max_iter": 30},
    "tsne": {"perplexity": 6.0, "max_iter": 260},
    "umap": {"n_neighbors": 5, "n_epochs": 20},
    "isomap": {"n_neighbors": 5},
    "landmark_mds": {"n_landmarks": 6},
    "landmark_isomap": {"n_landmarks": 6, "n_neighbors": 5},
}


WITH_PUBLIC = {"pca", "landmark_mds", "landmark_isomap", "umap", "srp"}
"""Methods whose release is attacked with public records, the others with none: of each kind some either way."""


@pytest.mark.parametrize(("name", "with_public"), [(name, name in WITH_PUBLIC) for name in METHODS])
def test_one_published_embedding_of_every_method(name, with_public):
    x = digits()[:, 18:42]
    method = METHODS[name](**QUICK.get(name, {}))
    release = shadow_sets.shadows_of(jax.random.key(5), method, x[1:26], x[:1], decimals=6).coords[0]
    moved = np.roll(release, 3, axis=0)  # the target's row is the fourth
    known = np.concatenate([x[23:26], x[1:23]])
    public = x[100:140] if with_public else None
    found = attack_embedding(jax.random.key(0), method, known, moved, public=public, target_row=3, bounds=(0, 1))
    assert found.found.x.shape == (24,)
    assert found.attack.fits(of_shapes(name)) is None
    assert int(found.found.status) & Status.excluded() == 0
    if found.found.expected_mse is not None:
        # A mixture fitted on so few records is surer than it should be where hardly anything is left.
        assert np.mean((found.found.x - x[0]) ** 2) < 10 * found.found.expected_mse + 1e-4
    if with_public:
        assert found.attack.name in practice.winners(found.errors)


def test_digits_say_to_how_many_decimals_a_release_is_rounded():
    values = np.random.default_rng(0).normal(size=(50, 2))
    assert decimals_of(values) is None
    assert decimals_of(np.round(values, 4)) == 4
    assert decimals_of(np.round(values, 3).astype(np.float32)) == 3
    assert decimals_of(np.round(100 * values)) == 0


def test_bad_input_of_the_attack_on_one_embedding():
    x, key, method = digits(), jax.random.key(0), METHODS["pca"]()
    with pytest.raises(ValueError, match=r"coords must have shape \(20, 2\)"):
        attack_embedding(key, method, x[:19], x[:19, :2])
    with pytest.raises(ValueError, match="target_row must be"):
        attack_embedding(key, method, x[:19], x[:20, :2], target_row=20)
    with pytest.raises(ValueError, match="got 'geodesics': it is of Isomap"):
        attack_embedding(key, method, x[:19], x[:20, :2], attack="geodesics")
    with pytest.raises(ValueError, match="got 'ridge': it needs public records"):
        attack_embedding(key, method, x[:19], x[:20, :2], attack="ridge")
    with pytest.raises(ValueError, match="key must be a single key"):
        attack_embedding(3, method, x[:19], x[:20, :2])
    with pytest.raises(ValueError, match="decimals must be an integer >= 0, got -1"):
        attack_embedding(key, method, x[:19], x[:20, :2], decimals=-1)
    for bounds in ((1.0, 0.0), (0.0, np.nan), (0.0,)):
        with pytest.raises(ValueError, match="bounds must be two numbers, the first less than the second"):
            attack_embedding(key, method, x[:19], x[:20, :2], bounds=bounds)


def numbered(n, first=0):
    return first + np.arange(n, dtype=np.float64)[:, None] * np.ones(3)


def of_records(n_validation=6, **changes):
    """A threat whose records say which they are, and whose releases hold their target."""
    known, records, validation = numbered(5), numbered(8, 100), numbered(n_validation, 200)

    def releases(rows):
        return np.repeat(rows[:, None, :2], 6, axis=1)

    shadows = Shadows(
        known=known,
        records=records,
        coords=releases(records),
        validation=validation,
        validation_coords=releases(validation),
    )
    threat = of_shapes("mds", n_known=5, d=3, m=2, public=np.concatenate([records, validation]))
    return dataclasses.replace(threat, known=known, shadows=lambda: shadows, **changes)


def test_no_practice_target_is_known_to_the_attack_in_any_other_way():
    tried = practice.practice(of_records())
    assert len(tried.truth) == 5
    np.testing.assert_array_equal(tried.coords[:, 0], tried.truth[:, :2])
    shadows = tried.shadows()
    held = np.concatenate([tried.known, tried.public, shadows.records, shadows.validation])
    assert not set(held[:, 0]) & set(tried.truth[:, 0])
    # Without public records some known ones stand in: half of them for practice, half to learn from.
    known, stand_ins = numbered(6), numbered(8, 50)
    own = Shadows(
        known=known,
        records=stand_ins,
        coords=np.repeat(stand_ins[:, None, :2], 7, axis=1),
        validation=stand_ins[:0],
        validation_coords=np.zeros((0, 7, 2)),
    )
    alone = dataclasses.replace(of_records(), public=None, shadows=lambda: own)
    tried = practice.practice(alone)
    assert len(tried.truth) == 4
    held = np.concatenate([tried.known, tried.expected_of, tried.shadows().records])
    assert not set(held[:, 0]) & set(tried.truth[:, 0])
    assert len(tried.shadows().records) == 4


def test_releases_that_failed_are_no_practice():
    threat = of_records()
    threat.shadows().validation_coords[-2:] = np.nan
    tried = practice.practice(threat)
    assert np.isfinite(tried.coords).all()
    assert len(tried.truth) >= 2
    threat.shadows().validation_coords[:] = np.nan
    assert practice.practice(threat) is None


def test_winners_are_the_best_and_those_it_does_not_beat_beyond_chance():
    rng = np.random.default_rng(0)
    best = rng.random(12)
    errors = {"worse": best + 1 + 0.1 * rng.random(12), "same": best + rng.normal(size=12), "best": best}
    errors["same"] += 0.2 - (errors["same"] - best).mean()
    assert practice.winners(errors) == ["best", "same"]
    assert practice.winners({"failed": np.full(3, np.inf), "one": np.ones(3)}) == ["one"]


def test_every_record_is_attacked_as_if_it_alone_were_unknown(monkeypatch):
    nearest = contributing.add(monkeypatch, "Add an attack").NearestInMap()
    x = digits()[:16]
    method = METHODS["isomap"](n_neighbors=5)
    coords = shadow_sets.shadows_of(jax.random.key(0), method, x[1:], x[:1]).coords[0]
    every = EveryRecord(method=method, x=x, coords=coords, rows=np.array([3, 9]), stand_ins=lambda _: None)
    found = nearest.run_each(jax.random.key(0), every)
    for row, answer_of_all in zip((3, 9), found.x, strict=True):
        threat = every.threat(row)
        np.testing.assert_array_equal(threat.known, np.delete(x, row, axis=0))
        np.testing.assert_array_equal(threat.coords[0, 0], coords[row])
        np.testing.assert_array_equal(answer(nearest, jax.random.key(1), threat).x[0], answer_of_all)
