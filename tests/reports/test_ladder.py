import dataclasses
import io
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from drjax.attacks.column_gain import ColumnGain
from drjax.attacks.gain import Gain
from drjax.attacks.metrics import AttackScores
from drjax.core.statistics import Interval
from drjax.reports import ladder
from drjax.reports.ladder import LadderRow
from drjax.reports.verdict_rule import CONCLUSIONS

CHANCE = 1 / 1001
NAN = (math.nan,) * 3


def scores(
    *,
    mse=0.01,
    success=(0.0, 0.0, 0.01),
    identification=(0.0, 0.0, 0.01),
    chance=CHANCE,
    n=1000,
    excluded=0,
    taken=(0.2, 0.1, 0.3),
    rebuilt=(0.0, 0.0, 0.01),
    more=None,
    by_chance=0.0,
    columns=None,
    n_singled=None,
):
    """Scores of an attack that is a little better than the mean record, which identifies nobody unless `more` says."""
    return AttackScores(
        n_targets=n,
        n_excluded=excluded,
        mse=Interval(mse, mse * 0.9, mse * 1.1),
        mse_median=Interval(mse / 2, mse * 0.4, mse * 0.6),
        success=Interval(*success),
        identification=Interval(*identification),
        identification_chance=chance,
        seconds_per_target=0.0012,
        gain=Gain(
            Interval(*taken), Interval(*rebuilt), Interval(*(identification if more is None else more)), by_chance
        ),
        columns=columns,
        n_singled=n_singled,
    )


def row(label="ridge", **options):
    baseline = options.pop("is_baseline", False)
    return LadderRow(label=label, description="d", scores=scores(**options), is_baseline=baseline)


def failed(label="broken"):
    return row(
        label, mse=math.nan, success=NAN, identification=NAN, n=10, excluded=10, taken=NAN, rebuilt=NAN, more=NAN
    )


def test_a_share_rebuilt_of_exactly_five_percent_is_not_high_and_just_above_is():
    assert ladder.verdict([row(rebuilt=(0.5, 0.05, 0.6))]).level == "not shown"
    assert ladder.verdict([row(rebuilt=(0.5, math.nextafter(0.05, 1), 0.6))]).level == "high"


def test_identification_at_exactly_ten_times_chance_is_not_high_and_just_above_is():
    limit = 10 * CHANCE
    assert ladder.verdict([row(identification=(0.5, limit, 0.6))]).level == "not shown"
    assert ladder.verdict([row(identification=(0.5, math.nextafter(limit, 1), 0.6))]).level == "high"


def test_half_of_the_error_of_the_mean_record_taken_away_is_not_high_and_more_is():
    assert ladder.verdict([row(taken=(0.6, 0.5, 0.7))]).level == "not shown"
    found = ladder.verdict([row(taken=(0.6, math.nextafter(0.5, 1), 0.7))])
    assert found.level == "high"
    assert found.sentence.endswith("Decided by the error.")


def test_targets_that_the_mean_record_brings_as_close_are_no_exposure():
    """Of independent features the mean is nearer than the nearest record, and so is any attack that returns it."""
    blind = row("mean", is_baseline=True, success=(0.8, 0.75, 0.85), taken=(0.0, 0.0, 0.0))
    found = ladder.verdict([blind, row(success=(0.81, 0.76, 0.86), taken=(0.01, 0.0, 0.02))])
    assert found.level == "not shown"
    assert "leaves 99.0% (95% interval 98.0% to 100%) of the mean record's error" in found.sentence
    assert "81" not in found.sentence


def test_targets_rebuilt_by_an_attack_that_is_worse_than_the_mean_record_on_the_whole_are_not_high():
    """A blind guess of one cluster's centre comes close to those who are in that cluster, and far from all others."""
    gamble = row(rebuilt=(0.4, 0.35, 0.45), taken=(-1.0, -1.2, -0.8))
    assert ladder.verdict([gamble]).level == "not shown"
    assert "leaves 200% (95% interval 180% to 220%)" in ladder.verdict([gamble]).sentence


def test_targets_that_the_mean_record_identifies_as_often_are_not_high():
    assert ladder.verdict([row(identification=(0.5, 0.4, 0.6), more=(0.01, -0.05, 0.07))]).level == "not shown"


def test_the_verdict_says_which_comparisons_decided():
    everything = row(rebuilt=(0.9, 0.8, 1.0), taken=(0.9, 0.8, 0.95), identification=(0.9, 0.8, 1.0))
    assert ladder.verdict([everything]).sentence.endswith(
        "Decided by the share rebuilt, the error and the identification rate."
    )
    two = row(rebuilt=(0.9, 0.8, 1.0), identification=(0.9, 0.8, 1.0))
    assert ladder.verdict([two]).sentence.endswith("Decided by the share rebuilt and the identification rate.")
    assert "Decided by" not in ladder.verdict([row()]).sentence


def test_a_share_that_other_reconstructions_would_rebuild_as_well_is_not_high():
    assert ladder.verdict([row(rebuilt=(0.9, 0.85, 0.95), by_chance=0.81)]).level == "not shown"
    found = ladder.verdict([row(rebuilt=(0.9, 0.85, 0.95), by_chance=0.79)])
    assert found.level == "high"
    assert "85.0% to 95.0%) of them (by chance: 79.0%) more closely" in found.sentence


def test_one_column_that_is_given_away_is_high():
    assert ladder.verdict([row(columns=ColumnGain(13, 9, 0, "proline", 0.92))]).level == "not shown"
    found = ladder.verdict([row(columns=ColumnGain(13, 9, 2, "proline", 0.998))])
    assert found.level == "high"
    assert "Of 13 columns it gives away 2, most of all proline: 99.8% of a guess's squared error" in found.sentence
    assert found.sentence.endswith("Decided by single columns.")


def test_one_record_rebuilt_beyond_chance_is_high_however_little_the_shares_say():
    found = ladder.verdict([row(n_singled=1)])
    assert found.level == "high"
    assert found.headline == "Do not publish this as it is"
    assert "1 record is rebuilt beyond what chance explains. Decided by single records." in found.sentence
    assert "no record is rebuilt beyond what chance explains" in ladder.verdict([row(n_singled=0)]).sentence
    # Where only some were drawn, nobody looked.
    assert "may still be far more exposed" in ladder.verdict([row()]).sentence


def test_where_there_was_nothing_to_take_back_nothing_was_measured():
    nothing = row(taken=NAN, rebuilt=NAN, more=NAN, identification=(1.0, 0.9, 1.0))
    found = ladder.verdict([row("mean", is_baseline=True), nothing])
    assert found.level == "undetermined"
    assert "nothing was left for an attack to take back" in found.sentence
    assert ladder.verdict([nothing, row()]).level == "not shown"


def test_no_audit_ends_with_a_guarantee():
    assert set(CONCLUSIONS) == {"high", "not shown", "weak", "undetermined", "guaranteed"}
    assert CONCLUSIONS["guaranteed"] == "Publish, under the stated guarantee"


def test_an_attack_that_was_not_compared_with_the_mean_record_has_no_verdict():
    alone = row()
    alone = dataclasses.replace(alone, scores=dataclasses.replace(alone.scores, gain=None))
    with pytest.raises(ValueError, match="gain over the mean record, got 'ridge'"):
        ladder.verdict([row("other"), alone])
    assert "n/a" in ladder.to_markdown([alone])


def test_an_estimate_above_a_threshold_by_luck_is_not_high():
    lucky = row(rebuilt=(0.06, 0.049, 0.08), identification=(0.02, 0.009, 0.03), taken=(0.6, 0.49, 0.7))
    assert ladder.verdict([lucky]).level == "not shown"


def test_baselines_never_make_exposure_high():
    shares = dict.fromkeys(("success", "identification", "rebuilt", "taken"), (0.9, 0.8, 1.0))
    assert ladder.verdict([row("nearest neighbour", is_baseline=True, **shares), row()]).level == "not shown"


def test_one_high_attack_among_failed_and_weak_ones_is_enough_and_is_named():
    found = ladder.verdict([failed(), row("weak", rebuilt=(0.04, 0.03, 0.05)), row("strong", rebuilt=(0.9, 0.8, 1.0))])
    assert found.level == "high"
    assert "“strong”" in found.sentence
    assert "on the same 1,000 target records. It rebuilt 90.0% (95% interval 80.0% to 100%) of them" in found.sentence
    assert "among 1,001 candidates" in found.sentence


def test_the_attack_that_makes_exposure_high_is_named_even_if_another_rebuilds_more():
    by_luck = row("lucky", rebuilt=(0.2, 0.01, 0.5))
    by_identification = row("telling", rebuilt=(0.1, 0.04, 0.2), identification=(0.9, 0.8, 1.0))
    assert ladder.strongest([by_luck, by_identification]).label == "telling"
    assert "“telling”" in ladder.verdict([by_luck, by_identification]).sentence


def test_equal_shares_are_decided_by_the_smaller_error():
    assert ladder.strongest([failed(), row("far", mse=0.1), row("near", mse=1e-9)]).label == "near"


def test_no_scored_target_is_undetermined_rather_than_no_exposure():
    found = ladder.verdict([row(is_baseline=True), failed("one"), failed("two")])
    assert found.level == "undetermined"
    assert "says nothing" in found.sentence


def test_the_verdict_never_calls_a_release_safe():
    for rows in ([row()], [failed()], [row(rebuilt=(0.9, 0.8, 1.0))]):
        found = ladder.verdict(rows)
        assert "safe" not in (found.headline + found.sentence + "".join(found.caveats)).lower()
    assert ladder.verdict([row()]).headline == CONCLUSIONS["not shown"]
    assert CONCLUSIONS["not shown"] == "These attacks found nothing that the rule calls high exposure"


def test_excluded_targets_are_not_counted_as_scored_and_are_told():
    found = ladder.verdict([row(n=1000, excluded=250)])
    assert "on the same 750 target records" in found.sentence
    assert any("250" in caveat for caveat in found.caveats)


def test_a_blind_baseline_with_success_and_too_few_decoys_are_told():
    blind = row("mean record", is_baseline=True, success=(0.9, 0.8, 1.0), chance=0.2)
    caveats = ladder.verdict([blind, row(chance=0.2)]).caveats
    assert any("mean record" in caveat and "90.0%" in caveat for caveat in caveats)
    assert any("few decoys" in caveat for caveat in caveats)
    assert ladder.verdict([row()]).caveats == ()


@pytest.mark.parametrize("rows", [[], [row(is_baseline=True)]])
def test_a_ladder_without_attacks_is_refused(rows):
    for function in (ladder.verdict, ladder.strongest, ladder.to_markdown):
        with pytest.raises(ValueError, match="at least one attack"):
            function(rows)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4e-7, "4.0e-07"),
        (0.0026, "0.0026"),
        (0.00264, "0.0026"),
        (0.0996, "0.10"),
        (0.037, "0.037"),
        (1, "1.0"),
        (12.3, "12"),
        (1234.5, "1,234"),
        (-0.5, "-0.50"),
        (0, "0"),
        (math.nan, "n/a"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_written_with_two_significant_digits(value, text):
    assert ladder.number(value) == text


@given(value=st.floats(1e-30, 1e9))
def test_a_written_number_is_within_half_a_unit_of_its_second_digit(value):
    shown = float(ladder.number(value).replace(",", ""))
    exponent = Decimal(value).adjusted()
    assert abs(shown - value) <= 0.5001 * 10.0 ** (exponent - 1)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0%"),
        (1, "100%"),
        (0.9996, ">99.9%"),
        (1e-9, "<0.01%"),
        (CHANCE, "0.10%"),
        (0.973, "97.3%"),
        (math.nan, "n/a"),
    ],
)
def test_percentages_read_zero_or_all_only_where_exact(share, text):
    assert ladder.percent(share) == text


@given(share=st.floats(0, 1))
def test_no_other_share_is_written_as_zero_or_all(share):
    assert (ladder.percent(share) in ("0%", "100%")) == (share in (0, 1))
    assert not ladder.percent(share).startswith(("0.0%", "0.00%", "100.0%"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2e-6, "2.0 µs"),
        (0.0034, "3.4 ms"),
        (1.2, "1.2 s"),
        (120, "2.0 min"),
        (7200, "2.0 h"),
        (1e-9, "<1 µs"),
        (math.nan, "n/a"),
    ],
)
def test_durations_carry_a_fitting_unit(seconds, text):
    assert ladder.duration(seconds) == text


def full_ladder():
    return [
        row("mean record", is_baseline=True),
        row("a|b [bold]", mse=4e-7, success=(0.9, 0.8, 1.0), excluded=7),
        failed(),
    ]


def test_markdown_has_every_row_as_many_cells_as_headers_and_no_nan():
    text = ladder.to_markdown(full_ladder())
    lines = text.rstrip("\n").split("\n")
    assert len(lines) == 2 + 3
    assert {line.replace("\\|", "").count("|") for line in lines} == {len(ladder.HEADERS) + 1}
    assert "**a\\|b [bold]**" in lines[3]
    assert "4.0e-07 [3.6e-07 to 4.4e-07; 80.0% of mean]" in lines[3]
    assert "1,000 [7 excluded]" in lines[3]
    assert "baseline" in lines[2]
    assert "nan" not in text
    assert "10 excluded" in lines[4]


def test_the_terminal_table_shows_the_same_figures_and_takes_labels_literally():
    console = Console(file=io.StringIO(), width=200)
    ladder.print_ladder(console, full_ladder())
    printed = console.file.getvalue()
    for entry in (entry for made in full_ladder() for cell in ladder.cells(made) for entry in cell):
        assert entry in printed
    assert "a|b [bold]" in printed


def test_needs_are_spelled_out():
    made = LadderRow(label="a", description="d", scores=scores(), needs_public=True, needs_shadows=True)
    assert made.needs == "public records and shadow releases"
    assert row().needs == "nothing more"


def test_the_winner_is_named_with_its_reason_and_what_was_not_run():
    rows = [row("Mean record", mse=0.06, is_baseline=True), row("Weak", mse=0.05), row("Strong", mse=0.01)]
    rows[2] = dataclasses.replace(rows[2], why="It reads it off.")
    text = ladder.winner(rows, ["Slow one"])
    assert text.startswith("“Strong” came out on top of 2 attacks. It reads it off.")
    assert "0.010; “Mean record” 0.060, “Weak” 0.050." in text
    assert "Not run: “Slow one”." in text
    assert "Not run" not in ladder.winner(rows)
