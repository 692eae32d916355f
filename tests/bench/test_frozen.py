"""The bench of frozen maps runs, and counts shared neighbours."""

from __future__ import annotations

import numpy as np

import drjax
from bench import frozen
from drjax.dr import TSNE


def test_a_map_shares_all_neighbours_with_itself_and_none_with_its_far_side():
    maps = np.zeros((1, 31, 2))
    maps[0, 1:, 0] = np.arange(30)
    far = maps.copy()
    far[0, 0, 0] = 40
    assert frozen.shared(maps, maps) == 1
    assert frozen.shared(maps, far) == 0


def test_a_row_says_what_an_attack_loses():
    x = np.asarray(drjax.load("digits").x, np.float32)
    row = frozen.losses(TSNE(init="random", perplexity=8.0, max_iter=100), x, 60, 40, 8)
    assert 0 < row["mse_exact"] < row["mse_mean"] * 2
    assert 0 < row["mse_frozen"] < row["mse_mean"] * 2
    assert 0 <= row["shared_frozen"] <= 1
