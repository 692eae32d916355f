import numpy as np
import pytest

from drjax.reports import alt_texts, plots
from tests.reports.test_plots import baselines, row

ROWS = (*baselines(), row("ridge", 0.04), row("closed form", 4e-7))


def test_the_ladder_is_told_with_its_figures_baselines_last():
    text = alt_texts.ladder(ROWS)
    assert [text.count(f"“{row.label}”") for row in ROWS] == [1] * len(ROWS)
    assert text.count(", the strongest attack:") == 1
    assert text.count(", a baseline:") == sum(row.is_baseline for row in ROWS)
    last_attack = max(text.index(f"“{row.label}”") for row in ROWS if not row.is_baseline)
    assert all(text.index(f"“{row.label}”") > last_attack for row in ROWS if row.is_baseline)
    with pytest.raises(ValueError, match="at least one attack"):
        alt_texts.ladder([row for row in ROWS if row.is_baseline])


def test_the_distribution_of_errors_is_told_by_its_medians_and_who_is_closer():
    text = alt_texts.error_distribution({"ridge": [0.1, 0.2, 0.6, np.nan], "net": [1.0, 2.0, 3.0, 4.0]}, [0.5] * 4)
    assert "the nearest neighbour 0.50;" in text
    assert "“ridge” 0.20, closer for 66.7%" in text
    assert "“net” 2.5, closer for 0%" in text


def test_errors_of_features_are_told_of_the_most_exposed_in_their_units():
    targets = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    rebuilt = {"ridge": targets + np.array([0.5, 0.0, 0.25]), "net": np.full((2, 3), np.nan)}
    text = alt_texts.feature_errors(
        targets, rebuilt, np.full(3, 0.5), feature_names=("age", "sex", "pain"), scale=np.array([100, 1, 10])
    )
    assert "3 most exposed of 3 features" in text
    assert "“ridge”: sex 0 (0.50), pain 2.5 (5.0), age 50 (50)." in text
    assert "“net”: sex n/a (0.50)" in text


def test_a_grid_of_pictures_is_told_by_its_number_and_the_errors():
    text = alt_texts.image_grid(np.zeros((2, 4)), {"ridge": np.full((2, 4), 0.1)})
    assert (
        text == "Pictures of 2 records, with what each attack rebuilt below. Median mean squared error: “ridge” 0.010."
    )
    assert "“ridge” 0.30" in alt_texts.image_grid(np.zeros((1, 4)), {"ridge": np.ones((1, 4))}, errors={"ridge": [0.3]})


@pytest.mark.parametrize("name", ["image_grid", "feature_errors", "ladder", "error_distribution"])
def test_every_figure_of_an_audit_has_its_text(name):
    assert callable(getattr(plots, name))
    assert callable(getattr(alt_texts, name))
