"""What the strongest attack learns of a typical and of the worst-off record, in sentences."""

from __future__ import annotations

import numpy as np

from drjax.attacks import exposure
from drjax.attacks.exposure import Exposure
from drjax.audits import learned
from drjax.data import Dataset
from drjax.reports.ladder import number, percent

GUESS = "guessing the mean of the others"
"""What an attacker could do without the release."""

MOST_NAMED = 5
"""Most exposed records that the verdict names."""

NEAR = 0.01
"""Share of a feature's range within which it counts as learned."""


def in_words(data: Dataset, measured: Exposure, x: np.ndarray, knowing: str) -> tuple[str, ...]:
    """What the strongest attack learns of a typical and of the worst-off record, who is most exposed, what was assumed.

    Args:
        data: All records.
        measured: Exposure by the attack.
        x: (m, d) what it made of the attacked records.
        knowing: What the attacker knows beside the other records; empty if nothing.

    Returns:
        Paragraphs; none where no record could be scored.
    """
    ranked = [int(i) for i in np.argsort(measured.rank) if np.isfinite(measured.error[i])]
    if not ranked:
        return ()
    assumed = (
        f"Assumed: the attacker knows the other {len(data.x) - 1:,} records in full{knowing and ', ' + knowing}, and "
        "which row of the release is the unknown one's; the section “What was assumed” has all."
    )
    exposed = [i for i in ranked if measured.error[i] < measured.mean_error[i]]
    worst = next(iter(exposed), ranked[0])
    if data.plan is None:
        typical, of_worst = _in_features(data, measured, x, worst)
    else:
        found = learned.learned(data, measured.row, x)
        typical, of_worst = learned.typical(found), learned.of_one(found, worst)
    if not exposed:
        return typical, f"Nobody stands out: for none of {len(ranked):,} records it does better than {GUESS}.", assumed
    called, share = (
        data.called(int(measured.row[worst])),
        percent(float(measured.error[worst] / measured.mean_error[worst])),
    )
    said = f"The worst-off is {called}, with {share} of the error of {GUESS}: {of_worst}."
    named = ", ".join(data.called(int(measured.row[i])) for i in exposed[:MOST_NAMED])
    most = () if data.plan is None else (f"Most exposed: {named}.",)
    return typical, said, *most, assumed


def _in_features(data: Dataset, measured: Exposure, x: np.ndarray, at: int) -> tuple[str, str]:
    """What is learned of a typical record and of one, without a plan, in features and shares of their range."""
    truth = data.x[measured.row].astype(np.float64)
    varies = np.ptp(data.x, axis=0) > 0
    varies = varies if varies.any() else ~varies
    missed = np.abs(np.asarray(x, np.float64) - truth)[:, varies]
    guess = np.abs(exposure.means_of_others(data.x, measured.row) - truth)[:, varies]
    own, blind = (number(float(np.nanmedian(np.median(one, axis=1)))) for one in (missed, guess))
    n, d = int((missed[at] <= NEAR).sum()), int(varies.sum())
    return (
        f"Of a typical record an attacker who knows all others learns half of the {d:,} features within {own} of their "
        f"range (a guess without the release: {blind}).",
        f"{n:,} of {d:,} features within {NEAR:.0%} of their range, and half of them within "
        f"{number(float(np.median(missed[at])))}",
    )
