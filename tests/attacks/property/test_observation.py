"""What an adversary sees of a plot, and that shadow maps lose as much on the way as the plot does."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from drjax.attacks.property.observation import Sheet, plot_of_coords, plot_of_picture


def unit(points):
    return (points - points.min(axis=0)) / np.ptp(points, axis=0)


def test_a_map_that_hides_nothing_is_read_back_as_it_was():
    grid = np.stack(np.meshgrid(np.arange(8), np.arange(7)), axis=-1).reshape(-1, 2)
    points = grid * [3.0, 20.0] + np.random.default_rng(0).uniform(size=grid.shape) * [1.5, 10]
    found = Sheet(400, 4.0).read_back(points, np.random.default_rng(0))
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
    counts = [
        len(plot.sheet.read_back(np.random.default_rng(s).normal(size=(600, 2)), np.random.default_rng(s)))
        for s in range(2, 5)
    ]
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


@pytest.mark.parametrize(("by", "style"), [("cluster", "default"), ("lot", "default"), ("cluster", "dark_background")])
def test_shadow_maps_in_colours_lose_as_many_points_as_a_plot_in_colours(by, style, tmp_path):
    rng = np.random.default_rng(1)

    def clusters(rng):
        labels = rng.choice(3, size=500, p=[0.5, 0.3, 0.2])
        return np.array([[0, 0], [4, 1], [1, 5]])[labels] + rng.normal(size=(500, 2)), labels

    points, labels = clusters(rng)
    with plt.style.context(style):
        figure, axes = plt.subplots(figsize=(4, 3))
        colors = np.array(["tab:blue", "tab:orange", "tab:red"])[labels if by == "cluster" else rng.permutation(labels)]
        axes.scatter(*points.T, c=colors, s=20, linewidths=0)
        figure.savefig(tmp_path / "plot.png")
        plt.close(figure)
    plot = plot_of_picture(tmp_path / "plot.png")
    sheet = plot.sheet
    if style == "default":
        # From black, red and orange are shades of one colour.
        np.testing.assert_allclose(sorted(sheet.shares), [0.2, 0.3, 0.5], atol=0.06)
    assert sheet.cohesion > 0.8 if by == "cluster" else sheet.cohesion < 0.4
    found = [sheet.read_back(clusters(np.random.default_rng(s))[0], np.random.default_rng(s)) for s in range(2, 6)]
    lost, hidden = 500 - len(plot.points), 500 - np.mean([len(points) for points in found])
    # The mean over four maps of counts whose deviation is some twelve points, which is the plot's too.
    assert abs(hidden - lost) < 27
    if by == "lot":
        # Markers of one colour hide more of each other.
        black = sheet._replace(palette=((0, 0, 0),), shares=(1.0,)).read_back(clusters(rng)[0], rng)
        assert 500 - len(black) > lost + 50


def test_colours_have_the_shares_of_the_plot_and_agree_as_often_among_neighbours():
    rng, points = np.random.default_rng(0), np.random.default_rng(1).normal(size=(5000, 2))
    for cohesion, agreeing in ((0.0, 0.46), (0.6, 0.36 + 0.64 * 0.46), (1.0, 1.0)):
        sheet = Sheet(100, 2.0, ((0, 0, 0), (255, 0, 0), (0, 0, 255)), (0.6, 0.3, 0.1), cohesion)
        colors = sheet.colors(points, rng)
        np.testing.assert_allclose(np.bincount(colors) / 5000, sheet.shares, atol=0.03)  # four deviations
        nearest = np.asarray(KDTree(points).query(points, k=2)[1])[:, 1]
        # Strips end somewhere, and 5,000 pairs deviate by 0.007.
        assert abs((colors == colors[nearest]).mean() - agreeing) < 0.035
