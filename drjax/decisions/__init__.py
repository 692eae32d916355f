"""What could be published instead of an audited release: other maps, each attacked again and scored for its use.

The only layer that sees audits and releases.
"""

from drjax.decisions.decide import decide

__all__ = ["decide"]
