"""What paper 003 says of shares read off t-SNE plots, and whether the rows agree.

Rows are of scale "full" (`results`, 1,000 points a plot) and of scale "cpu" (`results/cpu`, 500 points). Their
extractor, pictures and network are not the paper's, and most of its claims are about CelebA, of which there are no
rows: those are judged on the data sets at hand and stand as not in the paper's setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from experiments.claims import ELSEWHERE, NOT_RUN, Told
from experiments.sweep import Claim
from experiments.tsne_property import claim_tests
from experiments.tsne_property.claim_tests import LFW, MALE, Runs, Test
from experiments.tsne_property.tables import PAPER, PAPER_DEFENCES

CELEBA = "CelebA was not at hand"


def _no_rows(_: Runs) -> Told:
    return Told(NOT_RUN, "", "needs the user's file")


class Sentence(NamedTuple):
    """A sentence of the paper with the test of it.

    Attributes:
        text: What it says, in our words.
        printed: What the paper prints.
        test: From the rows to what they say.
        elsewhere: How the rows are of another setting than the claim; empty if they are of its data set.
    """

    text: str
    printed: str
    test: Test
    elsewhere: str = ""


def _printed(prop: str, *, field: int) -> str:
    value = PAPER[prop][field]
    return "not in its text" if value is None else f"{value:.2f}"


def _defences(names: Sequence[str], *, field: int = 0) -> str:
    return ", ".join(
        f"{name or 'none'} {value:.2f}" for name in names if (value := PAPER_DEFENCES[name][field]) is not None
    )


_NOISE_E, _NOISE_C = ("E-N 2*STD", "E-N 1*STD"), ("C-N 5%*STD", "C-N 2%*STD")
_REST = tuple(name for name in PAPER_DEFENCES if name.startswith(("E-R", "C-R", "E-T")))
_BY_DESCRIPTORS = f"{CELEBA}; UTKFace by descriptors"
_BY_PICTURES = f"{CELEBA}; UTKFace, five shares in place of regression, another network"
_SMALL = "UTKFace by descriptors, 500 points"

CLAIMS = (
    *(
        Sentence(
            f"The attack tells five shares of males on {name} (figure 1a)",
            _printed(prop, field=0),
            claim_tests.tells_classes(prop),
        )
        for prop, name in ((MALE, "UTKFace"), (LFW, "LFW"))
    ),
    *(
        Sentence(
            f"By regression it errs by less than 0.10 on {name} (figure 2a)",
            _printed(prop, field=1),
            claim_tests.tells_shares(prop),
        )
        for prop, name in ((MALE, "UTKFace"), (LFW, "LFW"))
    ),
    *(
        Sentence(
            f"The attack on {prop}: accuracy, error (figures 1, 2)",
            " / ".join(_printed(prop, field=i) for i in (0, 1)),
            _no_rows,
        )
        for prop in PAPER
        if prop not in (MALE, LFW)
    ),
    Sentence(
        "Mean embeddings of plots at different shares lie apart on UTKFace and LFW (figure 5)",
        "a figure",
        claim_tests.means_tell,
    ),
    Sentence(
        "The attack fails where the two groups overlap in a map (figures 1b, 6)",
        "smiling 0.30, oval face 0.26",
        claim_tests.overlap_hides,
        f"{CELEBA}; other properties, by descriptors, 500 points",
    ),
    Sentence(
        "Its success depends on the property (figures 1b, 2b)",
        "error up to 0.16 (oval face)",
        claim_tests.property_matters,
        f"{CELEBA}; other properties, by descriptors, 500 points",
    ),
    Sentence(
        "It works with other extractors (figures 1c, 2c)",
        "accuracy 0.92, 0.91, 0.82",
        claim_tests.extractors_work,
        f"{CELEBA}; {_SMALL}; other extractors",
    ),
    Sentence("It fails from UTKFace to LFW (tables 1, 2)", "0.22 / 0.38", claim_tests.transfer_fails(MALE, LFW)),
    Sentence("It fails from LFW to UTKFace (tables 1, 2)", "0.21 / 0.37", claim_tests.transfer_fails(LFW, MALE)),
    Sentence(
        "Five plots a level of the second data set repair it (figure 12)",
        "0.30 to 0.05",
        claim_tests.few_repair,
        f"{CELEBA}; UTKFace and LFW by descriptors",
    ),
    Sentence(
        "They change nothing on the first data set (figure 12)",
        "does not improve",
        claim_tests.mixing_is_free,
        f"{CELEBA}; UTKFace and LFW by descriptors",
    ),
    Sentence("More training plots help (figure 7)", "a figure", claim_tests.more_plots_help, _BY_DESCRIPTORS),
    Sentence(
        "With another shadow extractor the attack is worse, and better than guessing (tables 3, 4)",
        "error 0.03, 0.13 for 0.02",
        claim_tests.other_shadow_is_worse,
        f"{CELEBA}; {_SMALL}; other extractors",
    ),
    Sentence(
        "It is best on plots of as many points as it was trained on (figures 8, 9)",
        "a figure",
        claim_tests.own_density_is_best,
        f"{CELEBA}; {_SMALL} and fewer",
    ),
    Sentence(
        "Noise on embeddings stops it (table 5)",
        _defences(("", *_NOISE_E)),
        claim_tests.noise_hides(_NOISE_E),
        _BY_DESCRIPTORS,
    ),
    Sentence(
        "Noise on coordinates stops it (table 5)",
        _defences(("", *_NOISE_C)),
        claim_tests.noise_hides(_NOISE_C),
        _BY_DESCRIPTORS,
    ),
    Sentence(
        "Noise on embeddings stops a network on pictures (table 5)",
        "error 0.48, 0.30 for 0.02",
        claim_tests.noise_hides_pictures(_NOISE_E),
        _BY_PICTURES,
    ),
    Sentence(
        "Noise on coordinates stops a network on pictures (table 5)",
        "error 0.48, 0.48 for 0.02",
        claim_tests.noise_hides_pictures(_NOISE_C),
        _BY_PICTURES,
    ),
    Sentence(
        "Rounding and thresholds do nothing (table 5)",
        _defences(("", *_REST)),
        claim_tests.does_nothing,
        _BY_DESCRIPTORS,
    ),
    Sentence(
        "An adversary who knows of the noise errs less (table 6)",
        _defences((*_NOISE_E, *_NOISE_C), field=1),
        claim_tests.adapting_helps,
        _BY_DESCRIPTORS,
    ),
    Sentence(
        "Plots by fine-tuned extractors are told well (table 7)",
        "smiling 0.08",
        claim_tests.tuned_tell,
        f"{CELEBA}; LFW by descriptors, 500 points, another extractor",
    ),
)
"""In the order of the paper."""

SETTING = "another extractor and network, grey pictures"


def judged_claims(full: Sequence[Mapping[str, Any]], cpu: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim.

    Args:
        full: Records of scale "full".
        cpu: Those of scale "cpu".
    """
    runs = Runs(claim_tests.Rows(full), claim_tests.Rows(cpu))
    return [_judged(claim, claim.test(runs)) for claim in CLAIMS]


def _judged(claim: Sentence, told: Told) -> Claim:
    verdict, note = told.outcome, told.why
    if verdict != NOT_RUN:
        note = f"{note}; {claim.elsewhere or SETTING}" if note else claim.elsewhere or SETTING
        if claim.elsewhere:
            verdict, note = ELSEWHERE, f"the claim is {told.outcome} there: {note}"
    return Claim(claim=claim.text, paper=claim.printed, ours=told.evidence, verdict=verdict, note=note)
