"""The front door: what the commands do, as functions on paths, arrays and DataFrames.

    import drjax

    result = drjax.audit(frame, method="tsne", perplexity=20)
    print(result.verdict.sentence)

Each is in `drjax` by the same name.
"""

from drjax.verbs.attacking import attack, embed
from drjax.verbs.auditing import audit, sweep
from drjax.verbs.releasing import bound, release

__all__ = ["attack", "audit", "bound", "embed", "release", "sweep"]
