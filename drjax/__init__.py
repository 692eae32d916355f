"""drjax: what an informed adversary can take back out of a published embedding.

The layers are importable on their own: `drjax.dr` (kernels), `drjax.attacks`, `drjax.data`,
`drjax.nets`, `drjax.reports`. Importing drjax never changes JAX's configuration.
"""

__version__ = "0.1.0"
