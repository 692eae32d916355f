"""The style of figures: names that do not overlap, colours that can be read."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from drjax.reports import plots, styles


def test_texts_are_moved_apart_and_no_further():
    places = styles.spread(np.array([10.0, 12.0, 50.0]), np.full(3, 10.0))
    assert places == pytest.approx([6, 16, 50])
    # Of equal places the first text is the highest.
    assert styles.spread(np.zeros(2), np.array([10.0, 30.0])) == pytest.approx([10, -10])
    assert styles.spread(np.empty(0), np.empty(0)).shape == (0,)


def contrast(color):
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return 1.05 / (linear @ [0.2126, 0.7152, 0.0722] + 0.05)


def test_text_can_be_read_in_every_colour_and_stays_where_it_is_dark_enough():
    for color in (*styles.SERIES, *styles.ordered(7)):
        assert contrast(styles.text_color(color)) >= styles.LEAST_CONTRAST
    assert styles.text_color(styles.INK) == styles.INK


@pytest.mark.figures
def test_names_of_lines_that_end_at_one_point_do_not_overlap():
    figure, ((ax,),) = styles.panels()
    ax.plot([1, 10], [1, 5])
    styles.log_x(ax, [1, 10])
    styles.label_ends(ax, [styles.End(10, 5, name, styles.BLUE) for name in ("a", "b$", "c\nd")])
    figure.draw_without_rendering()
    boxes = sorted((text.get_window_extent() for text in ax.texts), key=lambda box: box.y0)
    assert all(low.y1 <= high.y0 + 1 for low, high in itertools.pairwise(boxes))
    assert all(box.x0 > ax.transData.transform((10, 5))[0] for box in boxes)
    shown = re.findall(r">([^<>]+)</text>", plots.svg(figure).decode())
    assert {"a", "b$", "1", "10"} <= set(shown)


@pytest.mark.figures
def test_a_figure_is_written_by_its_suffix(tmp_path):
    figure, _ = styles.panels()
    for suffix, start in ((".svg", b"<?xml"), (".pdf", b"%PDF"), (".png", b"\x89PNG")):
        path = tmp_path / f"a{suffix}"
        plots.save_figure(figure, path)
        first = path.read_bytes()
        assert first.startswith(start)
        plots.save_figure(figure, path)
        assert path.read_bytes() == first
