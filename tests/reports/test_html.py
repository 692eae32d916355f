import base64
import dataclasses
import html as standard_html
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from drjax.attacks.metrics import AttackScores, Gain
from drjax.core.statistics import Interval
from drjax.reports import html, plots
from drjax.reports.ladder import HEADERS, LadderRow, cells, verdict

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


def row(label, mse, success, *, is_baseline=False, excluded=0):
    share = Interval(success, success * 0.9, min(1.0, success * 1.05))
    error = Interval(mse, mse * 0.8, mse * 1.3)
    gain = Gain(Interval(0.2, 0.1, 0.3), share, share)
    scores = AttackScores(500, excluded, error, error, share, share, 0.001, 0.1, gain)
    return LadderRow(label=label, description=f"What {label} does.", scores=scores, is_baseline=is_baseline)


def png(value=0.5):
    buffer = io.BytesIO()
    Image.fromarray(np.full((6, 9), int(255 * value), np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def report(**changes):
    rows = (
        row("mean record", 0.07, 0.0, is_baseline=True),
        row("nearest neighbour", 0.03, 0.0, is_baseline=True),
        row("ridge", 0.04, 0.02, excluded=3),
        row("closed form", 4e-7, 0.99),
        row("network", 0.03, 0.4),
    )
    made = html.AuditReport(
        title="PCA of digits",
        verdict=verdict(rows),
        release=html.Release(
            method="PCA", dataset="digits", n_records=1200, n_features=64, n_components=2, precision="float32"
        ),
        rows=rows,
        figures=(html.ReportFigure(title="Grid", caption="A caption.", png=png(), alt="Two rows of digits."),),
        assumptions=("The adversary knows all other records.",),
        status_counts={"shadow releases": {"OK": 4000, "SMALL_GAP": 2}, "attack": {"OK": 500}},
        command="drjax audit --seed 0",
        provenance={"drjax": "0.1.0", "commit": None, "x64": False, "versions": {"jax": "0.10", "numpy": "2.0"}},
    )
    return dataclasses.replace(made, **changes)


def test_the_page_loads_nothing_from_anywhere_and_runs_nothing():
    text = html.render(report())
    page = Page(text)
    for tag, attributes in page.tags:
        assert tag not in {"script", "link", "iframe", "object", "embed", "base"}
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in {"src", "href", "srcset", "data", "action", "poster", "background"}:
                assert value.startswith("data:image/png;base64,")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in text.replace(page.attributes("img")[0]["src"], "")


def test_every_text_from_outside_is_escaped():
    evil = '<script>alert("1")</script>&\'"'
    rows = (row(evil, 0.01, 0.5),)
    made = report(
        title=evil,
        rows=rows,
        verdict=verdict(rows),
        release=dataclasses.replace(report().release, dataset=evil, method=evil, precision=evil),
        figures=(html.ReportFigure(title=evil, caption=evil, png=png(), alt=evil),),
        assumptions=(evil,),
        status_counts={evil: {evil: 1}},
        command=evil,
        provenance={evil: evil},
    )
    text = html.render(made)
    page = Page(text)
    assert not page.attributes("script")
    assert page.attributes("img")[0]["alt"] == evil
    # Title twice; label in both tables and the verdict; description; three of the release; two of the figure;
    # assumption; two of the status; command; two of the provenance.
    assert page.text.count(evil) == 2 + 3 + 1 + 3 + 2 + 1 + 2 + 1 + 2
    assert standard_html.escape(evil, quote=False).split("&")[0] in text


def test_every_row_of_the_ladder_is_shown_with_all_its_figures_and_excluded_counts():
    made = report()
    text = html.render(made)
    ladder = re.search(r'<table class="ladder">.*?</table>', text, re.DOTALL).group(0)
    lines = re.findall(r"<tr.*?</tr>", ladder, re.DOTALL)
    assert re.findall(r'<th scope="col">(.*?)</th>', lines[0]) == list(HEADERS)
    assert len(lines) == 1 + len(made.rows)
    for line, made_row in zip(lines[1:], made.rows, strict=True):
        shown = Page(line).text
        for entry in (entry for cell in cells(made_row) for entry in cell):
            assert entry in shown
        assert ('class="baseline"' in line) == made_row.is_baseline
        assert ('class="best"' in line) == (made_row.label == "closed form")
    assert "3 excluded" in ladder
    assert ladder.count("0 excluded") == len(made.rows) - 1


def test_everything_a_reader_needs_is_on_the_page():
    made = report()
    shown = Page(html.render(made)).text
    expected = [
        made.verdict.headline,
        made.verdict.sentence,
        made.verdict_rule,
        "For each of 1,200 private records, 2 numbers",
        "The adversary knows all other records.",
        "OK: 4,000, SMALL_GAP: 2",
        "drjax audit --seed 0",
        "jax 0.10, numpy 2.0",
        "not known",
        "A caption.",
        *(f"What {made_row.label} does." for made_row in made.rows),
        *html.LIMITATIONS,
        *(term for pair in html.GLOSSARY for term in pair),
    ]
    for sentence in expected:
        assert sentence in shown


@pytest.mark.parametrize("from_file", [False, True])
def test_figures_are_embedded_as_they_are_with_their_alt_text(from_file, tmp_path):
    fig = plots.error_distribution({"a": np.linspace(0.1, 1, 5)}, np.linspace(0.2, 1, 5))
    plots.save_figure(fig, tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    figure = html.ReportFigure(title="t", caption="c", png=tmp_path / "a.png" if from_file else content, alt="curves")
    page = Page(html.render(report(figures=(figure, figure))))
    images = page.attributes("img")
    assert len(images) == 2
    for image in images:
        assert image["alt"] == "curves"
        decoded = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
        assert decoded == content
        Image.open(io.BytesIO(decoded)).verify()


def test_a_figure_that_is_no_png_is_refused_by_its_title():
    figure = html.ReportFigure(title="holiday", caption="c", png=b"\xff\xd8\xff jpeg", alt="a")
    with pytest.raises(ValueError, match="'holiday' must be a PNG"):
        html.render(report(figures=(figure,)))


def test_tables_have_heads_and_every_section_is_named_by_an_existing_heading():
    page = Page(html.render(report()))
    assert page.attributes("html") == [{"lang": "en"}]
    assert all(attributes.get("scope") in {"col", "row"} for attributes in page.attributes("th"))
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    labels = [attributes["aria-labelledby"] for attributes in page.attributes("section")]
    assert set(labels) <= set(identifiers)


@pytest.mark.parametrize(("success", "style"), [(0.9, "high"), (0.001, "not-shown")])
def test_the_verdict_box_has_the_look_of_its_level(success, style):
    rows = (row("attack", 0.01, success),)
    rows = (dataclasses.replace(rows[0], scores=dataclasses.replace(rows[0].scores, identification_chance=0.5)),)
    text = html.render(report(rows=rows, verdict=verdict(rows)))
    assert f'<section class="verdict {style}"' in text
    assert f".verdict.{style} " in text


def test_a_report_that_cannot_be_rendered_leaves_the_old_one(tmp_path):
    path = tmp_path / "report.html"
    html.write(report(), path)
    old = path.read_text(encoding="utf-8")
    assert old == html.render(report())
    with pytest.raises(ValueError, match="at least one attack"):
        html.write(report(rows=()), path)
    assert path.read_text(encoding="utf-8") == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_the_quality_of_the_release_is_a_section_only_where_it_is_known():
    rows = (html.QualityRow("Trust <1>", ("0.98", "0.97 to 0.99"), "How to read it."),)
    known = html.ReleaseQuality(lead="Keeps 60%.", reading="Read so.", caption="Of 5 neighbours.", rows=rows)
    page = Page(html.render(report(quality=known)))
    for text in ("How good the release is as an embedding", "Keeps 60%. Read so.", "Of 5 neighbours.", "Trust <1>"):
        assert text in page.text
    assert "0.97 to 0.99" in page.text
    assert "How good the release is as an embedding" not in Page(html.render(report())).text
