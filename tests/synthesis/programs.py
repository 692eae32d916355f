"""Fits and samples as one program each: step by step, every operation would be compiled by itself."""

import functools

import jax


@functools.partial(jax.jit, static_argnums=(4, 5))
def fitted(made, key, x, y, epsilon, delta):
    """The synthesizer of a fit; equal methods share a program."""
    return made.fit(key, x, y, epsilon, delta)


def promised(made, x, y, epsilon, delta):
    """The synthesizer of a fit without its numbers, so that nothing is compiled: its guarantee needs none."""
    return jax.eval_shape(lambda key: made.fit(key, x, y, epsilon, delta), jax.random.key(0))


@functools.partial(jax.jit, static_argnums=2)
def sampled(found, key, n):
    """(n, d) records of a synthesizer and what comes with them."""
    return found.sample(key, n)
