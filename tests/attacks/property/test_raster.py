"""Pictures of scatter plots: what matplotlib draws, exact areas, and both ways of computing them."""

import io

import jax
import jax.export
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from drjax.attacks.property import raster


def maps(g=2, n=300, seed=0):
    return np.random.default_rng(seed).normal(size=(g, n, 2)) * [3.0, 0.5] + [0, 100]


def by_matplotlib(points, s, *, size=300, c="black", alpha=1.0):
    """A figure of axes alone, through Agg, as an array of red, green and blue."""
    figure = plt.figure(figsize=(size / 100, size / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.scatter(*points.T, s=s, c=c, linewidths=0, alpha=alpha)
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=100)
        plt.close(figure)
        return np.asarray(Image.open(file).convert("RGB"), float)


# Agg flattens circles to polygons, counts areas in 1/256 and rounds every layer to a level; a marker of 4 pixels loses
# 0.6% of its area that way, all of it at the edge.
@pytest.mark.parametrize("method", raster.METHODS)
@pytest.mark.parametrize(("s", "alpha", "most"), [(2.0, 1.0, 5), (8.3, 0.4, 5), (36.0, 1.0, 20)])
def test_equals_matplotlib(s, alpha, most, method):
    points = maps(1)[0]
    options = {"radius": raster.radius_of(s), "alpha": alpha, "method": method}
    grey = np.abs(raster.draw(points[None], snap=True, **options)[0] - by_matplotlib(points, s, alpha=alpha)[..., 0])
    labels = np.random.default_rng(1).integers(4, size=len(points))
    theirs = by_matplotlib(points, s, c=raster.PALETTE[labels] / 255, alpha=alpha)
    colored = np.abs(raster.draw(points[None], color=labels[None], **options)[0] - theirs)
    for difference in (grey, colored):
        assert difference.mean() < 0.25
        assert difference.max() <= most


def test_unsnapped_grey_differs_from_matplotlibs_only_by_its_shifts():
    points = maps(1)[0]
    exact = raster.draw(points[None], radius=2.0)[0]
    snapped = raster.draw(points[None], radius=2.0, snap=True)[0]
    assert np.abs(exact.astype(float) - snapped).max() > 50
    np.testing.assert_allclose(exact.mean(), snapped.mean(), rtol=0.02)


@pytest.mark.parametrize("center", [(0.0, 0.0), (0.3, -0.45), (0.5, 0.5)])
@pytest.mark.parametrize("is_on_host", [False, True])
def test_coverage_is_the_area_of_disc_and_pixel(center, is_on_host):
    radius, n = 1.7, 7
    corner = np.array([-3.0, -3.0]) - center
    on_device = raster.coverage(jnp.asarray(corner), radius, n)
    found = raster.coverage_on_host(corner, radius, n) if is_on_host else np.asarray(on_device)
    np.testing.assert_allclose(found.sum(), np.pi * radius**2, rtol=1e-5)

    # Strips of each pixel, cut by the circle; their middles err by far less than float32 differences of areas near 9.
    y = corner[1] + (np.arange(n * 2000) + 0.5) / 2000
    half = np.sqrt(np.maximum(radius**2 - y**2, 0))[:, None]
    left = corner[0] + np.arange(n)
    widths = np.maximum(np.minimum(left + 1, half) - np.maximum(left, -half), 0)
    np.testing.assert_allclose(found, widths.reshape(n, 2000, n).mean(axis=1), atol=2e-5)


def test_a_lone_marker_has_its_area_and_place():
    # Two points at the corners of the range, at 1 / 22 and 21 / 22 of the side, y up.
    picture = 255.0 - raster.draw(np.array([[[0.0, 0], [1, 1]]]), size=110, radius=3.3)[0]
    rows, columns = np.mgrid[:110, :110] + 0.5
    for half, place in ((np.s_[:55, 55:], (5, 105)), (np.s_[55:, :55], (105, 5))):
        weights = picture[half] / 255
        np.testing.assert_allclose(weights.sum(), np.pi * 3.3**2, rtol=2e-3)  # levels of 1/255 at the edge
        at = ((rows[half] * weights).sum() / weights.sum(), (columns[half] * weights).sum() / weights.sum())
        np.testing.assert_allclose(at, place, atol=0.01)


def test_overlaps_of_translucent_markers_add_up_and_later_ones_lie_above():
    points = np.zeros((1, 3, 2))
    black = raster.draw(points, size=21, radius=4.0, alpha=0.5)[0]
    assert black[10, 10] == round(255 / 8)
    color = raster.draw(points, size=21, radius=4.0, color=np.array([[0, 1, 2]]))[0]
    np.testing.assert_array_equal(color[10, 10], raster.PALETTE[2])


@pytest.mark.parametrize("is_colored", [False, True])
def test_host_and_xla_draw_the_same(is_colored):
    coords = maps()
    color = np.random.default_rng(0).integers(10, size=coords.shape[:2]) if is_colored else None
    options = {"size": 60, "radius": 1.3, "alpha": 0.7, "margin": 0.0, "color": color}
    found = [raster.draw(coords, method=method, **options).astype(int) for method in raster.METHODS]
    assert np.abs(found[0] - found[1]).max() <= 1  # a level that float32 rounds the other way


def test_does_not_depend_on_place_scale_and_batch():
    coords = maps()
    one = raster.draw(coords[1:], size=75)
    np.testing.assert_array_equal(raster.draw(coords, size=75)[1:], one)
    # Powers of two, and a shift that rounding does not see.
    moved = raster.draw((coords[1:] - [0, 100]) * [0.5, 4], size=75)
    assert np.abs(moved.astype(int) - one).max() <= 1


def test_a_constant_axis_is_drawn_in_the_middle():
    points = np.array([[[0.0, 7], [1, 7]]])
    rows = np.nonzero((raster.draw(points, size=50, radius=1.0)[0] < 255).any(axis=1))[0]
    np.testing.assert_array_equal(rows, [24, 25])


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
@pytest.mark.usefixtures("all_platforms")
def test_lowers_for_accelerators(platform):
    canvas = raster.Canvas(size=75, radius=0.5, alpha=1.0)
    args = canvas, jnp.zeros((1, 1)), jnp.ones((4, 50, 2)), jnp.zeros((4, 50), int)
    assert jax.export.export(jax.jit(raster.draw_xla), platforms=[platform])(*args).platforms == (platform,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coords": np.zeros((3, 2))}, "coords"),
        ({"coords": np.full((1, 3, 2), np.nan)}, "coords"),
        ({"size": 0}, "size"),
        ({"radius": 0.0}, "radius"),
        ({"radius": 80.0}, "radius"),
        ({"margin": float("nan")}, "margin"),
        ({"alpha": 1.5}, "alpha"),
        ({"method": "agg"}, "method"),
        ({"color": np.full((1, 3), 10)}, "color"),
        ({"color": np.zeros((1, 2), int)}, "color"),
        ({"color": np.zeros((1, 3))}, "color"),
        ({"color": np.zeros((1, 3), int), "palette": [[0, 0, 300]]}, "palette"),
    ],
)
def test_bad_arguments_raise_and_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        raster.draw(**{"coords": np.zeros((1, 3, 2)), "size": 75} | change)


@pytest.mark.parametrize("change", [{"s": 0.0}, {"dpi": -1.0}])
def test_bad_markers_raise(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        raster.radius_of(**{"s": 4.0} | change)
