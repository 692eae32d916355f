"""Words and legends in pictures."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from drjax.attacks.property import text


def drawn(*, words=(), discs=(), crosses=(), size=14):
    """(120, 200) whether a pixel is drawn."""
    image = Image.new("L", (200, 120))
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for x, y, word in words:
        pen.text((x, y), word, 255, font)
    for x, y in discs:
        pen.ellipse((x - 4, y - 4, x + 4, y + 4), 255)
    for x, y in crosses:
        pen.line((x - 4, y - 4, x + 4, y + 4), 255)
        pen.line((x - 4, y + 4, x + 4, y - 4), 255)
    return np.asarray(image) > 100


@pytest.mark.parametrize("size", [10, 14, 24])
def test_a_word_is_found_and_a_disc_is_none(size):
    pixels = drawn(words=[(60, 40, "class 1")], discs=[(20, 20), (31, 20), (150, 90)], size=size)
    boxes = text.words(pixels, np.zeros_like(pixels))
    rows, columns = np.nonzero(drawn(words=[(60, 40, "class 1")], size=size))
    assert min(box[0] for box in boxes) == columns.min()
    assert max(box[2] for box in boxes) == columns.max() + 1
    assert all(box[1] >= rows.min() and box[3] <= rows.max() + 1 for box in boxes)


def test_crosses_here_and_there_and_what_touches_a_marker_are_no_words():
    pixels = drawn(crosses=[(20, 20), (60, 25), (100, 80)])
    assert text.words(pixels, np.zeros_like(pixels)) == []
    pixels = drawn(words=[(60, 40, "il")])
    assert text.words(pixels, pixels) == []


def test_markers_left_of_words_are_a_legend_if_they_are_in_a_column():
    boxes = [(40, 10, 80, 20), (40, 30, 80, 40), (120, 60, 160, 70)]
    centres = np.array([[30.0, 15.0], [30.4, 35.0], [110.0, 65.0], [20.0, 15.0], [30.0, 90.0]])
    assert text.in_legend(boxes, centres).tolist() == [True, True, False, False, False]
    assert not text.in_legend(boxes[:1], centres).any()
