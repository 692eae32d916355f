"""What an adversary sees of a plot, and that shadow maps lose as much on the way as the plot does."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.spatial.distance import cdist

from drjax.attacks.property.observation import Sheet, plot_of_coords, plot_of_picture


def unit(points):
    return (points - points.min(axis=0)) / np.ptp(points, axis=0)


def test_a_map_that_hides_nothing_is_read_back_as_it_was():
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(7)), axis=-1).reshape(-1, 2)
    points = grid * [3.0, 20.0] + np.random.default_rng(0).uniform(size=grid.shape) * [1.5, 10]
    found = Sheet(400, 4.0).read_back(points)
    assert len(found) == len(points)
    distances = cdist(unit(points), found)
    assert sorted(distances.argmin(axis=1)) == list(range(len(points)))
    # A tenth of a pixel of 364.
    assert distances.min(axis=1).max() < 0.1 / 364 * 3


def test_shadow_maps_lose_as_many_points_as_a_plot_of_another_shape(tmp_path):
    points = np.random.default_rng(1).normal(size=(600, 2))
    figure, axes = plt.subplots(figsize=(7, 2.5))
    axes.scatter(*points.T, s=20, linewidths=0)
    figure.savefig(tmp_path / "plot.png")
    plt.close(figure)
    plot = plot_of_picture(tmp_path / "plot.png")
    counts = [len(plot.sheet.read_back(np.random.default_rng(s).normal(size=(600, 2)))) for s in range(2, 5)]
    lost = 600 - len(plot.points)
    # Many are hidden, and the mean over three maps of counts whose deviation is some four points.
    assert lost > 15
    assert abs(600 - np.mean(counts) - lost) < 0.35 * lost


def test_coordinates_of_another_form_are_refused():
    for coords, message in (
        (np.zeros((5, 3)), "coords must have 2 columns, got 3"),
        (np.zeros((2, 2)), "coords must have at least 3 rows, got 2"),
        (np.full((5, 2), np.nan), "coords must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_of_coords(coords)
