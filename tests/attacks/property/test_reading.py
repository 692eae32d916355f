"""Reading plots that matplotlib drew: every marker that shows is found, and everything else is left out."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from drjax.attacks.property import raster
from drjax.attacks.property.reading import read_picture


def clusters(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n)
    centres, widths = rng.uniform(-12, 12, size=(4, 2)), rng.uniform(1.5, 4, size=4)
    return centres[labels] + rng.normal(size=(n, 2)) * widths[labels][:, None], labels


def plot(
    path, points, labels=None, *, s=12, dpi=100, style="default", axes=True, decorated=False, legend=False, **save
):
    """Draws a figure into a file; pixels of the markers' centres, which Agg snaps, and their radius."""
    with plt.style.context(style):
        figure, ax = plt.subplots(figsize=save.pop("figsize", (6.4, 4.8)), dpi=dpi)
        for label in range(1 if labels is None else labels.max() + 1):
            chosen = points if labels is None else points[labels == label]
            ax.scatter(*chosen.T, s=s, linewidths=0, alpha=save.pop("alpha", None), label=f"class {label}")
        if not axes:
            ax.axis("off")
        if decorated:
            ax.set(title="t-SNE of faces", xlabel="first", ylabel="second")
            ax.grid(True)
            ax.set_axisbelow(True)
        if legend:
            ax.legend(loc="lower right")
        figure.canvas.draw()
        places = ax.transData.transform(points)
        places[:, 1] = figure.get_size_inches()[1] * dpi - places[:, 1]
        figure.savefig(path, dpi=dpi, **save)
        plt.close(figure)
    return np.floor(places + 0.5) + 0.5, raster.radius_of(s, dpi)


def matched(places, radius, found):
    """Recall and precision of one-to-one matches within half a radius, and the median distance of these in pixels."""
    distances = cdist(places, found)
    rows, columns = linear_sum_assignment(np.minimum(distances, 5 * radius))
    near = distances[rows, columns][distances[rows, columns] < radius / 2]
    return len(near) / len(places), len(near) / len(found), np.median(near)


CASES = {
    "plain": {},
    "colours and legend": {"labels": True, "legend": True, "decorated": True},
    "large markers": {"s": 36},
    "small markers": {"s": 4},
    "fine": {"dpi": 200},
    "JPG": {"suffix": "jpg", "decorated": True, "pil_kwargs": {"quality": 75}},
    "JPG in colours": {"suffix": "jpg", "labels": True, "legend": True, "pil_kwargs": {"quality": 75}},
    "dark": {"style": "dark_background", "decorated": True},
    "grey sheet": {"style": "ggplot"},
    "transparent": {"transparent": True, "decorated": True},
    "translucent": {"alpha": 0.5},
    "small picture": {"figsize": (3, 3), "axes": False, "s": 8.3},
}


@pytest.mark.parametrize("name", CASES)
def test_finds_the_markers_of_200_points(name, tmp_path):
    options = dict(CASES[name])
    points, labels = clusters(200)
    path = tmp_path / f"plot.{options.pop('suffix', 'png')}"
    places, radius = plot(path, points, labels if options.pop("labels", False) else None, **options)
    found = read_picture(path, most_hidden=1)
    recall, precision, error = matched(places, radius, found.pixels)
    assert recall >= 0.95
    # JPG halves the resolution of colours, and markers of 2 pixels overlap in ways that few pixels leave open.
    assert precision >= (0.9 if name in ("JPG", "JPG in colours", "small picture") else 0.97)
    assert error < 0.05 * radius
    np.testing.assert_allclose(found.radius, radius, rtol=0.08)
    assert found.confidence > 0.9


@pytest.mark.parametrize(("color", "width"), [("black", 1.0), ("black", 0.5), ("white", 0.5)])
def test_a_marker_and_its_edge_are_one(color, width, tmp_path):
    points, labels = clusters(200)
    figure, ax = plt.subplots()
    ax.scatter(*points.T, s=36, c=raster.PALETTE[labels] / 255, edgecolors=color, linewidths=width)
    figure.savefig(tmp_path / "plot.png")
    places = ax.transData.transform(points)
    places[:, 1] = 480 - places[:, 1]
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    recall, precision, _ = matched(places, raster.radius_of(36), found.pixels)
    assert recall >= 0.9  # of some only the edge is left to see
    assert precision >= 0.98


def test_a_grid_on_a_sheet_is_no_frame(tmp_path):
    points, labels = clusters(200)
    figure, ax = plt.subplots(figsize=(7, 5))
    ax.set_facecolor("#E5ECF6")  # plotly's
    ax.grid(True, color="white", linewidth=2)
    ax.set_axisbelow(True)
    ax.spines[:].set_visible(False)
    for label in range(4):
        ax.scatter(*points[labels == label].T, s=16, linewidths=0, label=f"class {label}")
    figure.subplots_adjust(right=0.8)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.savefig(tmp_path / "plot.png")
    places = ax.transData.transform(points)
    places[:, 1] = 500 - places[:, 1]
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    recall, precision, _ = matched(np.floor(places + 0.5) + 0.5, raster.radius_of(16), found.pixels)
    assert recall >= 0.95
    assert precision >= 0.98


def markers_of_several_shapes(path, points, labels):
    figure, ax = plt.subplots()
    for label, shape in enumerate("os^D"):
        ax.scatter(*points[labels == label].T, marker=shape)
    figure.savefig(path)
    plt.close(figure)


def crosses(path, points, _):
    figure, ax = plt.subplots()
    ax.scatter(*points.T, marker="x")
    figure.savefig(path)
    plt.close(figure)


def crowd(path, *_):
    points, _labels = clusters(1000)
    figure, ax = plt.subplots()
    ax.scatter(*points.T)
    figure.savefig(path)
    plt.close(figure)


@pytest.mark.parametrize("draw", [markers_of_several_shapes, crosses, crowd])
def test_what_found_markers_do_not_explain_is_refused(draw, tmp_path):
    draw(tmp_path / "plot.png", *clusters(300))
    with pytest.raises(ValueError, match="path must be a scatter plot"):
        read_picture(tmp_path / "plot.png")


def test_what_hides_many_markers_is_refused_unless_that_is_allowed(tmp_path):
    points, _ = clusters(400)
    places, _ = plot(tmp_path / "plot.png", points, s=36)
    with pytest.raises(ValueError, match=r"an estimated \d+% are hidden by others or the legend, and \d+ are found"):
        read_picture(tmp_path / "plot.png")
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    hidden = 1 - len(found.pixels) / len(places)
    assert hidden > 0.1
    assert hidden / 2 < found.share_hidden < 2 * hidden
    assert abs(found.n_drawn - len(places)) < len(places) - len(found.pixels)
    with pytest.raises(ValueError, match="most_hidden must"):
        read_picture(tmp_path / "plot.png", most_hidden=2)


def test_a_title_and_a_legend_without_frames_are_left_out(tmp_path):
    points, labels = clusters(150)
    figure, ax = plt.subplots()
    for label in range(4):
        ax.scatter(*points[labels == label].T, s=12, linewidths=0, label=f"class {label}")
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    ax.set_title("t-SNE of faces")
    ax.axis("off")
    figure.tight_layout()
    figure.savefig(tmp_path / "plot.png")
    places = ax.transData.transform(np.concatenate([points[labels == label] for label in range(4)]))
    places[:, 1] = 480 - places[:, 1]
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png")
    assert len(found.pixels) <= 150
    recall, precision, _ = matched(np.floor(places + 0.5) + 0.5, raster.radius_of(12), found.pixels)
    assert min(recall, precision) > 0.98


def test_lines_of_a_grid_are_no_axes(tmp_path):
    points, _ = clusters(150)
    figure, ax = plt.subplots()
    ax.scatter(*points.T, s=12, linewidths=0, zorder=2)
    ax.grid(True)
    ax.spines[:].set_visible(False)
    ax.set_xticks([points[:, 0].mean(), points[:, 0].max()])
    ax.set_yticks([points[:, 1].min() + 2, points[:, 1].max()])
    figure.savefig(tmp_path / "plot.png")
    places = ax.transData.transform(points)
    places[:, 1] = 480 - places[:, 1]
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png")
    recall, precision, _ = matched(np.floor(places + 0.5) + 0.5, raster.radius_of(12), found.pixels)
    assert min(recall, precision) > 0.97


def test_markers_under_a_grid_are_found(tmp_path):
    points, _ = clusters(150)
    figure, ax = plt.subplots()
    ax.scatter(*points.T, s=25, edgecolors="black", linewidths=0.7)
    ax.grid(True)  # above the markers, unless axes are set below
    ax.set_xticks(np.linspace(*ax.get_xlim(), 8)[1:-1])
    ax.set_yticks(np.linspace(*ax.get_ylim(), 8)[1:-1])
    figure.canvas.draw()
    places = ax.transData.transform(points)
    places[:, 1] = 480 - places[:, 1]
    figure.savefig(tmp_path / "plot.png")
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    recall, precision, _ = matched(np.floor(places + 0.5) + 0.5, raster.radius_of(25), found.pixels)
    assert recall > 0.95
    assert precision > 0.98


def test_markers_that_show_through_a_legend_are_hidden(tmp_path):
    points = np.stack(np.mgrid[:12, :12], axis=-1).reshape(-1, 2).astype(float)
    labels = np.arange(144) % 4
    shares = {}
    for shown in (False, True):
        plot(tmp_path / f"{shown}.png", points, labels, s=36, legend=shown)
        shares[shown] = read_picture(tmp_path / f"{shown}.png", most_hidden=1)
    lost = 1 - len(shares[True].pixels) / 144
    assert len(shares[False].pixels) == 144
    assert lost > 0.02
    assert shares[False].share_hidden < 0.005
    assert 0.5 * lost < shares[True].share_hidden < 1.5 * lost
    with pytest.raises(ValueError, match="others or the legend"):
        read_picture(tmp_path / "True.png")


@pytest.mark.parametrize(("s", "least"), [(4, 0.9), (12, 0.8)])
def test_finds_most_markers_of_1000_points_although_they_overlap(s, least, tmp_path):
    points, _ = clusters(1000)
    places, radius = plot(tmp_path / "plot.png", points, s=s)
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    recall, precision, error = matched(places, radius, found.pixels)
    assert recall > least
    assert precision > 0.9
    assert error < 0.1 * radius
    assert found.n_overlapping > 300


def test_points_and_picture_are_those_of_the_map(tmp_path):
    points, _ = clusters(200)
    plot(tmp_path / "plot.png", points, s=4, dpi=200)
    found = read_picture(tmp_path / "plot.png", size=75)
    unit = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    recall, precision, _ = matched(unit, 0.01, found.points)
    assert min(recall, precision) > 0.97
    assert found.points.min() == 0
    assert found.points.max() == 1
    truth = raster.draw(points[None], size=75)[0].astype(float)
    # Markers of half a pixel, each up to 0.5 pixels of 960 off.
    assert np.abs(found.picture - truth).mean() < 0.02 * (255 - truth).mean() * 10
    assert np.corrcoef(found.picture.ravel(), truth.ravel())[0, 1] > 0.97


def test_colours_are_told_apart(tmp_path):
    points, labels = clusters(200)
    places, radius = plot(tmp_path / "plot.png", points, labels)
    found = read_picture(tmp_path / "plot.png")
    assert len(found.palette) == 4
    distances = cdist(places, found.pixels)
    rows, columns = np.nonzero(distances < radius / 2)
    given = raster.PALETTE[labels[rows]].astype(int)
    same = np.abs(found.palette[found.colors[columns]] - given).max(axis=1) < 12
    assert same.mean() > 0.98


def test_a_picture_that_draw_made_is_read_back(tmp_path):
    points, _ = clusters(200)
    Image.fromarray(raster.draw(points[None])[0]).save(tmp_path / "plot.png")
    found = read_picture(tmp_path / "plot.png")
    recall, precision, error = matched(raster.pixels_of(points, 300), 2.0, found.pixels)
    assert min(recall, precision) > 0.95
    assert error < 0.1


def lines(path):
    figure, ax = plt.subplots()
    ax.plot(np.sin(np.linspace(0, 20, 300)))
    ax.set_title("a curve")
    figure.savefig(path)
    plt.close(figure)


def blank(path):
    Image.new("RGB", (300, 300), "white").save(path)


def noise(path):
    Image.fromarray(np.random.default_rng(0).integers(256, size=(200, 200, 3), dtype=np.uint8)).save(path)


def bars(path):
    figure, ax = plt.subplots()
    ax.bar(range(6), [3, 1, 4, 1, 5, 9])
    figure.savefig(path)
    plt.close(figure)


@pytest.mark.parametrize("draw", [lines, blank, noise, bars])
def test_pictures_without_a_scatter_plot_are_refused(draw, tmp_path):
    draw(tmp_path / "picture.png")
    with pytest.raises(ValueError, match="path must be a scatter plot"):
        read_picture(tmp_path / "picture.png")


def test_what_is_no_picture_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="check the path"):
        read_picture(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match="must be an image file"):
        read_picture(tmp_path / "text.png")
    Image.new("RGB", (20, 20)).save(tmp_path / "small.png")
    with pytest.raises(ValueError, match="at least 48 pixels"):
        read_picture(tmp_path / "small.png")


@pytest.mark.parametrize("seed", [0, 3])
def test_a_marker_between_two_colours_of_the_palette_is_one(tmp_path, seed):
    """Of a colour map there are more colours than the palette has."""
    rng = np.random.default_rng(seed)
    points = np.stack(np.meshgrid(np.arange(20), np.arange(14)), -1).reshape(-1, 2) + rng.uniform(-0.2, 0.2, (280, 2))
    figure, ax = plt.subplots()
    ax.scatter(*points.T, c=rng.uniform(size=280), s=25, linewidths=0)
    figure.savefig(tmp_path / "plot.png")
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    assert len(found.pixels) == 280
    assert found.share_hidden < 0.01


def test_lines_through_the_middle_are_no_axes(tmp_path):
    points = np.random.default_rng(0).uniform(-10, 10, size=(150, 2))
    figure, ax = plt.subplots(figsize=(7, 5))
    ax.scatter(*points.T, s=16, linewidths=0)
    ax.axvline(0, color="#c0d0e8", zorder=0)
    ax.axhline(-6, xmax=0.6, color="#dde5f0", zorder=0)
    ax.axis("off")
    figure.savefig(tmp_path / "plot.png")
    plt.close(figure)
    found = read_picture(tmp_path / "plot.png", most_hidden=1)
    assert abs(found.n_drawn - 150) <= 3
