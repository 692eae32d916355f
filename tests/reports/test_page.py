import base64
import dataclasses
import hashlib
import html as standard_html
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drjax.reports import page, plots
from drjax.reports.sections import Advice, Facts, Figure, Report, Table, Text, Verdict, provenance

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
        if self._open and self._open[-1] not in {"style", "script"}:
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


SVG = b"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="72pt"
 viewBox="0 0 72 36"><g id="a"><path id="b" d="M 0.123456 1 L 2 3"/><use xlink:href="#b"/><text>age</text></g></svg>"""


ADVICE = (Advice("Publish instead: less of it.", "drjax embed <a> b"), Advice("Or nothing."))


def report(**changes):
    values = {
        "kind": "a kind of report",
        "title": "PCA of digits",
        "verdict": Verdict("high", "High exposure", "One is rebuilt.", ("Few were tried.",), ("And more.",), ADVICE),
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
        ),
        "details": (
            Figure(title="Curve", caption="Another caption.", svg=SVG, alt="A line."),
            provenance({"drjax": "0.1.0", "commit": None, "x64": False, "versions": {"jax": "0.10", "numpy": "2.0"}}),
        ),
        "warnings": (("KEEP THIS.", ""), ("NO CLAIM.", "Only a measurement.")),
    }
    return Report(**{**values, **changes})


def test_the_page_loads_nothing_from_anywhere_and_runs_nothing_but_its_own_script():
    text = page.render(report())
    shown = Page(text)
    identifiers = {attributes.get("id") for _, attributes in shown.tags}
    for tag, attributes in shown.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "srcset", "data", "action", "poster", "background"}:
                is_within = value.startswith("#") and value[1:] in identifiers
                assert is_within or value.startswith("data:image/png;base64,")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert ".verdict" in style
    assert "url(" not in style
    assert "@import" not in style
    assert "http:" not in text
    assert "https:" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert script == (Path(page.__file__).parent / "script.js").read_text(encoding="utf-8")
    (policy,) = (one["content"] for one in shown.attributes("meta") if "http-equiv" in one)
    assert policy.startswith("default-src 'none';")
    assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_a_page_with_nothing_to_do_has_no_script():
    assert "<script" not in page.render(report(details=()))


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
    assert shown.attributes("script") == [{}]
    assert shown.attributes("img")[0]["alt"] == evil
    assert [one["aria-label"] for one in shown.attributes("svg")] == [evil]
    # Every text once, the title twice, those of sections in the contents too.
    n_sections = len(made.sections) + len(made.details)
    assert shown.text.count(evil) == sum(map(bool, texts_of(made))) + 1 + n_sections
    assert len(texts_of(made)) > 50
    assert standard_html.escape(evil, quote=False).split("&")[0] in text
    # Nothing of it ends an attribute: the tags are those of the page with harmless texts.
    names = [(tag, sorted(attributes)) for tag, attributes in shown.tags]
    assert names == [(tag, sorted(attributes)) for tag, attributes in Page(page.render(report())).tags]


def test_everything_that_the_report_holds_is_on_the_page_in_its_order():
    made = report(notice="For you alone.")
    whole = page.render(made)
    shown = Page(re.sub("<nav.*?</nav>", "", whole, flags=re.DOTALL)).text
    at = shown.index(made.notice)
    sections = (*made.sections, *made.details)
    parts = (made.kind, made.title, *made.warnings, made.verdict, *sections)
    for text in (text for part in parts for text in texts_of(part)):
        assert " ".join(text.split()) in shown
    titles = [one.title for one in sections]
    heads = [made.kind, made.title, "KEEP THIS.", "NO CLAIM.", made.verdict.headline, *titles]
    places = [shown.index(f" {head} ", at) for head in heads]
    assert places == sorted(places)
    assert "<pre><code>a  b\n  c</code></pre>" in whole


def test_the_figures_are_folded_where_advice_stands_in_their_place_and_open_elsewhere():
    def box(**parts):
        whole = page.render(report(verdict=Verdict("high", "High exposure", "So much is rebuilt.", **parts)))
        (found,) = re.findall('aria-labelledby="verdict".*?</section>', whole, re.DOTALL)
        return found

    folded = box(details=("Of a person this.",), advice=ADVICE)
    assert folded.index("Of a person this.") < folded.index("drjax embed &lt;a&gt; b") < folded.index("<details>")
    assert folded.index("<details>") < folded.index("So much is rebuilt.")
    # What a release says of itself has no plainer words beside it.
    for parts in ({}, {"details": ("More of it.",)}, {"advice": ADVICE}):
        assert "<details>" not in box(**parts)
        assert "So much is rebuilt." in box(**parts)


def test_the_contents_lead_to_every_section_and_a_short_page_has_none():
    made = report()
    text = page.render(made)
    (contents,) = re.findall("<nav.*?</nav>", text, re.DOTALL)
    links = dict(re.findall('<a href="#(.*?)">(.*?)</a>', contents))
    assert list(links.values()) == [one.title for one in (*made.sections, *made.details)]
    for anchor, title in links.items():
        assert re.search(rf'<h[23] id="{anchor}">{title}</h[23]>', text)
    assert "<nav" not in page.render(report(sections=made.sections[:2], details=()))


def test_details_are_closed_and_under_a_heading_of_their_own_behind_all_else():
    made = report()
    top, below = page.render(made).split("Details for experts", 1)
    for section in made.sections:
        assert f">{section.title}</h2>" in top
    for section in made.details:
        assert re.search(rf"<details>\s*<summary><h3 id=\S*>{section.title}</h3></summary>", below)
    assert "Details for experts" not in page.render(report(details=()))


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
    tables = [made for made in (*report().sections, *report().details) if isinstance(made, Table)]
    assert [made.is_listing for made in tables] == [False, False, True]


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


def test_drawings_are_elements_of_the_page_whose_names_do_not_clash():
    figure = Figure(title="t", caption="c", svg=SVG, alt="a line")
    text = page.render(report(sections=(figure, figure), details=()))
    for anchor in ("section-1", "section-2"):
        assert f'<path id="{anchor}-b"' in text
        assert f'href="#{anchor}-b"' in text
    assert 'id="a"' not in text


def test_a_drawing_from_a_file_is_the_one_from_its_bytes(tmp_path):
    fig = plots.error_distribution({"a": np.linspace(0.1, 1, 5)}, np.linspace(0.2, 1, 5))
    plots.save_figure(fig, tmp_path / "a.svg")
    texts = [
        page.render(report(sections=(Figure(title="t", caption="c", svg=source, alt="curves"),)))
        for source in (tmp_path / "a.svg", (tmp_path / "a.svg").read_bytes())
    ]
    assert texts[0] == texts[1]
    assert "share of targets at or below</text>" in texts[0]


def test_a_drawing_that_does_more_than_draw_is_refused_by_its_title():
    figure = Figure(title="holiday", caption="c", svg=SVG.replace(b"<text>age</text>", b"<script>1</script>"), alt="a")
    with pytest.raises(ValueError, match="'holiday': svg must only draw, got <script>"):
        page.render(report(sections=(figure,)))


@pytest.mark.parametrize(("images", "got"), [({}, "neither"), ({"png": b"", "svg": b""}, "both")])
def test_a_figure_has_one_picture(images, got):
    with pytest.raises(ValueError, match=f"'t' must be given, and not both, got {got}"):
        Figure(title="t", caption="c", alt="a", **images)


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
    boxes += [one for one in shown.attributes("div") if one.get("class") == "scroll drawing"]
    assert len(boxes) == len(shown.attributes("table")) + 1
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
