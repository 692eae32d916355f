import dataclasses
import html
import re

import numpy as np
import pytest

from drjax.attacks.column_gain import ColumnGain
from drjax.attacks.gain import Gain
from drjax.attacks.metrics import AttackScores
from drjax.audits import legal_terms, quality
from drjax.audits.report import GLOSSARY, LIMITATIONS, audit_report, release_facts, save_figures
from drjax.core.statistics import Interval
from drjax.reports import page, plots
from drjax.reports.ladder import HEADERS, LadderRow, cells, verdict
from drjax.reports.scatter import ScatterPlot
from drjax.reports.sections import Table
from drjax.reports.verdict_rule import VERDICT_RULE


def row(label, mse, success, *, is_baseline=False, excluded=0):
    share = Interval(success, success * 0.9, min(1.0, success * 1.05))
    error = Interval(mse, mse * 0.8, mse * 1.3)
    gain = Gain(Interval(0.2, 0.1, 0.3), share, share)
    scores = AttackScores(500, excluded, error, error, share, share, 0.001, 0.1, gain)
    return LadderRow(label=label, description=f"What {label} does.", scores=scores, is_baseline=is_baseline)


ROWS = (
    row("mean record", 0.07, 0.0, is_baseline=True),
    row("nearest neighbour", 0.03, 0.0, is_baseline=True),
    row("ridge", 0.04, 0.02, excluded=3),
    row("closed form", 4e-7, 0.99),
    row("network", 0.03, 0.4),
)


def facts(**changes):
    values = {"method": "PCA", "dataset": "digits", "n_records": 1200, "n_features": 64, "n_components": 2}
    return release_facts(**{**values, "precision": "float32", **changes})


def report(**changes):
    values = {
        "title": "PCA of digits",
        "verdict": verdict(ROWS),
        "release": facts(),
        "rows": ROWS,
        "assumptions": ("The adversary knows all other records.",),
        "status_counts": {"shadow releases": {"OK": 4000, "SMALL_GAP": 2}, "attack": {"OK": 500}},
        "command": "drjax audit --seed 0",
        "provenance": {"drjax": "0.1.0", "versions": {"jax": "0.10", "numpy": "2.0"}},
    }
    return audit_report(**{**values, **changes})


def text_of(made):
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page.render(made).split("</style>")[1])).split())


def test_every_row_of_the_ladder_is_shown_with_all_its_figures_and_excluded_counts():
    text = page.render(report())
    ladder = re.search(r"<table.*?</table>", text[text.index("What the attacks took back") :], re.DOTALL).group(0)
    lines = re.findall(r"<tr.*?</tr>", ladder, re.DOTALL)
    assert re.findall(r'<th scope="col">(.*?)</th>', lines[0]) == list(HEADERS)
    assert len(lines) == 1 + len(ROWS)
    for line, made_row in zip(lines[1:], ROWS, strict=True):
        shown = html.unescape(line)
        for entry in (entry for cell in cells(made_row) for entry in cell):
            assert f">{entry}<" in shown or f">{entry} <" in shown
        assert ('class="baseline"' in line) == made_row.is_baseline
        assert ('class="best"' in line) == (made_row.label == "closed form")
    assert "3 excluded" in ladder
    assert ladder.count("0 excluded") == len(ROWS) - 1


def test_everything_a_reader_needs_is_on_the_page():
    made = report(winner="The strongest was this.")
    shown = text_of(made)
    expected = [
        made.verdict.headline,
        made.verdict.sentence,
        VERDICT_RULE,
        "For each of 1,200 private records, 2 numbers computed from its 64 features.",
        "The adversary knows all other records.",
        "OK: 4,000, SMALL_GAP: 2",
        "drjax audit --seed 0",
        "jax 0.10, numpy 2.0",
        "The strongest was this.",
        *(f"What {made_row.label} does." for made_row in ROWS),
        *LIMITATIONS,
        *(term for pair in GLOSSARY for term in pair),
    ]
    for sentence in expected:
        assert sentence in shown


def test_what_every_reader_needs_is_open_and_what_experts_ask_for_is_folded_behind_it_and_reached_from_the_contents():
    names = ("Instead", "A table", "A measure", quality.TITLE)
    instead, table, measured, embedded = (Table(title=name, headers=("A",), rows=(("1",),)) for name in names)
    plot = ScatterPlot(title="The map", points=np.eye(2), shares=np.zeros(2), labels=("a", "b"))
    made = report(instead=(instead,), tables=(table,), measured=(embedded, plot, measured))
    assert [section.title for section in made.sections] == [
        "The map",
        "Instead",
        "A table",
        "What the attacks took back",
        "A measure",
        "What was released",
        "What was assumed",
        "What this report does not show",
        "How to rerun",
    ]
    assert [section.title for section in made.details] == [
        "The attacks and baselines in words",
        quality.TITLE,
        "How the verdict was reached",
        "Numerical status of every computation",
        "Annex: terms of data protection law",
        "Terms",
        "Provenance",
    ]
    text = page.render(made)
    listed = re.search(r"<nav.*?</nav>", text, re.DOTALL).group(0)
    for section in (*made.sections, *made.details):
        anchor = re.search(rf'href="#([^"]*)">{re.escape(section.title)}<', listed).group(1)
        assert f'id="{anchor}">{section.title}<' in text


def test_a_summary_stands_in_place_of_the_counts_and_one_number_is_one():
    assert facts(summary="A network.", components="Parameters").paragraphs == ("A network.",)
    assert facts(components="Parameters").facts[-1] == ("Parameters", "2")
    assert "1 number computed" in facts(n_components=1).paragraphs[0]


def test_a_ladder_without_attacks_is_no_report():
    with pytest.raises(ValueError, match="at least one attack"):
        report(rows=ROWS[:2])


@pytest.mark.figures
def test_figures_are_saved_and_become_sections(tmp_path):
    drawing = plots.error_distribution({"a": [0.1, 0.2]}, [0.2, 0.3])
    (figure,) = save_figures(tmp_path, [("errors", drawing, ("Errors", "How far off.", "A curve."))])
    assert (figure.title, figure.caption, figure.alt) == ("Errors", "How far off.", "A curve.")
    assert figure.png is None
    assert figure.svg == tmp_path / "figures" / "errors.svg"
    assert b"<svg" in figure.svg.read_bytes()
    pictures = plots.image_grid([[0.0, 1.0]], {"a": [[0.5, 0.5]]}, (1, 2))
    (figure,) = save_figures(tmp_path, [("worst", pictures, ("Worst", "How far off.", "A grid."))])
    assert figure.svg is None
    assert figure.png == tmp_path / "figures" / "worst.png"
    assert figure.png.read_bytes().startswith(b"\x89PNG")


def annexed(rows):
    return {row[0]: " ".join(row[1:]) for row in legal_terms.annex(rows).rows}


def test_the_annex_maps_legal_terms_to_figures_with_sources_and_claims_no_compliance():
    scores = dataclasses.replace(ROWS[3].scores, columns=ColumnGain(26, 7, 2, "age", 0.95), n_singled=4)
    found = annexed((*ROWS[:3], dataclasses.replace(ROWS[3], scores=scores)))
    assert "495 of 500 attacked records were told from all of 1,000 candidates" in found["Singling out"]
    assert "4 are rebuilt beyond what chance explains" in found["Singling out"]
    assert "Of 26 columns or features" in found["Inference"]
    assert "7 are learned better than a guess without the release, 2 of them nearly whole" in found["Inference"]
    assert "Not tested" in found["Linkability"]
    for term, source in (
        ("Singling out", "WP216"),
        ("Linkability", "WP216"),
        ("Inference", "WP216"),
        ("Means reasonably likely to be used", "recital 26"),
        ("Expert determination", "45 CFR 164.514(b)(1)"),
        ("Data protection impact assessment (DPIA)", "article 35"),
    ):
        assert source in found[term]
    shown = text_of(report())
    assert "This annex is not legal advice and claims no compliance." in shown
    assert "complies" not in shown
    assert "compliant" not in shown


def test_the_annex_says_where_nothing_was_measured():
    nothing = dataclasses.replace(ROWS[3].scores, n_excluded=500)
    found = annexed((*ROWS[:2], dataclasses.replace(ROWS[3], scores=nothing)))
    assert "Nothing could be measured" in found["Singling out"]
    assert "No column could be compared" in found["Inference"]
    # Whether single records are exposed was not looked at.
    assert "beyond what chance explains" not in annexed(ROWS)["Singling out"]
