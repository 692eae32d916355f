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


def test_a_row_says_what_was_made():
    row = growth.measured("tsne", "generated", 100, 6, 0)
    assert (row["method"], row["library"], row["n"], row["d"]) == ("t-SNE", "drjax", 100, 6)
    assert row["wall_s"] > 0
    assert 0.5 < row["trustworthiness"] <= 1
