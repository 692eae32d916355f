import dataclasses

import jax
import numpy as np
import pytest

from drjax.attacks.attack import EveryRecord
from drjax.attacks.exposure import measure
from drjax.audits import AuditConfig
from drjax.data import load
from drjax.decisions import guaranteed
from drjax.decisions.audited import Audited
from drjax.decisions.guaranteed import PrivateComponents, SyntheticMap
from drjax.decisions.statistics_attacks import KEPT, SEARCHED, DifferenceOfMeans, DifferenceOfMoments, first_of
from drjax.decisions.usefulness import Yardstick
from drjax.dr import PCA

KEY = jax.random.key(0)
N = 400


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "people.csv"
    z = rng.normal(size=(N, 2))
    ward = np.digitize(z[:, 0], [-0.5, 0.5])
    # Two things that most columns follow: directions at random show less of them.
    x = z @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(N, 8))
    lines = [",".join([*(f"{value:.3f}" for value in row), "ABC"[w]]) for row, w in zip(x, ward, strict=True)]
    path.write_text("a,b,c,d,e,f,g,h,ward\n" + "\n".join(lines))
    data = load(path)
    coords = np.asarray(PCA().fit_transform(KEY, data.x).coords)
    rows = np.arange(N)
    return Audited(
        config=AuditConfig(data=str(path)),
        data=data,
        every=EveryRecord(method=PCA(), x=data.x, coords=coords, rows=rows, stand_ins=lambda _: None),
        in_records=lambda x: x,
        attacks={},
        exposure=measure(data.x, data.x, rows, np.zeros(N, np.uint32)),
        table=None,
        key=KEY,
    )


def reconstructed(audited, statistic):
    return DifferenceOfMeans(mean=statistic["mean"], deviation=statistic["deviation"]).run_each(KEY, audited.every).x


def error_left(audited, statistic):
    x = audited.data.x.astype(np.float64)
    others = (x.sum(axis=0) - x) / (N - 1)
    return np.mean((reconstructed(audited, statistic) - x) ** 2) / np.mean((others - x) ** 2)


def test_an_exact_mean_gives_every_record_away_and_a_noisy_one_nothing(audited):
    mean = audited.data.x.astype(np.float64).mean(axis=0)
    exact = {"mean": mean, "deviation": np.full(mean.size, 1e-12)}
    assert error_left(audited, exact) < 1e-6
    noise = np.random.default_rng(1).normal(size=mean.size)
    assert error_left(audited, {"mean": mean + noise, "deviation": np.ones(mean.size)}) == pytest.approx(1, abs=0.01)
    # Noise that is taken for less than it is leads away from the record.
    assert error_left(audited, {"mean": mean + noise, "deviation": np.full(mean.size, 1e-6)}) > 10


def test_a_reconstruction_is_the_posterior_mean_of_each_feature_by_itself(audited):
    x = audited.data.x.astype(np.float64)
    rng = np.random.default_rng(3)
    deviation = rng.uniform(0.0001, 0.01, x.shape[1])
    mean = x.mean(axis=0) + deviation * rng.normal(size=x.shape[1])
    found = reconstructed(audited, {"mean": mean, "deviation": deviation})
    for row in (0, 17):
        known = np.delete(x, row, axis=0)
        variance, noise = known.var(axis=0), (N * deviation) ** 2
        seen = N * mean - known.sum(axis=0)
        expected = (known.mean(axis=0) * noise + seen * variance) / (variance + noise)
        np.testing.assert_allclose(found[row], expected, atol=1e-9)


def test_an_exact_second_moment_gives_every_record_away_and_that_of_synthetic_ones_none(audited):
    x = audited.data.x.astype(np.float64)
    moment = x.T @ x / N

    def left(moment, deviation):
        found = DifferenceOfMoments(moment=moment, moment_deviation=deviation).run_each(KEY, audited.every).x
        others = (x.sum(axis=0) - x) / (N - 1)
        return np.mean((found - x) ** 2) / np.mean((others - x) ** 2)

    # Where most of a record is above 0 its sign is known, too.
    assert left(moment, np.full(moment.shape, 1e-12)) < 1e-6
    assert left(moment + 1e-4, np.full(moment.shape, 1e-12)) > 0.01
    made = SyntheticMap(4.0).make(KEY, audited).statistic
    assert made["moment"].shape == made["moment_deviation"].shape == (x.shape[1], x.shape[1])
    assert left(made["moment"], made["moment_deviation"]) > 0.9
    # The same by its definition, a record at a time.
    noise, weight = (N * made["moment_deviation"]) ** 2, (x**2).T @ (x**2) / N - moment**2
    weight = np.divide(weight, weight + noise, out=np.zeros_like(weight), where=weight > 0)
    attack = DifferenceOfMoments(moment=made["moment"], moment_deviation=made["moment_deviation"])
    found = attack.run_each(KEY, audited.every).x
    for row in (0, 133):
        known = np.delete(x, row, axis=0)
        usual, mean = known.T @ known / (N - 1), known.mean(axis=0)
        square = usual + weight * (N * made["moment"] - known.T @ known - usual)
        np.testing.assert_allclose(found[row], square @ mean / np.sqrt(mean @ square @ mean), atol=1e-8)
    # A table that is the records themselves, called synthetic, would be found out.
    assert left(moment, made["moment_deviation"] * 1e-4) < 0.1


def test_exact_components_give_the_direction_of_every_record_away_and_noisy_ones_none(audited):
    x = audited.data.x.astype(np.float64)
    middle = x.mean(axis=0)
    exact = np.linalg.svd(x - middle, full_matrices=False)[2][:2]
    tight = PrivateComponents(1.0).make(KEY, audited).statistic
    quiet = {"mean": middle, "deviation": np.full(middle.size, 1e-9), "unit": np.ones(middle.size)}

    def found(components, deviation, **more):
        statistic = quiet | {"components": components, "leak_deviation": np.full((middle.size,) * 2, deviation)} | more
        return first_of(KEPT, statistic).run_each(KEY, audited.every).x

    def left(x_found):
        return np.mean((x_found - x) ** 2) / np.mean(((x.sum(axis=0) - x) / (N - 1) - x) ** 2)

    others = (x.sum(axis=0) - x) / (N - 1)
    inside = exact.T @ exact
    away, truth = found(exact, 1e-9) - others, x - others
    for part in (inside, np.eye(middle.size) - inside):
        a, b = away @ part, truth @ part
        cosine = np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        assert cosine.min() > 0.999
    # Both parts are known but for how long one is beside the other.
    product = np.linalg.norm(away @ inside, axis=1) * np.linalg.norm(away - away @ inside, axis=1)
    expected = np.linalg.norm(truth @ inside, axis=1) * np.linalg.norm(truth - truth @ inside, axis=1)
    np.testing.assert_allclose(product, expected, rtol=1e-3)
    assert left(found(exact, 1e-9)) < 0.5
    # The exact mean tells the sign alone; components of a real guarantee hide the rest.
    assert left(found(tight["components"], 0, leak_deviation=tight["leak_deviation"])) > 0.95
    # What says that it is private and is exact is found out.
    assert left(found(exact, 0, leak_deviation=tight["leak_deviation"] * 1e-4)) < 0.6
    searched = first_of(SEARCHED, tight)
    assert isinstance(searched, DifferenceOfMeans)
    np.testing.assert_array_equal(searched.mean, tight["mean"])
    np.testing.assert_array_equal(searched.deviation, tight["deviation"])


def test_the_leak_is_the_same_in_any_units(audited):
    statistic = PrivateComponents(50.0).make(KEY, audited).statistic
    scale = np.random.default_rng(5).uniform(0.1, 30, audited.data.x.shape[1])
    found = first_of(KEPT, statistic).run_each(KEY, audited.every).x
    every = dataclasses.replace(audited.every, x=audited.data.x.astype(np.float64) * scale + 3.0)
    mean, deviation = statistic["mean"] * scale + 3.0, statistic["deviation"] * scale
    own = first_of(KEPT, statistic | {"mean": mean, "deviation": deviation, "unit": scale}).run_each(KEY, every).x
    np.testing.assert_allclose(own, found * scale + 3.0, rtol=1e-6)


def test_what_a_guarantee_leaves_is_the_bound_for_one_of_n_records(audited):
    made = PrivateComponents(1.0).make(KEY, audited)
    # Hayes et al. 2023: at most e^epsilon kappa and delta more, and no less than guessing.
    assert 1 / N < made.statistic["ceiling"] <= np.e / N + 1e-6


def test_a_feature_is_weighed_by_its_own_noise(audited):
    mean = audited.data.x.astype(np.float64).mean(axis=0)
    deviation = np.full(mean.size, 10.0)
    deviation[0] = 1e-9
    found, x = reconstructed(audited, {"mean": mean, "deviation": deviation}), audited.data.x
    np.testing.assert_allclose(found[:, 0], x[:, 0], atol=1e-5)
    assert np.abs(found[:, 1] - x[:, 1]).mean() > 0.5 * x[:, 1].std()


@pytest.mark.parametrize("kind", [PrivateComponents, SyntheticMap])
def test_a_guarantee_of_no_worth_protects_nothing_of_the_mean_and_a_real_one_does(audited, kind):
    tight = kind(1.0).make(KEY, audited)
    assert error_left(audited, tight.statistic) > 0.95
    if kind is PrivateComponents:  # synthetic records are drawn, which hides the mean
        loose = kind(1e5).make(KEY, audited)
        assert error_left(audited, loose.statistic) < 0.5


def test_private_components_of_many_records_show_what_the_audited_map_shows(audited):
    yardstick = Yardstick(audited, KEY)
    noise, truth = (yardstick.measure(PrivateComponents(epsilon).make(KEY, audited)) for epsilon in (0.001, 1000.0))
    assert truth.trustworthiness == pytest.approx(yardstick.own.trustworthiness, abs=0.01)
    assert truth.neighbors == pytest.approx(yardstick.own.neighbors, abs=0.02)
    assert noise.neighbors < truth.neighbors - 0.05


def test_a_synthetic_map_is_measured_above_one_that_knows_nothing(audited):
    made = SyntheticMap(20.0).make(KEY, audited)
    yardstick = Yardstick(audited, KEY)
    assert yardstick.measure(made).share > 0.3
    assert yardstick.measure(made._replace(coords=made.blind[0])).share == 0


def test_categories_are_blocks_and_few_records_have_no_guarantee(audited):
    names = audited.data.feature_names
    (block,) = guaranteed.blocks_of(audited)
    assert [names[j] for j in block] == ["ward=A", "ward=B", "ward=C"]
    assert len(guaranteed.guaranteed_for(audited)) == 4
