import base64
import dataclasses
import html as standard_html
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from drjax.reports import page, plots
from drjax.reports.sections import Facts, Figure, Report, Table, Text, Verdict, provenance

pytestmark = pytest.mark.figures

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Collects tags with attributes and the visible text, and checks that every tag is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self._open = [], [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    def attributes(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def png(value=0.5):
    buffer = io.BytesIO()
    Image.fromarray(np.full((6, 9), int(255 * value), np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def report(**changes):
    values = {
        "kind": "a kind of report",
        "title": "PCA of digits",
        "verdict": Verdict("high", "High exposure", "One is rebuilt.", ("Few were tried.",), ("And more.",)),
        "sections": (
            Text(title="Words", paragraphs=("First.", "Second."), points=("One point.", "Another."), code="a  b\n  c"),
            Facts(title="Facts", paragraphs=("In short.",), facts=(("Records", "1,200"), ("Method", "PCA"))),
            Facts(title="Terms", facts=(("MSE", "How far off."),), is_glossary=True),
            Table(
                title="Figures",
                paragraphs=("Read so.",),
                headers=("Attack", "Error", "In words"),
                rows=(("mean", ("0.07", "0.06 to 0.08"), "none"), ("ridge", ("0.04",), "some"), ("net", "0.03", "all")),
                caption="Small print.",
                note="Below.",
                text_columns=(2,),
                strongest=2,
                baselines=(0,),
            ),
            Table(title="No heads", headers=("A", "B"), rows=(("", "1"), ("", "2")), has_row_heads=False),
            Figure(title="Grid", caption="A caption.", png=png(), alt="Two rows of digits."),
            provenance({"drjax": "0.1.0", "commit": None, "x64": False, "versions": {"jax": "0.10", "numpy": "2.0"}}),
        ),
        "warnings": (("KEEP THIS.", ""), ("NO CLAIM.", "Only a measurement.")),
    }
    return Report(**{**values, **changes})


def test_the_page_loads_nothing_from_anywhere_and_runs_nothing():
    text = page.render(report())
    shown = Page(text)
    for tag, attributes in shown.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "srcset", "data", "action", "poster", "background"}:
                assert value.startswith("data:image/png;base64,")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert ".verdict" in style
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in text.replace(shown.attributes("img")[0]["src"], "")


def texts_of(value):
    """Every text in a report but its level, however deep."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, tuple):
        return [text for entry in value for text in texts_of(entry)]
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in {"level", "alt"}]
        return [text for name in names for text in texts_of(getattr(value, name))]
    return []


def with_texts(value, text):
    """The report with `text` in place of each of its texts."""
    if isinstance(value, str):
        return text if value else value
    if isinstance(value, tuple):
        return tuple(with_texts(entry, text) for entry in value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name != "level"]
        return dataclasses.replace(value, **{name: with_texts(getattr(value, name), text) for name in names})
    return value


def test_every_text_from_outside_is_escaped():
    evil = '<script>alert("1")</script>&\'"{{ 7 * 7 }}$x$'
    made = with_texts(report(), evil)
    text = page.render(made)
    shown = Page(text)
    assert not shown.attributes("script")
    assert shown.attributes("img")[0]["alt"] == evil
    # Every text once, the title twice.
    assert shown.text.count(evil) == sum(map(bool, texts_of(made))) + 1
    assert len(texts_of(made)) > 50
    assert standard_html.escape(evil, quote=False).split("&")[0] in text
    # Nothing of it ends an attribute: the tags are those of the page with harmless texts.
    names = [(tag, sorted(attributes)) for tag, attributes in shown.tags]
    assert names == [(tag, sorted(attributes)) for tag, attributes in Page(page.render(report())).tags]


def test_everything_that_the_report_holds_is_on_the_page_in_its_order():
    made = report()
    shown = Page(page.render(made)).text
    at = shown.index(made.kind)
    parts = (made.title, *made.warnings, made.verdict, *made.sections)
    for text in (text for part in parts for text in texts_of(part)):
        assert " ".join(text.split()) in shown
    heads = [made.title, "KEEP THIS.", "NO CLAIM.", made.verdict.headline, *(one.title for one in made.sections)]
    places = [shown.index(f" {head} ", at) for head in heads]
    assert places == sorted(places)
    assert "<pre><code>a  b\n  c</code></pre>" in page.render(made)


def test_provenance_says_what_is_not_known_in_words():
    shown = Page(page.render(report())).text
    for text in ("commit not known", "x64 no", "versions jax 0.10, numpy 2.0"):
        assert text in shown


def test_rows_of_a_table_are_marked_and_figures_have_their_small_print():
    text = page.render(report())
    table, bare = re.findall(r"<table.*?</table>", text, re.DOTALL)[:2]
    lines = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    assert re.findall(r'<th scope="col"(?: class="text")?>(.*?)</th>', lines[0]) == ["Attack", "Error", "In words"]
    assert [re.findall('class="(best|baseline)"', line) for line in lines] == [[], ["baseline"], [], ["best"]]
    assert [re.findall('class="tag">(.*?)<', line) for line in lines] == [[], ["baseline"], [], ["strongest"]]
    assert '<td><span class="figure">0.07</span><span class="detail">0.06 to 0.08</span></td>' in lines[1]
    assert '<td><span class="figure">0.04</span></td>' in lines[2]
    assert "<td>0.03</td>" in lines[3]
    assert table.count('<td class="text">') == 3
    assert bare.count("<td>") == 4
    assert 'scope="row"' not in bare
    assert [made.is_listing for made in report().sections if isinstance(made, Table)] == [False, False, True]


def test_a_row_that_lacks_a_cell_is_refused():
    with pytest.raises(ValueError, match="rows of 'Figures' must have 2 cells each, got 1"):
        Table(title="Figures", headers=("A", "B"), rows=(("1", "2"), ("1",)))


@pytest.mark.parametrize("from_file", [False, True])
def test_figures_are_embedded_as_they_are_with_their_alt_text(from_file, tmp_path):
    fig = plots.error_distribution({"a": np.linspace(0.1, 1, 5)}, np.linspace(0.2, 1, 5))
    plots.save_figure(fig, tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    figure = Figure(title="t", caption="c", png=tmp_path / "a.png" if from_file else content, alt="curves")
    images = Page(page.render(report(sections=(figure, figure)))).attributes("img")
    assert len(images) == 2
    for image in images:
        assert image["alt"] == "curves"
        decoded = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
        assert decoded == content
        Image.open(io.BytesIO(decoded)).verify()


def test_a_figure_that_is_no_png_is_refused_by_its_title():
    figure = Figure(title="holiday", caption="c", png=b"\xff\xd8\xff jpeg", alt="a")
    with pytest.raises(ValueError, match="'holiday' must be a PNG"):
        page.render(report(sections=(figure,)))


def test_tables_have_heads_and_every_section_is_named_by_an_existing_heading():
    shown = Page(page.render(report()))
    assert shown.attributes("html") == [{"lang": "en"}]
    assert all(attributes.get("scope") in {"col", "row"} for attributes in shown.attributes("th"))
    identifiers = [attributes["id"] for _, attributes in shown.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    sections = shown.attributes("section")
    assert [one for one in sections if one.get("role") == "note"] == sections[:2]  # the warnings are headings
    assert {attributes["aria-labelledby"] for attributes in sections[2:]} <= set(identifiers)
    boxes = [one for one in shown.attributes("div") if one.get("class") == "scroll"]
    assert len(boxes) == len(shown.attributes("table"))
    # Who has no mouse scrolls by keys, which takes focus.
    assert all(box["tabindex"] == "0" and box["aria-labelledby"] in identifiers for box in boxes)


@pytest.mark.parametrize("level", ["high", "not shown", "undetermined"])
def test_the_verdict_box_has_the_look_of_its_level(level):
    text = page.render(report(verdict=Verdict(level, "So.", "So it is.")))
    style = level.replace(" ", "-")
    assert f'<section class="verdict {style}" aria-labelledby="verdict"' in text
    assert f".verdict.{style} " in text


def test_a_report_that_cannot_be_rendered_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    page.write(report(), path)
    old = path.read_text(encoding="utf-8")
    assert old == page.render(report())
    with pytest.raises(ValueError, match="must be a PNG"):
        page.write(report(sections=(Figure(title="t", caption="c", png=b"", alt="a"),)), path)
    assert path.read_text(encoding="utf-8") == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
