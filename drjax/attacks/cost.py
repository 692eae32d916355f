"""What an attack, or making its shadows, takes."""

from __future__ import annotations

from typing import NamedTuple


class Cost(NamedTuple):
    """What an attack takes on a CPU, within a factor of about two.

    Attributes:
        seconds: Time of one process on two cores; of compilation only what `drjax.attacks.attack.COMPILING` says.
        bytes: Memory at the peak, beside the threat.
    """

    seconds: float
    bytes: float
