"""The annex of a report for data protection officers: their terms, and which of its figures speak to each."""

from __future__ import annotations

from collections.abc import Sequence

from drjax.attacks.metrics import AttackScores
from drjax.reports import ladder
from drjax.reports.ladder import LadderRow, percent
from drjax.reports.sections import Table

NO_ADVICE = (
    "This annex is not legal advice and claims no compliance. It says which figures of this report speak to terms that "
    "data protection officers use, and which terms no figure here speaks to."
)

OPINION = "Article 29 Working Party, Opinion 05/2014 on Anonymisation Techniques (WP216)"


def annex(rows: Sequence[LadderRow]) -> Table:
    """The annex, with the figures of the strongest attack.

    Args:
        rows: The attack ladder.

    Raises:
        ValueError: no row that is an attack.
    """
    best = ladder.strongest(rows)
    return Table(
        title="Annex: terms of data protection law",
        paragraphs=(NO_ADVICE,),
        caption=f"Figures are those of “{best.label}”, the strongest attack of this report.",
        headers=("Term", "What it asks", "What this report says of it", "Source"),
        rows=(
            (
                "Singling out",
                "Whether somebody can isolate records of an individual in the data set.",
                _singled_out(best.scores),
                OPINION,
            ),
            (
                "Linkability",
                "Whether records of one person, or of one group, can be linked, within a data set or across two.",
                "Not tested. The attacks take the published row of the unknown record as given and link no two data "
                "sets. What else is published on the same people can change the answer.",
                OPINION,
            ),
            (
                "Inference",
                "Whether the value of one attribute can be deduced, with significant probability, from others.",
                _inferred(best.scores),
                OPINION,
            ),
            (
                "Means reasonably likely to be used",
                "Whether a person is identifiable by means that the controller or somebody else is reasonably likely "
                "to use, singling out among them, considering cost, time and technology.",
                f"The attack took {ladder.duration(best.scores.seconds_per_target)} per record. It was given more than "
                "most people have: the records listed under “What was assumed”. How likely anybody is to have these, "
                "and to try, is not measured.",
                "GDPR (Regulation (EU) 2016/679), recital 26",
            ),
            (
                "Expert determination",
                "Whether an expert finds, and documents, that the risk is very small that an anticipated recipient "
                "could identify an individual, with other information that is reasonably available.",
                "No determination. Rates of identification and reconstruction, and how they were found, can be part of "
                "what an expert documents. Who the recipients are and what they have is not in this report.",
                "HIPAA Privacy Rule, 45 CFR 164.514(b)(1)",
            ),
            (
                "Data protection impact assessment (DPIA)",
                "What processing is planned and whether it is necessary and proportionate, what risks to people it "
                "brings, and what is done about them, where a high risk is likely.",
                "One part: how far the attacks tried here reach, on one risk of one release. Necessity, proportion, "
                "what harm would follow, and other risks are not in this report.",
                "GDPR, article 35",
            ),
        ),
        text_columns=(1, 2, 3),
    )


def _singled_out(scores: AttackScores) -> str:
    n = scores.n_targets - scores.n_excluded
    if not n:
        return "Nothing could be measured."
    said = (
        f"{round(scores.identification.estimate * n):,} of {n:,} attacked records were told from all of "
        f"{round(1 / scores.identification_chance):,} candidates by their reconstruction "
        f"({percent(scores.identification.estimate)}; blind guessing: {percent(scores.identification_chance)})."
    )
    if scores.n_singled is not None:
        said += f" {scores.n_singled:,} are rebuilt beyond what chance explains."
    return f"{said} Candidates are records of this audit alone, and not people elsewhere."


def _inferred(scores: AttackScores) -> str:
    columns = scores.columns
    if columns is None or not columns.n_columns:
        return "No column could be compared with a guess."
    close = f", {columns.n_close:,} of them nearly whole" if columns.n_learned else ""
    return (
        f"Of {columns.n_columns:,} columns or features that vary enough to be compared, {columns.n_learned:,} are "
        f"learned better than a guess without the release{close}. The attacker knows the other records in full, so "
        "part of it may follow from what the population is like."
    )
