"""What paper 001 says of membership in a PCA and of private PCA, and whether the rows agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from drjax.defenses.dp_pca import PAPER
from experiments.claims import Told
from experiments.pca_membership import claim_tests
from experiments.pca_membership.claim_tests import Rows
from experiments.pca_membership.private import NONE
from experiments.pca_membership.private_tables import Cells
from experiments.sweep import Claim


class Sentence(NamedTuple):
    """A sentence of the paper with the test of it.

    Attributes:
        text: What it says, in our words.
        printed: What the paper prints.
        test: From the rows to what they say.
        is_private: Whether it is about figures 2 to 6.
    """

    text: str
    printed: str
    test: Callable[[Rows], Told]
    is_private: bool = True


CLAIMS = (
    Sentence(
        "AUC rises with the number of components k (4, figure 1)",
        "a figure",
        claim_tests.rises_with_k,
        is_private=False,
    ),
    Sentence(
        "AUC falls with the number of records N (4, figure 1)", "a figure", claim_tests.falls_with_n, is_private=False
    ),
    Sentence(
        "On MNIST and LFW AUC is always above 0.5 and reaches 0.9 at N = 1,000 (4)",
        "0.9",
        claim_tests.reaches,
        is_private=False,
    ),
    Sentence("On Adult and Census AUC is much lower (4)", "a figure", claim_tests.small_are_lower, is_private=False),
    Sentence(
        "Under Analyze Gauss AUC is only marginally above 0.5 up to epsilon 1 (5.3, figure 2a)",
        "0.5",
        claim_tests.gauss_is_safe,
    ),
    Sentence(
        "Under the vector query AUC rises with epsilon towards that without noise (figure 2b)",
        "a figure",
        claim_tests.vector_rises,
    ),
    Sentence(
        "The vector query at 1e2 (Adult, Census) and 1e4 (LFW) protects as Analyze Gauss at 1 (5.3)",
        "roughly the same",
        claim_tests.vector_protects,
    ),
    Sentence(
        "Vector query and naive scalar queries protect alike (figure 3)", "the same", claim_tests.vector_and_naive
    ),
    Sentence(
        "At large epsilon advanced composition protects better than naive (figure 3)",
        "a figure",
        claim_tests.advanced_protects,
    ),
    Sentence(
        "The AUC curves of both compositions cross near 1e2 on Adult and Census (5.3)",
        "1e2",
        lambda rows: claim_tests.crossings(rows, claim_tests.SMALL, 1e2),
    ),
    Sentence(
        "They cross near 1e5 on LFW and MNIST (5.3)",
        "1e5",
        lambda rows: claim_tests.crossings(rows, claim_tests.LARGE, 1e5),
    ),
    Sentence(
        "Analyze Gauss has good utility on Adult and Census, low on MNIST and LFW (figure 5)",
        "a figure",
        claim_tests.gauss_utility,
    ),
    Sentence(
        "Laplace has lower utility than Analyze Gauss up to epsilon 1 (figure 5)",
        "a figure",
        claim_tests.laplace_is_lower,
    ),
    Sentence(
        "Vector and naive scalar queries have almost the same utility, but on MNIST and Census scalar is better (5.3)",
        "a figure",
        claim_tests.vector_and_naive_utility,
    ),
    Sentence(
        "Advanced composition has the better utility below roughly as many epsilon as queries (5.3)",
        "the number of queries",
        claim_tests.advanced_utility,
    ),
    Sentence("The vector query is better where sensitivities are skewed (5.3)", "no figure", claim_tests.skewed),
)
"""In the order of the paper."""


def judged_claims(attacks: Sequence[Mapping[str, Any]], private: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Every claim.

    Args:
        attacks: Lines of figure 1.
        private: Lines of figures 2 to 6.
    """
    cells = Cells([line for line in private if line["kind"] == "attack"])
    rows = claim_tests.Rows([line for line in attacks if line["kind"] == "attack"], cells)
    return [
        Claim(
            claim=claim.text,
            paper=claim.printed,
            ours=told.evidence,
            verdict=told.outcome,
            note=f"{told.why}; {_setting(rows, claim)}",
        )
        for claim in CLAIMS
        for told in [claim.test(rows)]
    ]


def _setting(rows: Rows, claim: Sentence) -> str:
    if not claim.is_private:
        return f"{rows.attacks[0]['trials']} trials"
    cells = {name: rows.cells.main(name, NONE, PAPER) for name in rows.cells.names}
    by_size = ", ".join(
        f"{n:,} ({', '.join(claim_tests.NAMES[name] for name in cells if cells[name]['n'] == n)})"
        for n in sorted({cell["n"] for cell in cells.values()}, reverse=True)
    )
    trials = len(next(iter(cells.values()))["points"][0]["best"])
    return f"{trials} trials; the paper gives no N, here {by_size}"
