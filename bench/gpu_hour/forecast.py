"""What all steps are expected to take that no run has done: a block of a page.

python -m bench.gpu_hour.forecast
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.gpu_hour import listing, registry
from bench.gpu_hour.hour import Hour


def block(*words: str) -> str:
    """The list of `python -m bench.gpu_hour --list` where nothing is done, without what is not on this machine.

    Args:
        words: None.

    Raises:
        ValueError: words.
    """
    if words:
        raise ValueError(f"words must be none, got {' '.join(words)}")
    with tempfile.TemporaryDirectory() as scratch, Hour(Path(scratch) / "list", registry.CARD, done=[]) as hour:
        lines = listing.lines(registry.all_steps(registry.CARD, "*"), hour)
    return "\n".join(["```text", *(line for line in lines if not line.startswith(listing.LACKING)), "```"])


if __name__ == "__main__":
    print(block())
