import dataclasses

import numpy as np
import pytest

from drjax.data import load
from drjax.reports import records
from experiments.pca_membership import data, report, run

SMALL = run.Config(sizes={"digits": (30, 300)}, trials=3, ratio_trials=2, n_shadows=8, n_ks=3)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("membership")
    run.run(SMALL, out, say=lambda _: None)
    return out


def cells(out):
    return {(c["n"], c["attack"]): c for c in records.read_records(out / run.RESULTS)[1:]}


def test_few_records_are_given_away_and_the_ratio_says_more_of_many(results):
    found = cells(results)
    # 30 records span 30 of 64 dimensions: components show them whole.
    assert found[30, "reconstruction"]["best"]["mean"] > 0.99
    paper, ratio = found[300, "reconstruction"], found[300, "ratio"]
    assert 0.6 < paper["best"]["mean"] < ratio["best"]["mean"] - 0.03
    # At k = d the residual is rounding, and says nothing.
    assert paper["k"][-1] == 64
    assert paper["auc"]["mean"][-1] == 0.5


def test_a_second_run_computes_nothing_again(results):
    before = (results / run.RESULTS).read_bytes()
    run.run(SMALL, results, say=lambda text: pytest.fail(text))
    assert (results / run.RESULTS).read_bytes() == before
    with pytest.raises(ValueError, match="another"):
        run.run(dataclasses.replace(SMALL, trials=4), results)


def test_the_report(results):
    report.main(results=results)
    lines = (results / "tables.md").read_text().splitlines()
    assert len(lines) == 2 + 4
    assert (results / "sizes.png").stat().st_size > 10_000
    assert (results / "components.png").stat().st_size > 10_000


def test_the_ratio_is_left_out_where_public_records_are_too_few():
    x = np.random.default_rng(0).normal(size=(100, 3))
    found = run.ratio(SMALL, x, 40)
    assert found["best"] is None
    assert "needs 2 N public records" in found["left_out"]
    with pytest.raises(ValueError, match="n must be at most half of the 100 records, got 60"):
        run.reconstruction(SMALL, x, 60)


def test_categories_are_put_back_together():
    digits = load("digits")
    one_hot = dataclasses.replace(
        digits,
        x=np.array([[0.5, 1, 0, 0], [0.1, 0, 0, 1]], np.float32),
        y=None,
        shape=(4,),
        feature_names=("age", "work=a", "work=b", "work=c"),
        offset=np.zeros(4),
        scale=np.ones(4),
        class_names=None,
    )
    np.testing.assert_allclose(data.numbered(one_hot), [[0.5, 0], [0.1, 2]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trials": 1}, "trials must be an integer >= 2"),
        ({"sizes": {"iris": (5,)}}, "a data set must be one of"),
        ({"sizes": {"digits": (1,)}}, "a size of digits must be an integer >= 2"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)
