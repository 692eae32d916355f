import re
from xml.etree import ElementTree

import numpy as np
import pytest

from drjax.reports import plots, svg
from tests.reports.test_plots import baselines, row

pytestmark = pytest.mark.figures

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 10 20">'


def drawing(content):
    return f"{HEAD}{content}</svg>".encode()


def inline(content):
    return svg.inline(drawing(content), prefix="p", label="what it shows")


def drawn():
    rng = np.random.default_rng(0)
    errors = {f"attack {i} <&": rng.lognormal(size=3000) * 10.0**-i for i in range(3)}
    return [
        plots.error_distribution(errors, rng.lognormal(size=3000)),
        plots.ladder([*baselines(), row("closed form", 4e-7)]),
    ]


@pytest.mark.parametrize("place", [0, 1])
def test_a_drawing_of_matplotlib_scales_loads_nothing_and_keeps_its_words(place):
    content = plots.svg(drawn()[place])
    made = svg.inline(content, prefix="figure-3", label='a "line" <up>')
    root = ElementTree.fromstring(made)
    assert root.tag == "svg"  # in no namespace: HTML knows it
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == 'a "line" <up>'
    assert "width" not in root.attrib
    assert "height" not in root.attrib
    assert "--width: 619.2;" in root.attrib["style"]
    for outside in ("http", "<?xml", "<!DOCTYPE", "<style", "metadata", "xlink", "xmlns"):
        assert outside not in made
    words = ElementTree.fromstring(re.sub(rb' xmlns="[^"]*"', b"", content)).itertext()
    sentences = {text.strip() for text in words if len(text.strip()) > 5 and "stroke" not in text}
    assert len(sentences) > 3
    assert sentences <= set(root.itertext())
    # Rounding to a hundredth of a point, and no more.
    assert len(made) < 0.75 * len(content)


def test_ids_differ_between_drawings_and_references_follow_them():
    content = plots.svg(drawn()[0])
    names = []
    for prefix in ("a", "b"):
        root = ElementTree.fromstring(svg.inline(content, prefix=prefix, label="x"))
        own = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
        text = ElementTree.tostring(root, encoding="unicode")
        assert set(re.findall(r'(?:url\(|href=")#([^")]*)', text)) == own
        assert own
        names.append(own)
    assert not names[0] & names[1]


def test_equal_figures_are_equal_files():
    assert plots.svg(drawn()[1]) == plots.svg(drawn()[1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<script>alert(1)</script>", "must only draw, got <script>"),
        ("<foreignObject/>", "must only draw, got <foreignObject>"),
        ("<style>p {color: red}</style>", "must only draw, got <style>"),
        ('<path onclick="alert(1)"/>', "must only draw, got onclick='alert"),
        ('<use xlink:href="https://elsewhere/a.svg#b"/>', "must only draw, got href='https"),
        ('<use href="javascript:alert(1)"/>', "must only draw, got href='javascript"),
        ('<image href="https://elsewhere/a.png"/>', "must only draw, got href='https"),
        ('<path style="fill: url(https://elsewhere/a.svg#b)"/>', "must refer to nothing but itself, got style='fill"),
    ],
)
def test_a_drawing_that_acts_or_loads_is_refused(content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        inline(content)


def test_pictures_within_a_drawing_stay():
    assert 'href="data:image/png;base64,AAAA"' in inline('<image href="data:image/png;base64,AAAA"/>')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG", "must be an SVG image"),
        (b"<svg/>", r"with a viewBox, got <svg> with \[\]"),
        (b'<g viewBox="0 0 1 1"/>', "must be an <svg> element with a viewBox, got <g>"),
    ],
)
def test_what_is_no_svg_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        svg.inline(content, prefix="p", label="x")


def test_the_kind_of_file_suits_the_figure(tmp_path):
    curve, grid = drawn()[0], plots.image_grid(np.zeros((2, 4)), {"a": np.ones((2, 4))}, (2, 2))
    assert [plots.suffix(one) for one in (curve, grid)] == [".svg", ".png"]
    for one in (curve, grid):
        plots.save_figure(one, tmp_path / f"figure{plots.suffix(one)}")
    assert (tmp_path / "figure.svg").read_bytes().startswith(b"<?xml")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
