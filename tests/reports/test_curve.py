import math

import numpy as np
import pytest
from rich.console import Console

from drjax.attacks.gain import Gain
from drjax.attacks.metrics import AttackScores
from drjax.core.statistics import UNKNOWN, Interval
from drjax.reports import curve, page
from drjax.reports.curve import CurvePoint, DefenseCurve
from drjax.reports.ladder import LadderRow
from drjax.reports.plots import save_figure
from drjax.reports.sections import Report, Verdict

pytestmark = pytest.mark.figures


def scores(mse, share=0.5):
    around = Interval(share, max(0, share - 0.1), min(1, share + 0.1))
    error, gain = Interval(mse, 0.9 * mse, 1.1 * mse), Gain(around, around, around)
    return AttackScores(50, 0, error, Interval(mse, mse, mse), around, around, 0.01, 1e-3, gain)


def point(scale, *, accuracy=0.7, **changes):
    values = {
        "scale": scale,
        "trustworthiness": Interval(0.9 - scale, 0.88 - scale, 0.92 - scale),
        "knn_preservation": Interval(0.4, 0.3, 0.5),
        "knn_accuracy": None if accuracy is None else Interval(accuracy, accuracy - 0.1, accuracy + 0.1),
        "adaptive": scores(0.001 + 0.1 * scale),
        "adaptive_label": "Kernel [adaptive]",
        "non_adaptive": scores(0.001 + 0.2 * scale),
        "status_counts": {"OK": 50},
    }
    return CurvePoint(**{**values, **changes})


def made(*points, **changes):
    values = {
        "defense": "Noise <b>",
        "unit": "pixels",
        "points": points or (point(0.0), point(0.1), point(0.4)),
        "non_adaptive_label": "Ridge",
        "baselines": (LadderRow(label="Mean record", description=".", scores=scores(0.06, 0.0), is_baseline=True),),
        "majority": 0.1,
    }
    return DefenseCurve(**{**values, **changes})


def test_table_has_both_adversaries_at_each_scale_and_the_baselines():
    rows = curve.cells(made())
    assert [row[0][0] for row in rows] == ["0", "0.1", "", "0.4", "", ""]
    pair = ["adaptive", "non-adaptive"]
    assert [row[3][0] for row in rows] == ["either", *pair, *pair, "Mean record"]
    assert all(len(row) == len(curve.HEADERS) for row in rows)
    assert rows[1][4] == ("0.011", "0.0099 to 0.012")
    assert rows[2][4][0] == "0.021"
    assert rows[1][1] == ("0.800", "0.780 to 0.820")


def test_lead_has_the_figures_of_the_ends():
    text = curve.lead(made())
    for words in ("0.0010", "at scale 0.4", "0.041", "mean record: 0.060", "from 0.900 to 0.500", "labels"):
        assert words in text
    assert "Not tried here" not in text
    assert curve.lead(made(left_out=("Inversion",))).endswith("because each scale would take minutes: Inversion.")
    assert "labels" not in curve.lead(made(point(0.0, accuracy=None), point(0.1, accuracy=None), majority=None))


def test_sections_are_rendered_escaped_with_the_figure(tmp_path):
    shown = made()
    save_figure(curve.figure(shown), tmp_path / "c.svg")
    report = Report(
        kind="audit",
        title="t",
        verdict=Verdict("high", "High", "So much."),
        sections=curve.sections_of(shown, tmp_path / "c.svg"),
    )
    text = page.render(report)
    assert "Noise &lt;b&gt;, scale = pixels." in text
    assert "Noise <b>" not in text
    assert f'role="img" aria-label="{curve.alt_text(shown)}"' in text
    table = text[text.index("<table") :].split("</table>")[0]
    assert table.count("<tr") == 1 + len(curve.cells(shown))
    assert table.count('class="baseline"') == 1
    assert table.count("<td") == len(curve.HEADERS) * len(curve.cells(shown))
    assert table.count('<td class="text">') == len(curve.cells(shown))  # the adversary is words
    assert "10.0% of labels" in text


def test_the_words_of_the_figure_have_its_figures():
    said = curve.alt_text(made())
    assert "scale 0: error 0.0010 adaptive, 0.0010 non-adaptive" in said
    assert "scale 0.4: error 0.041 adaptive, 0.081 non-adaptive" in said
    assert said.count("labels right") == 3
    assert "labels" not in curve.alt_text(made(point(0.0, accuracy=None), point(0.1, accuracy=None), majority=None))


def test_figure_draws_every_point_and_survives_what_is_unknown():
    drawn = curve.figure(made())
    errors, shares, _, trade = drawn.axes
    np.testing.assert_allclose(errors.lines[0].get_ydata(), [0.001, 0.011, 0.041])
    np.testing.assert_allclose(errors.lines[1].get_ydata(), [0.001, 0.021, 0.081])
    assert len(shares.lines) == 4
    assert [text.get_text() for text in trade.texts] == ["none", "0.1", "0.4"]
    assert "labels" in trade.get_xlabel()
    unknown = made(point(0.0, accuracy=None, trustworthiness=UNKNOWN), point(0.1, accuracy=None), majority=None)
    assert "trustworthiness" in curve.figure(unknown).axes[3].get_xlabel()
    failed = scores(math.nan)
    assert curve.figure(made(point(0.0, adaptive=failed), point(0.1))).axes


def test_console_shows_labels_with_brackets_as_they_are():
    console = Console(record=True, width=160)
    curve.print_curve(console, made())
    assert "Kernel [adaptive]" in console.export_text()


@pytest.mark.parametrize("scales", [(0.0,), (0.1, 0.2), (0.0, 0.2, 0.1), (0.0, 0.1, 0.1)])
def test_points_out_of_order_are_refused(scales):
    with pytest.raises(ValueError, match="points must have increasing scales from 0"):
        made(*(point(scale) for scale in scales))
