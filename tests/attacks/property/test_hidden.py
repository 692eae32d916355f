"""Markers behind others: their share, and rims that are seen only where markers overlap."""

import matplotlib.pyplot as plt
import numpy as np

from drjax.attacks.property import raster
from drjax.attacks.property.hidden import hidden_share, rim_width
from drjax.attacks.property.markers import find_markers


def picture(points, *, s=36, **options):
    """(h, w, 3) in [0, 1], without axes."""
    figure, ax = plt.subplots()
    ax.scatter(*points.T, s=s, **options)
    ax.axis("off")
    figure.canvas.draw()
    image = np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255
    plt.close(figure)
    return image


def uniform(n, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, 2))


def test_the_share_is_that_of_points_anywhere():
    n = 600
    truth, estimates = [], []
    for seed in range(3):
        image = picture(uniform(n, seed), linewidths=0)
        found = find_markers(image, np.ones(3))
        truth.append(1 - len(found.centres) / n)
        estimates.append(hidden_share(image, np.ones(3), found, np.random.default_rng(seed)))
    assert np.mean(truth) > 0.01
    assert 0.6 < np.mean(estimates) / np.mean(truth) < 2


def test_nothing_is_hidden_where_markers_avoid_each_other():
    grid = np.stack(np.mgrid[:14, :14], axis=-1).reshape(-1, 2) + np.random.default_rng(0).uniform(-0.2, 0.2, (196, 2))
    image = picture(grid, linewidths=0)
    found = find_markers(image, np.ones(3))
    assert len(found.centres) == 196
    assert hidden_share(image, np.ones(3), found, np.random.default_rng(0)) < 0.005


def test_nothing_is_said_where_no_marker_lies_alone():
    image = picture(uniform(60), linewidths=0)
    found = find_markers(image, np.ones(3))
    pairs = found._replace(centres=np.concatenate([found.centres, found.centres + 1]), colors=np.tile(found.colors, 2))
    assert hidden_share(image, np.ones(3), pairs, np.random.default_rng(0)) == 1


def test_a_rim_of_the_ground_has_its_width():
    points = uniform(300)
    bare = picture(points, linewidths=0)
    assert rim_width(bare, np.ones(3), find_markers(bare, np.ones(3))) < 0.1
    rimmed = picture(points, edgecolors="white", linewidths=1.5)
    found = find_markers(rimmed, np.ones(3))
    # Half of the line lies inside of the marker's radius, which is then all that is seen of it.
    whole = raster.radius_of(36) + 0.75 * 100 / 72
    np.testing.assert_allclose(found.radius + rim_width(rimmed, np.ones(3), found), whole, rtol=0.1)
