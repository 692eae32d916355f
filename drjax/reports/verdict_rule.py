"""When exposure is called high, in code and in words, and what is then said first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from drjax.attacks.column_gain import CLOSE_COLUMN
from drjax.attacks.exposure import SINGLE_LEVEL
from drjax.attacks.gain import CLOSE, Gain
from drjax.attacks.metrics import AttackScores
from drjax.core.statistics import UNKNOWN

REBUILT_THRESHOLD = 0.05
"""Share of targets rebuilt above which exposure is high."""

ERROR_THRESHOLD = 0.5
"""Share of the mean record's error taken away above which exposure is high."""

IDENTIFICATION_FACTOR = 10.0
"""Multiple of the chance level above which the identification rate means high exposure."""

Conclusion = Literal["high", "not shown", "weak", "undetermined", "guaranteed"]
"""What can be said of something that is to be published. No audit ends with "guaranteed", which takes a mechanism."""

CONCLUSIONS: Mapping[Conclusion, str] = {
    "high": "Do not publish this as it is",
    "not shown": "These attacks found nothing that the rule calls high exposure",
    "weak": "No all-clear: the attacks that know how this was made could not be run, and the others found nothing high",
    "undetermined": "Nothing could be measured",
    "guaranteed": "Publish, under the stated guarantee",
}
"""The first sentence on it, without its full stop."""

VERDICT_RULE = (
    f"Every attack is compared with the mean record, a guess that ignores the release, on the same targets. Exposure "
    f"is called high, and the report says not to publish, when one of five comparisons says so for any one attack. The "
    f"share rebuilt: more than {REBUILT_THRESHOLD:.0%} of the targets, beyond those that reconstructions of other "
    f"targets would rebuild, are rebuilt, which is with less than half of the mean record's error and closer than "
    f"their nearest neighbour among known and public records (or with less than {CLOSE:.0%} of the mean record's error "
    f"where that neighbour is a twin or nearly one), by an attack whose mean error is below the mean record's. The "
    f"error: the attack takes away more than {ERROR_THRESHOLD:.0%} of the mean record's mean error. The identification "
    f"rate: it is more than {IDENTIFICATION_FACTOR:.0f} times chance, and above the mean record's. Single columns: of "
    f"one column or feature the attack takes away more than {CLOSE_COLUMN:.0%} of a guess's squared error. Single "
    f"records, where every record of one release is attacked: a record is rebuilt, and by a reconstruction that is so "
    f"much closer to it than those of other records that an attack which learns nothing would bring that about for "
    f"any record at all in less than {SINGLE_LEVEL:.0%} of releases (the spacings of the logarithms of the nearest "
    f"distances are exponential by chance, Rényi 1953; multiplied by the number of records, Bonferroni). The first "
    f"four use the lower end of a 95% confidence interval, because an estimate alone can pass a threshold by luck; "
    f"that of columns holds for all columns together. Being closer than the nearest neighbour is not enough: of "
    f"independent features the mean record is that too. The two baselines do not count: one ignores the release, the "
    f"other looks at the target. Where the targets are all equal, or the mean record is exact, nothing was left to "
    f"take back and nothing is measured. Where the rule does not fire, the report says that these attacks found "
    f"nothing that it calls high, never that publishing is safe."
)
"""The rule that `verdict` applies, in plain words for the report."""


def deciding(scores: AttackScores) -> list[str]:
    """The comparisons with the mean record by which one attack's scores mean high exposure; nan never does."""
    gain = known_gain(scores)
    chance = IDENTIFICATION_FACTOR * scores.identification_chance
    tests = {
        "the share rebuilt": gain.rebuilt.low - gain.by_chance > REBUILT_THRESHOLD and gain.error.low > 0,
        "the error": gain.error.low > ERROR_THRESHOLD,
        "the identification rate": scores.identification.low > chance and gain.identification.low > 0,
        "single columns": scores.columns is not None and scores.columns.n_close > 0,
        "single records": bool(scores.n_singled),
    }
    return [name for name, is_passed in tests.items() if is_passed]


def known_gain(scores: AttackScores) -> Gain:
    """The gain of an attack over the mean record; unknown, which is nan, where they were not compared."""
    return Gain(UNKNOWN, UNKNOWN, UNKNOWN) if scores.gain is None else scores.gain
