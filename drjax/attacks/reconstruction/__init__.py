"""The reconstruction ladder, from baselines over closed forms to neural networks.

Example:
    >>> import drjax, jax, numpy as np
    >>> from drjax.attacks.reconstruction import inversion
    >>> from drjax.attacks.reconstruction.priors import GaussianPrior
    >>> x = drjax.load("digits").x[:400].astype(np.float64)
    >>> coords, prior = drjax.embed(x[:20], dtype="float64"), GaussianPrior.fit(x[100:])
    >>> found = inversion.reconstruct(jax.random.key(0), drjax.PCA(), x[1:20], coords, prior=prior)
    >>> bool(((found.x - x[0]) ** 2).mean() < ((prior.mean - x[0]) ** 2).mean())  # nearer than the mean
    True
"""
