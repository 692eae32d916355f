"""Fits and insertions as one program for each method and shape."""

import jax

KEY = jax.random.key(0)


@jax.jit
def fit(method, x):
    return method.fit_transform(KEY, x)


@jax.jit
def insert(method, shared, target):
    return method.insert(KEY, shared, target)


@jax.jit
def insert_batch(method, keys, shared, targets):
    return method.insert_batch(keys, shared, targets)
