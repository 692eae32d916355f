"""The limit of a guarantee beside the best attack that was run: a table of a page, from the rows of `results/`.

python -m experiments.private_embeddings.limit
"""

from __future__ import annotations

from pathlib import Path

from drjax.reports import ladder, records
from experiments.markdown import markdown_table

ROWS = Path(__file__).parent / "results" / "results.jsonl"

SHOWN = (0.3, 1.0, 10.0, 100.0)
"""Values of mu that the table has."""

ON_RECORDS = "noisy record itself"
"""How the names of the attacks end that see the noisy records, and not the map alone."""


def block(*words: str) -> str:
    """The table, in Markdown.

    Args:
        words: None.

    Raises:
        ValueError: words, or a value of mu without rows.
    """
    if words:
        raise ValueError(f"words must be none, got {' '.join(words)}")
    lines = [line for line in records.read_records(ROWS) if line["kind"] == "attack"]
    rows = []
    for mu in SHOWN:
        of_mu = [line for line in lines if line["mu"] == mu]
        if not of_mu:
            raise ValueError(f"mu must have rows in {ROWS}, got {mu}")
        sees = [line["attack"].endswith(ON_RECORDS) for line in of_mu]
        best = [
            max(line["success"]["estimate"] for line, is_seen in zip(of_mu, sees, strict=True) if is_seen == wanted)
            for wanted in (True, False)
        ]
        rows.append([f"{mu:g}", *map(ladder.percent, (of_mu[0]["bound"], *best))])
    return markdown_table(
        ["mu", "limit for any attack", "best attack that was run, on the noisy records", "on the map"], rows
    )


if __name__ == "__main__":
    print(block())
