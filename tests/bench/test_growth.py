"""The bench of growth: its measure is scikit-learn's, its records have neighbours, and slopes are those of a power."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.manifold

from bench import growth


def test_trustworthiness_is_scikit_learns():
    x = growth.generated(300, 12)
    coords = x[:, :2] + np.random.default_rng(1).normal(size=(300, 2))
    wanted = sklearn.manifold.trustworthiness(x, coords, n_neighbors=growth.NEAR)
    assert growth.trustworthiness(x, coords) == pytest.approx(wanted, abs=1e-12)


def test_slopes_are_those_of_a_power():
    rows = [{"method": "m", "library": "l", "n": n, "wall_s": 1e-6 * n**1.5} for n in (1000, 3000, 10_000, 100_000)]
    rows.append({"method": "other", "library": "l", "n": 5000, "wall_s": 1.0})
    assert growth.exponents(rows) == ["m by l: n^1.50 from 3,000 to 100,000 records"]


def test_slopes_are_compared_over_the_sizes_that_both_have():
    rows = [{"method": "m", "library": "drjax", "n": n, "wall_s": n / 1e4} for n in (3000, 10_000, 100_000)]
    rows += [{"method": "m", "library": "l", "n": n, "wall_s": (n / 1e4) ** 2} for n in (1000, 3000, 10_000)]
    rows += [rows[1] | {"wall_s": 1.0}]  # two maps of one size count once
    assert growth.exponents(rows)[-1] == "m, 3,000 to 10,000 records: drjax n^1.00, l n^2.00; at 10,000 1.0 s and 1.0 s"


def test_maps_that_have_a_row_are_not_made_again(tmp_path, monkeypatch, capsys):
    out = tmp_path / "growth.jsonl"
    row = growth.harness.make_row(
        "growth",
        {"method": "t-SNE", "library": "drjax", "data": "generated", "n": 3000, "d": 6, "seed": 0},
        {"wall_s": 1.0},
    )
    growth.harness.append_row(out, row)
    growth.harness.append_row(out, row | {"n": 9000, "wall_s": 3.0})
    growth.harness.append_row(out, row | {"n": 30_000, "wall_s": 99.0, "commit": "another"})
    monkeypatch.setattr(growth, "ProcessPoolExecutor", None)
    growth.main(n=(3000, 9000), makers=("tsne",), resume=True, out=out)
    assert capsys.readouterr().out == "t-SNE by drjax: n^1.00 from 3,000 to 9,000 records\n"


def test_a_row_says_what_was_made():
    row = growth.measured("tsne", "generated", 100, 6, 0)
    assert (row["method"], row["library"], row["n"], row["d"]) == ("t-SNE", "drjax", 100, 6)
    assert row["wall_s"] > 0
    assert 0.5 < row["trustworthiness"] <= 1
