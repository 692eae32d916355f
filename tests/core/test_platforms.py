"""A process with CPUs alone traces what a CPU runs, and programs for other platforms hold what those run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core import platforms

X = np.arange(3, dtype=np.float32)


def refuse(_):
    raise AssertionError("this branch must not be traced")


def sine_or_cosine(x):
    return platforms.by_platform(x, cpu=jnp.sin, default=jnp.cos)


@pytest.fixture
def only_cpus():
    if {device.platform for device in jax.devices()} != {"cpu"}:
        pytest.skip("other devices are here, for which all branches are traced")


@pytest.mark.usefixtures("only_cpus")
def test_other_branches_are_not_traced():
    found = jax.jit(lambda x: platforms.by_platform(x, cpu=jnp.sin, default=refuse))(X)
    np.testing.assert_allclose(found, np.sin(X), rtol=1e-6)
    # Without a branch of its own, the CPU takes the default.
    found = jax.vmap(lambda x: platforms.by_platform(x, cuda=refuse, default=jnp.cos))(X)
    np.testing.assert_allclose(found, np.cos(X), rtol=1e-6)


def test_where_other_platforms_are_all_branches_are_traced(monkeypatch):
    monkeypatch.setattr(platforms.backend, "backends", lambda: {"cpu": None, "cuda": None})
    with pytest.raises(AssertionError, match="must not be traced"):
        jax.jit(lambda x: platforms.by_platform(x, cpu=jnp.sin, default=refuse))(X)
    program = str(jax.make_jaxpr(sine_or_cosine)(X))
    assert " sin " in program
    assert " cos " in program


def test_a_program_that_has_run_here_is_exported_with_the_branch_of_the_other_platform():
    # A function of its own: what other tests traced of a shared one would be found again.
    jitted = jax.jit(lambda x: sine_or_cosine(x))
    before = jitted(X)
    with platforms.for_all():
        exported = jax.export.export(jitted, platforms=["tpu"])(X).mlir_module()
        here = jitted(X)
    assert "stablehlo.cosine" in exported
    assert "stablehlo.sine" not in exported
    np.testing.assert_array_equal(here, before)
