import dataclasses
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from drjax.data import Dataset
from drjax.data.dataset import Provenance
from drjax.reports import records
from drjax.synthesis import sensitivity
from drjax.synthesis.contract import Box
from experiments import sweep
from experiments.pca_gauss import claims, config, data, figures, methods, practice, report, run, theory, trials
from experiments.pca_gauss.baselines.packages import MbiMST

PART = config.Part(data="digits", dimensions=(2,), trials=3, n_synthetic=200, sweep=(2,), sweep_epsilons=(0.1,),
                   sweep_trials=2)  # fmt: skip
SMALL = config.Config(
    clustering=PART,
    classification=(config.Part(data="realdisp", n_private=600, n_test=300, dimensions=(2,), trials=2,
                                n_synthetic=300),),
    regression=config.Part(data="twitter", n_private=600, n_test=300, dimensions=(2,), trials=2, n_synthetic=300),
    practice=config.Practice(data=None),
    n_clusters=3,
    other_clusters=(),
    n_init=1,
    silhouette_sample=100,
    n_regressed=100,
    # One public component is enough for the default p to be among the dimensions.
    public_energy=0.2,
    only=("pca-gauss-printed", "pca-gauss-pub"),
)  # fmt: skip


def compute(config, out, *, part="1/1", say=lambda _: None, **options):
    """Lines of a folder after a run."""
    return sweep.run(run.SWEEP, config, out, part=part, options=run.Options(**options), say=say).lines


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("pca_gauss")
    # An empty folder, so that stand-ins take the place of files that a developer may have.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRJAX_DATA", str(out))
        lines = compute(SMALL, out)
        yield out, lines


def without_times(lines):
    return [{name: value for name, value in line.items() if name not in ("seconds", "provenance")} for line in lines]


def test_an_interrupted_run_goes_on_with_the_same_results(results, tmp_path):
    out, lines = results
    written = (out / sweep.RESULTS).read_bytes().splitlines(keepends=True)
    kept = len(written) - 3
    # A kill leaves a torn line.
    (tmp_path / sweep.RESULTS).write_bytes(b"".join(written[:kept]) + written[kept][:20])
    said = []
    again = compute(SMALL, tmp_path, say=said.append)
    assert len(said) == 3 - sum(line["kind"] == "curve" for line in lines[kept:])
    assert without_times(again) == without_times(lines)


def test_parts_that_are_merged_hold_the_cells_of_a_single_run(results, tmp_path):
    counts = []
    for i in (1, 2, 3):
        lines = compute(SMALL, tmp_path / f"part-{i}", part=f"{i}/3")
        counts.append(len(lines) - 1)
    assert max(counts) - min(counts) <= 1
    parts = [tmp_path / f"part-{i}" for i in (3, 1, 2)]
    assert sweep.merge(run.SWEEP, parts, tmp_path / "whole") == sum(counts) == len(results[1]) - 1
    merged = records.read_records(tmp_path / "whole" / sweep.RESULTS)
    assert without_times(merged) == without_times(results[1])
    # A part of some data sets again adds nothing.
    compute(SMALL, tmp_path / "again", tables=("clustering",), only_data=("digits",), part="2/2")
    assert sweep.merge(run.SWEEP, [tmp_path / "whole", tmp_path / "again"], tmp_path / "twice") == sum(counts)
    assert (tmp_path / "twice" / sweep.RESULTS).read_bytes() == (tmp_path / "whole" / sweep.RESULTS).read_bytes()


def test_parts_that_share_a_folder_hold_the_cells_of_a_single_run(results, tmp_path):
    found = [compute(SMALL, tmp_path, part=part, tables=("classification",)) for part in ("2/2", "1/2")][1]
    own = [line for line in results[1] if line.get("table") in (None, "classification")]
    assert without_times(found) == without_times(own)


def test_every_line_says_what_it_is(results):
    cells = [line for line in results[1][1:] if line["kind"] == "attack"]
    assert {line["table"] for line in cells} == {"clustering", "classification", "regression", "dimensions"}
    for line in cells:
        assert line["is_stand_in"] == (line["data"] in ("realdisp", "twitter")) == line["shown"].endswith("stand-in")
        # One draw where nothing is random.
        assert len(line["values"]) == line["trials"] == (1 if line["method"] in ("constant",) else line["trials"])
        assert line["mean"] == pytest.approx(np.mean(line["values"]), rel=1e-3)
        assert sum(line["status"].values()) >= line["trials"]
    private = [line for line in cells if line["method"] == "pca-gauss-pub"]
    assert all(line["holds"] and line["relation"] == "replace_one" for line in private)
    # About the records' own mean: no guarantee, as its docstring says.
    printed = [line for line in cells if line["method"] == "pca-gauss-printed"]
    assert printed
    assert not any(line["holds"] for line in printed)


def test_the_real_row_is_at_the_top_and_stand_ins_say_so(results):
    found = report.markdown(results[1])
    for title, is_stand_in in (("Table II,", False), ("Table III,", True), ("Table IV,", True)):
        section = found[found.index(f"## {title}") :].split("\n\n")
        assert ("stand-in" in section[0]) == is_stand_in
        assert ("nothing here is measured on the paper's records" in section[1]) == is_stand_in
        assert section[2].splitlines()[2].startswith("| Real data | ")
    drawn = figures.drawn(results[1])
    assert set(drawn) == {"figure1", "figure2"}
    (axis,) = drawn["figure1"].axes
    assert axis.get_title("left") == "digits, k = 3"


def test_a_cell_is_a_plain_loop_over_fits():
    task = data.task("digits", n_private=300)
    method = methods.CLUSTERING["pca-gauss"].make(task, 2, SMALL)
    key = jax.random.key(5)
    made, test, guarantee = trials.draw(key, method, task, 1.0, 0.0, 40, 3)
    assert guarantee.epsilon(0.0) == pytest.approx(1)
    assert test is None
    for i in range(3):
        fit_key, draw_key = jax.random.split(jax.random.fold_in(key, i))
        expected = method.fit(fit_key, task.x, task.y, 1.0, 0.0).sample(draw_key, 40)
        # Sums of float32 in another order.
        np.testing.assert_allclose(made.x[i], expected.x, rtol=1e-4, atol=1e-4)


def line(method, values, metric="silhouette", p=2, default_p=2):
    return {"method": method, "values": values, "mean": float(np.mean(values)), "metric": metric, "p": p,
            "default_p": default_p}  # fmt: skip


def test_ratios_are_those_of_a_hand_computation():
    lines = [line("real", [0.5, 0.5]), line("pca-gauss", [0.45, 0.35]), line("li", [0.2, 0.2])]
    (judged,) = claims.judge(lines, claims.CLUSTERING["sound"], claims.RULES[0])
    # Errors 0.05 and 0.15, mean 0.1; of the other 0.3. Two trials give means of 0.05, 0.1 or 0.15.
    assert judged.found == pytest.approx((3.0, 2.0, 6.0))
    assert judged.verdict == "open"
    # 0.4 over 0.2; means of two trials are 0.35, 0.4 or 0.45.
    assert judged.of_values == pytest.approx((2.0, 1.75, 2.25))
    lines = [line("pca-gauss-pub", [0.8, 0.8], "accuracy"), line("li", [0.5, 0.6], "accuracy"),
             line("real", [0.9], "accuracy")]  # fmt: skip
    (judged,) = claims.judge(lines, claims.CLASSIFICATION["sound"], claims.RULES[0])
    assert judged.found == pytest.approx((0.25, 0.2, 0.3))
    assert judged.verdict == "holds"
    lines = [line("pca-gauss-pub", [0.1, 0.1], "rmse"), line("li", [0.3, 0.5], "rmse"), line("real", [0.1], "rmse")]
    (judged,) = claims.judge(lines, claims.REGRESSION["sound"], claims.RULES[0])
    assert judged.found == pytest.approx((4.0, 3.0, 5.0))
    assert judged.verdict == "fails"


def test_claims_are_those_of_the_committed_tables():
    folder = Path(report.__file__).parent / "results"
    found = run.SWEEP.claims(records.read_records(folder / sweep.RESULTS))
    text = (folder / "tables.md").read_text()
    rows = [row for row in text.splitlines() if any(f" | {rule} | " in row for rule in claims.RULES)]
    for claim, row in zip(found, rows, strict=True):
        value, _, interval = claim.ours.partition(" ")
        assert row.startswith(f"| {claim.claim} | ")
        assert f" | {value} | {interval.strip('()')} | {claim.verdict} |" in row


def test_the_bootstrap_agrees_with_the_delta_method():
    rng = np.random.default_rng(0)
    a, b = rng.normal(2, 0.2, 400), rng.normal(6, 0.9, 400)
    found = claims.ratio(rng, a, b)
    value = b.mean() / a.mean()
    error = value * math.sqrt((a.std() / a.mean()) ** 2 + (b.std() / b.mean()) ** 2) / 20
    assert found.estimate == pytest.approx(value)
    # 4,000 resamples leave 3% on an end of the interval.
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.08)


def test_rules_for_the_number_of_components_differ():
    lines = [line("real", [0.5]), line("li", [0.4], p=1), line("li", [0.2], p=2), line("blum", [0.3], p=None)]
    assert claims.pick(lines, "li", claims.RULES[0])["p"] == 1
    assert claims.pick(lines, "li", claims.RULES[1])["p"] == 2
    assert claims.pick(lines, "blum", claims.RULES[1])["p"] is None
    assert claims.pick(lines, "liu", claims.RULES[0]) is None


def test_realdisp_is_read_from_uci_files(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "realdisp"
    folder.mkdir()
    activity = rng.integers(0, 34, size=2400)
    rows = rng.integers(-9, 10, size=(2400, 120))
    rows[:, -1] = activity
    # What a record is can be read off its first feature.
    rows[:, 2] = activity
    np.savetxt(folder / "subject1_ideal.log", rows[:1500], fmt="%d", delimiter="\t")
    np.savetxt(folder / "subject2_self.log", rows[1500:], fmt="%d", delimiter="\t")
    found = data.task("realdisp", data_dir=str(tmp_path))
    assert (found.name, found.is_stand_in, found.kind) == ("realdisp", False, "classification")
    assert found.x.shape == (np.sum(activity > 0) - 1890, 117)
    assert (found.x_test.shape, found.x_public.shape) == ((1290, 117), (600, 117))
    for x, y in ((found.x, found.y), (found.x_test, found.y_test)):
        np.testing.assert_array_equal(np.isin(x[:, 0], data.DISPLACING), y)
    np.savetxt(folder / "subject3_self.log", rows[:5, :100], fmt="%d")
    with pytest.raises(ValueError, match="must have 120 columns"):
        data.task("realdisp", data_dir=str(tmp_path), seed=1)


def test_twitter_is_read_from_the_uci_file(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "twitter_buzz"
    folder.mkdir()
    rows = rng.integers(0, 1000, size=(9500, 78))
    rows[:, 77] = rows[:, 3]
    np.savetxt(folder / "Twitter.data", rows, fmt="%d", delimiter=",")
    found = data.task("twitter", data_dir=str(tmp_path), n_private=50, n_test=20)
    assert (found.name, found.is_stand_in, found.kind) == ("twitter", False, "regression")
    assert (found.x.shape, found.x_test.shape, found.x_public.shape) == ((50, 77), (20, 77), (4715, 77))
    np.testing.assert_allclose(found.y, found.x[:, 3] / math.log1p(30_000), rtol=1e-5)
    np.savetxt(folder / "Twitter.data", rows[:100], fmt="%d", delimiter=",")
    with pytest.raises(ValueError, match="must hold more than 9431 records, got 100"):
        data.task("twitter", data_dir=str(tmp_path), seed=1)


@pytest.mark.parametrize("stand_in", [data.realdisp_stand_in, data.twitter_stand_in])
def test_the_law_of_a_stand_in_does_not_depend_on_its_size(stand_in):
    few, many = (stand_in(np.random.default_rng(3), n)[0].astype(float) for n in (4000, 12_000))
    few, many = (np.arcsinh(x) for x in (few, many))
    other = np.arcsinh(stand_in(np.random.default_rng(4), 4000)[0].astype(float))
    error = many.std(axis=0) * math.sqrt(1 / 4000 + 1 / 12_000)
    # 117 features, five standard errors of the mean; another law is far away.
    assert (np.abs(few.mean(axis=0) - many.mean(axis=0)) < 5 * error).all()
    assert np.median(np.abs(other.mean(axis=0) - many.mean(axis=0)) / error) > 5


def dataset():
    rng = np.random.default_rng(0)
    age, job = rng.integers(18, 90, size=400), rng.integers(3, size=400)
    hours = rng.integers(0, 50, size=400)
    x = np.stack([(age - 18) / 72, *(job == c for c in range(3)), hours / 50], axis=1).astype(np.float32)
    names = ("age", "job=clerk", "job=?", "job=farmer", "hours")
    return Dataset("small", x, (age > 50).astype(int), (5,), names, None, Provenance("", "", {}, ""),
                   np.array([18.0, 0, 0, 0, 0]), np.array([72.0, 1, 1, 1, 50]))  # fmt: skip


def small_table(n_bins=8):
    found = dataset()
    schema = practice.schema_of(found)
    lower, upper = schema.bounds
    x = found.x * found.scale + found.offset
    split = data.Task("small", "classification", x[:300], found.y[:300], x[300:], found.y[300:], x[:10], found.y[:10],
                      lower, upper)  # fmt: skip
    return practice.Table(schema, split, n_bins)


def test_a_table_s_codes_and_features_are_each_other_s_inverse():
    table = small_table()
    assert [column.name for column in table.schema.features] == ["age", "job", "hours"]
    assert table.sizes == (8, 3, 8)
    x = table.split.x
    np.testing.assert_allclose(table.written(x), x, atol=1e-4)  # ages were in float32
    codes = table.codes(x)
    np.testing.assert_array_equal(codes[:, 0], np.minimum((x[:, 0] - 18) / 9, 7).astype(int))
    np.testing.assert_array_equal(codes[:, 1], np.argmax(x[:, 1:4], axis=1))
    place = np.random.default_rng(1).uniform(0.01, 0.99, codes.shape)
    np.testing.assert_array_equal(table.codes(table.features(codes, place)), codes)
    shifted = x + np.array([0.4, 0.2, 0.3, 0.1, 0.4])
    np.testing.assert_allclose(table.written(shifted)[:, 1:4].sum(axis=1), 1)
    np.testing.assert_allclose(table.written(shifted)[:, 0], x[:, 0], atol=1e-4)


def test_packages_see_columns_of_their_own_size():
    pytest.importorskip("mbi")
    table = small_table()
    seen = []

    class Watched(MbiMST):
        def _measure(self, ledger):
            super()._measure(ledger)
            seen.extend((m.clique, np.size(m.noisy_measurement)) for m in ledger.measurements)

    # Two columns of three and eight values are enough.
    codes, sizes = table.codes(table.split.x)[:, 1:], table.sizes[1:]
    box = Box.of(np.zeros(2), np.array(sizes))
    method = Watched(neighbouring="replace_one", box=box, n_classes=2, n_bins=sizes, n_iter=10)
    made = method.fit(jax.random.key(0), codes + 0.5, table.split.y, 1.0, 1e-6).sample(jax.random.key(1), 500)
    named = dict(zip(("x0", "x1", "y"), (*sizes, 2), strict=True))
    assert len(seen) == 5
    assert all(size == math.prod(named[column] for column in clique) for clique, size in seen)
    assert (np.floor(made.x).max(axis=0) < sizes).all()


def test_scaling_changes_nothing_and_fewer_dimensions_gain_by_their_square():
    key = jax.random.key(0)
    for row in theory.theorem_2(key, 30, 1.0) + theory.theorem_3(key, 30, 1.0):
        # The variance of 200,000 Laplace draws has a relative standard error of sqrt(5 / 200,000).
        assert row["measured"] == pytest.approx(row["snr"], rel=5 * math.sqrt(5 / theory.N_DRAWS))
        assert row["snr"] == pytest.approx(theory.theorem_2(key, 30, 1.0)[0]["snr"] * row.get("claimed", 1))
        assert row.get("gain", 1) == pytest.approx(row.get("claimed", 1))


def test_theorem_5_holds_for_centred_records_and_fails_for_records_that_are_scaled_and_then_centred():
    rows = {(row["name"], row["p"]): row for row in theory.theorems_4_and_5(8)}
    row = rows["theorem 5", 2]
    assert (row["claimed"], row["centred"], row["scaled"]) == pytest.approx((13, 9 * 8 / 7, 31.5))
    first = rows["theorem 4", 1]
    assert (first["claimed"], first["centred"], first["scaled"]) == pytest.approx((1, 8 / 7, 3.5))
    assert all(row["centred"] < row["claimed"] for row in theory.theorems_4_and_5(1000) if row["name"] == "theorem 5")


@pytest.mark.parametrize("m", [4, 30, 300])
def test_a_search_finds_the_bound_of_proposition_4(m):
    for row in theory.proposition_4(m):
        assert row["n_below"] == math.ceil(row["claimed"]) - 1
    assert theory.gains_by_data_set()["GFE"] == pytest.approx(sensitivity.proposition_4_bound(301, 1) / 27_936)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"n_clusters": 1}, "n_clusters must be an integer >= 2"),
        ({"n_init": 0}, "n_init must be an integer >= 1"),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_bad_configuration(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_bad_names(tmp_path):
    with pytest.raises(ValueError, match="data must be one of"):
        dataclasses.replace(PART, data="census")
    with pytest.raises(ValueError, match="a table must be one of"):
        compute(SMALL, tmp_path, tables=("membership",))
    with pytest.raises(ValueError, match="a data set must be one of"):
        compute(SMALL, tmp_path, only_data=("census",))
    assert not list(tmp_path.iterdir())


def test_results_of_the_scales_fit_the_record_format():
    for found in config.SCALES.values():
        assert records.config_fingerprint(found)
