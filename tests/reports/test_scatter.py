import html
import re
from pathlib import Path

import numpy as np
import pytest

from drjax.reports import page, scatter
from drjax.reports.scatter import CLASSES, MOST_DRAWN, ScatterPlot
from drjax.reports.sections import Report, Verdict
from tests.reports.test_page import Page

STYLE = (Path(page.__file__).parent / "style.css").read_text(encoding="utf-8")


def plot(n=40, **changes):
    rng = np.random.default_rng(3)
    shares = np.linspace(0, 1.2, n)
    shares[-2:] = np.nan
    values = {
        "title": "The map",
        "points": rng.normal(size=(n, 2)) * [3, 1],
        "shares": shares,
        "labels": tuple(f"P{row:05} (line {row + 2})" for row in range(n)),
        "marked": (0, 1, 2, 3),
        "rebuilt": shares < 0.5,
    }
    return ScatterPlot(**{**values, **changes})


def height(section):
    return float(section.view_box.split()[3])


def rendered(section):
    return page.render(Report(kind="k", title="t", verdict=Verdict("high", "h", "s"), sections=(section,)))


def drawn(text):
    """The plot's element, and class, place and text of each of its points."""
    element = re.search(r'<svg viewBox="0 0 720.*?</svg>', text, re.DOTALL).group(0)
    marks = re.findall(
        r'<path class="left-(\w+)" d="M(\S+) (\S+)h0"(?: data-rank="(\d+)")?><title>(.*?)</title>', element
    )
    return element, [
        (level, float(x), float(y), int(rank or 0), html.unescape(name)) for level, x, y, rank, name in marks
    ]


def test_every_record_is_a_point_where_the_map_has_it():
    section = plot()
    _, marks = drawn(rendered(section))
    by_name = {name.split(":")[0]: (x, y) for _, x, y, _, name in marks}
    assert set(by_name) == set(section.labels)
    places = np.array([by_name[label] for label in section.labels])
    flipped = section.points * [1, -1]  # downwards on a page
    scale = np.ptp(places[:, 0]) / np.ptp(flipped[:, 0])
    expected = (flipped - flipped.mean(axis=0)) * scale  # one unit is as long on both axes
    np.testing.assert_allclose(places - places.mean(axis=0), expected, atol=0.2)  # written in tenths
    assert (places > 0).all()
    assert (places < [720, height(section)]).all()


def test_names_come_with_what_is_left_and_the_most_exposed_are_on_top_and_listed():
    section = plot()
    text = rendered(section)
    _, marks = drawn(text)
    assert marks[-1][3:] == (1, "P00000 (line 2): 0% of a guess's error left; rebuilt")
    assert [mark[3] for mark in marks[-4:]] == [4, 3, 2, 1]
    assert marks[0][::4] == ("none", "P00038 (line 40): not attacked")
    names = [name for level, *_, rank, name in marks if not rank and level != "none"]
    others = [float(name.split(": ")[1].split("%")[0]) for name in names]
    assert others == sorted(others, reverse=True)
    assert "P00037 (line 39): 114% of a guess's error left" in [mark[4] for mark in marks]
    listed = re.findall("<li>(P.*?)</li>", html.unescape(text))
    assert listed == [marks[-1 - i][4] for i in range(4)]
    assert text.count('class="ring"') == 5  # one is the legend's


def test_classes_hold_what_their_words_say_and_the_legend_counts_them():
    shares = np.array([0, 0.0099, 0.01, 0.0999, 0.1, 0.5, 0.99, 1, 7, np.nan])
    section = plot(10, shares=shares, rebuilt=None)
    _, marks = drawn(rendered(section))
    levels = {name.split(" ")[0]: level for level, *_, name in marks}
    assert [levels[f"P{row:05}"] for row in range(10)] == ["0", "0", "1", "1", "2", "3", "3", "4", "4", "none"]
    counts = {words: count for _, words, count in section.legend}
    words = [*(f"{words} left" for words, _ in CLASSES), "not attacked"]
    assert counts == dict(zip(words, (2, 2, 1, 2, 2, 1), strict=True))
    text = Page(rendered(section)).text
    for words, count in counts.items():
        assert f"{words}: {count}" in text


def test_the_words_for_those_who_cannot_see_it_are_those_of_the_data():
    assert plot().alt == (
        "Map of 40 records; 17 are rebuilt; under 1% of a guess's error left for 1; 1% to 10% of a guess's error left "
        "for 3; 10% to 50% of a guess's error left for 13; 50% to 100% of a guess's error left for 16; 100% or more of "
        "a guess's error left for 5; 2 not attacked; most exposed: P00000 (line 2), P00001 (line 3), P00002 (line 4)."
    )
    one = plot(1, points=[[0.0, 0.0]], shares=[0.2], rebuilt=[True], marked=(), labels=("a",))
    assert one.alt == "Map of 1 record; 1 is rebuilt; 10% to 50% of a guess's error left for 1."
    element, _ = drawn(rendered(plot()))
    assert f'role="img" aria-label="{html.escape(plot().alt).replace("&#x27;", "&#39;")}"' in element


def test_of_many_records_a_sample_with_all_marked_ones_is_drawn_and_said():
    n = 12_345
    section = plot(n, marked=(17, 4711, 12_000))
    text = rendered(section)
    _, marks = drawn(text)
    assert len(marks) == MOST_DRAWN
    assert len({name for *_, name in marks}) == MOST_DRAWN
    assert [mark[4].split(" ")[0] for mark in marks[-3:]] == ["P12000", "P04711", "P00017"]
    assert "5,000 of 12,345 records are drawn: the 3 most exposed, and a random sample of the others" in text
    assert sum(count for *_, count in section.legend) == n
    rows = np.sort([int(name[1:6]) for *_, name in marks])
    np.testing.assert_allclose(np.quantile(rows, [0.1, 0.5, 0.9]) / n, [0.1, 0.5, 0.9], atol=0.02)  # 4 deviations
    assert "are drawn" not in rendered(plot(MOST_DRAWN))
    assert "the most exposed one, and" in plot(n, marked=(5,)).note
    assert "chosen at random" in plot(n, marked=()).note


def test_three_thousand_records_take_less_than_half_a_megabyte():
    assert len(rendered(plot(3_000))) < 500_000


@pytest.mark.parametrize("points", [np.zeros((4, 2)), [[0.0, 5.0]] * 2 + [[0.0, -5.0]] * 2, np.eye(4)[:, :2] * 1e-30])
def test_maps_without_extent_are_drawn_within_the_frame(points):
    section = plot(4, points=points)
    _, marks = drawn(rendered(section))
    assert all(0 < x < 720 and 0 < y < height(section) for _, x, y, *_ in marks)


def test_names_from_outside_are_escaped():
    evil = "</title><script>alert(1)</script>\"'&"
    section = plot(3, labels=(evil,) * 3, marked=(0, 1), caption=evil, guess=evil)
    shown = Page(rendered(section))
    assert shown.attributes("script") == [{}]
    assert evil in next(one["aria-label"] for one in shown.attributes("svg") if "aria-label" in one)
    assert "<script>alert" not in rendered(section)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"points": np.zeros((0, 2))}, "points must be a non-empty array"),
        ({"points": np.zeros((40, 3))}, "points must have 2 columns, got 3"),
        ({"points": np.full((40, 2), np.nan)}, "points must be finite"),
        ({"shares": np.zeros(39)}, r"shares must have one entry for each of 40 points, got shape \(39,\)"),
        ({"labels": ("a",)}, "labels must have one entry for each of 40 points"),
        ({"rebuilt": [True]}, "rebuilt must have one entry for each of 40 points"),
        ({"shares": np.full(40, -0.1)}, "shares must be finite and >= 0, or nan where nothing was attacked, got -0.1"),
        ({"shares": np.full(40, np.inf)}, "shares must be finite and >= 0, .* got inf"),
        ({"marked": (40,)}, "marked must be <= the last index = 39, got 40"),
        ({"marked": (-1,)}, "marked must be an integer >= 0, got -1"),
        ({"marked": (1, 1)}, r"marked must name each record once, got \(1, 1\)"),
    ],
)
def test_bad_input_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        plot(**changes)


def colours(block, names):
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    return [np.array([int(found[name][i : i + 2], 16) / 255 for i in (1, 3, 5)]) for name in names]


def linear(colour):
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    a, b = (linear(colour) @ [0.2126, 0.7152, 0.0722] + 0.05 for colour in (one, other))
    return np.maximum(a, b) / np.minimum(a, b)


# Machado, Oliveira & Fernandes (2009), severity 1: what people see who lack one kind of cone.
SEEN = (
    np.eye(3),
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
)
# Oklab of Ottosson (2020): distances are differences as they are seen.
TO_CONES = np.array(
    [[0.41222147, 0.53633254, 0.05144599], [0.2119035, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.629978700]]
)
TO_OKLAB = np.array(
    [[0.21045426, 0.79361779, -0.00407205], [1.9779985, -2.42859221, 0.45059371], [0.02590404, 0.78277177, -0.80867577]]
)


@pytest.mark.parametrize("place", [0, 1])
def test_colours_are_told_apart_by_everybody_on_light_and_dark(place):
    block = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[place]
    card, *own = colours(block, ("card", *(f"left-{level}" for level in range(5))))
    steps = contrast(np.array(own), card)
    assert (steps >= 3).all()  # of WCAG 2.2 for what is drawn
    assert (np.diff(steps) < -0.5).all()  # the more exposed, the more it stands out
    for matrix in SEEN:
        seen = np.cbrt(np.clip(linear(np.array(own)) @ np.transpose(matrix), 0, 1) @ TO_CONES.T) @ TO_OKLAB.T
        gaps = np.linalg.norm(seen[:, None] - seen[None], axis=2)
        assert gaps[~np.eye(5, dtype=bool)].min() > 0.1


def test_there_is_a_colour_for_every_class():
    for level in (*range(len(CLASSES)), scatter.NO_LEVEL):
        assert f".left-{level} {{ stroke: var(--left-{level})" in STYLE or f".left-{level}, " in STYLE
