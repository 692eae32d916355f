"""Threats of given sizes, with releases made by the method or, where shapes are enough, without numbers."""

import numpy as np

from drjax.attacks.attack import EmbeddingThreat, Shadows
from drjax.dr import METHODS


def of_shapes(name, *, n_known=199, d=64, k=2, m=400, n_public=1150, **changes):
    """A threat whose arrays are all zeros and take no memory."""

    def zeros(*shape):
        return np.broadcast_to(0.0, shape)

    n_shadow = n_public * 7 // 8
    shadows = Shadows(
        known=zeros(n_known, d),
        records=zeros(n_shadow, d),
        coords=zeros(n_shadow, n_known + 1, k),
        validation=zeros(n_public - n_shadow, d),
        validation_coords=zeros(n_public - n_shadow, n_known + 1, k),
    )
    fields = {
        "method": METHODS[name](n_components=k),
        "known": zeros(n_known, d),
        "coords": zeros(m, n_known + 1, k),
        "shadows": lambda: shadows,
        "public": zeros(n_public, d),
        "truth": zeros(m, d),
        "bounds": (0.0, 1.0),
    }
    return EmbeddingThreat(**(fields | changes))
