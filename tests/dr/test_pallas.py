"""The Pallas kernels in interpret mode against NumPy and XLA, and that they compile as far as a CPU can tell."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType
from sklearn.datasets import load_digits
from sklearn.manifold._t_sne import _kl_divergence

from drjax.core import platforms
from drjax.dr import MDS, pallas
from drjax.dr.mds import xla
from drjax.dr.mds.gpu import stress_forces as stress_kernel
from drjax.dr.tsne import xla as tsne
from drjax.dr.tsne.cpu import Descent
from drjax.dr.tsne.gpu import tsne_forces as tsne_kernel

pytestmark = pytest.mark.gpu

DIGITS = load_digits().data / 16
TRITON, MOSAIC = "__gpu$xla.gpu.triton", "tpu_custom_call"
# Relative to the largest force: sums of some hundred terms in the working precision.
LIMITS = {"float32": 1e-5, "float64": 1e-12}


def points(b, n, k, dtype):
    rng = np.random.default_rng(n + k)
    x = rng.normal(size=(b, n, k))
    if n > 2:
        x[:, 2] = x[:, 1]  # two points at the same place
    pairs = rng.random((b, n, n))
    pairs = pairs + pairs.transpose(0, 2, 1)
    pairs[:, np.arange(n), np.arange(n)] = 0
    return x.astype(dtype), pairs.astype(dtype)


def stress_forces(pairs, x):
    """In NumPy and float64, of one data set."""
    steps = x[:, None].astype(np.float64) - x[None]
    distance = np.sqrt((steps**2).sum(axis=-1))
    ratio = np.divide(pairs, distance, out=np.zeros_like(distance), where=distance > 0)
    return (ratio[..., None] * steps).sum(axis=1)


def tsne_forces(p, y):
    steps = y[:, None].astype(np.float64) - y[None]
    freedom = max(y.shape[1] - 1, 1)
    w = (1 + (steps**2).sum(axis=-1) / freedom) ** (-(freedom + 1) / 2)
    np.fill_diagonal(w, 0)
    attraction, repulsion = ((weight[..., None] * steps).sum(axis=1) for weight in (p * w, w**2))
    return attraction, repulsion, w.sum(axis=1)


def assert_near(found, expected, dtype):
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=LIMITS[dtype] * max(np.abs(expected).max(), 1))


@pytest.fixture(
    params=[
        "interpret",
        pytest.param("cuda", marks=pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs an NVIDIA GPU")),
    ]
)
def backend(request):
    return request.param


SIZES = [
    (3, 1, "float32"),
    (50, 2, "float32"),
    (128, 2, "float64"),
    (130, 2, "float32"),
    (130, 2, "float64"),
    (40, 5, "float64"),
]
"""Numbers of records and components, and a type."""


@pytest.mark.parametrize(("n", "k", "dtype"), [(1, 2, "float64"), *SIZES], indirect=["dtype"])
def test_stress_forces_equal_numpy(dtype, backend, n, k):
    x, pairs = points(3, n, k, dtype)
    kernel = jax.jit(jax.vmap(functools.partial(stress_kernel, backend=backend), in_axes=(None, 0)))
    for i, found in enumerate(kernel(pairs[0], x)):
        assert_near(found, stress_forces(pairs[0], x[i]), dtype)


@pytest.mark.parametrize(("n", "k", "dtype"), [(2, 2, "float64"), *SIZES], indirect=["dtype"])
def test_tsne_forces_equal_numpy(dtype, backend, n, k):
    y, p = points(2, n, k, dtype)
    p = p / p.sum(axis=(1, 2), keepdims=True)
    kernel = jax.jit(jax.vmap(functools.partial(tsne_kernel, backend=backend)))
    for found in (kernel(p, y), kernel(jax.vmap(pallas.padded)(p), y)):
        for i in range(2):
            for part, expected in zip(found, tsne_forces(p[i], y[i]), strict=True):
                assert_near(part[i], expected, dtype)


@pytest.mark.parametrize("k", [2, 4])
def test_tsne_forces_make_scikit_learns_gradient(k):
    n = 60
    y, p = points(1, n, k, "float64")
    p = p[0] / p[0].sum()
    condensed = p[np.triu_indices(n, 1)]
    freedom = max(k - 1, 1)
    _, expected = _kl_divergence(y[0].ravel(), condensed, freedom, n, k)
    with jax.enable_x64(True):
        attraction, repulsion, weight = tsne_kernel(p, y[0], backend="interpret")
        found = 2 * (freedom + 1) / freedom * (attraction - repulsion / jnp.sum(weight))
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-12 * np.abs(expected).max())


def test_a_whole_descent_by_the_kernel_is_that_of_xla():
    x = DIGITS[:45]
    method = MDS(eps=1e-5, n_init=2)
    with jax.enable_x64(True):
        shared = method.prepare(x[:30])
        targets = jnp.asarray(x[30:42])
        starts = method._starts(jax.random.split(jax.random.key(0), 12), shared, targets)
        rule = xla.Rule(method.max_iter, method.eps)
        kernel = functools.partial(stress_kernel, backend="interpret")
        args = shared.between, method._rows(shared, targets), starts
        expected = jax.jit(functools.partial(xla.in_xla, rule))(*args)
        found = jax.jit(functools.partial(xla.in_xla, rule, forces=kernel))(*args)
    assert len(np.unique(expected[2])) > 4
    np.testing.assert_array_equal(found[2], expected[2])
    # Rounding of 1e-16, multiplied by up to 300 iterations.
    np.testing.assert_allclose(found[0], expected[0], atol=1e-9)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10)


def exported(fn, platform, *args):
    """The program for a platform that this machine need not have: kernels are lowered, but not assembled."""
    # Since JAX 0.11 the lowering asks what GPU it is for.
    gpu = AbstractDevice("NVIDIA H100", num_cores=None, platform="gpu")
    mesh = AbstractMesh((1,), ("x",), axis_types=(AxisType.Auto,), abstract_device=gpu)
    allowed = [jax.export.DisabledSafetyCheck.custom_call(TRITON)]
    with jax.sharding.use_abstract_mesh(mesh), platforms.for_all():
        return jax.export.export(jax.jit(fn), platforms=[platform], disabled_checks=allowed)(*args).mlir_module()


@pytest.mark.parametrize(("platform", "call"), [("cuda", TRITON), ("tpu", MOSAIC)])
def test_the_kernels_lower_for_accelerators(platform, call):
    x, pairs = points(4, 150, 2, "float32")
    shared = functools.partial(stress_kernel, pairs[0], backend=platform)
    assert exported(jax.vmap(shared), platform, x).count(f"@{call}") == 1
    own = functools.partial(tsne_kernel, backend=platform)
    assert exported(jax.vmap(own), platform, pairs, x).count(f"@{call}") == 1


@pytest.mark.parametrize(
    ("value", "platform", "call"), [("0", "cuda", TRITON), ("1", "cuda", TRITON), ("1", "tpu", MOSAIC)]
)
def test_mds_uses_the_kernel_on_accelerators_only_if_it_is_asked_for(monkeypatch, platform, call, value):
    monkeypatch.setenv(pallas.VARIABLE, value)
    x = DIGITS[:40].astype(np.float32)
    method = MDS()
    shared = method.prepare(x[:20], shared_key=jax.random.key(0))

    def embed(shared, targets):
        # Their start is shared: no lane draws.
        return method.insert_batch(jax.random.split(jax.random.key(0), 20), shared, targets)[:4]

    n_calls = exported(embed, platform, shared, x[20:]).count(f"@{call}")
    # One for each width of the compacted batch: 20, 10 and 5.
    assert n_calls == (3 if value == "1" else 0)
    # A CPU has no compiled path for Pallas and keeps its own.
    assert np.isfinite(jax.jit(embed)(shared, x[20:])[0]).all()
    assert np.isfinite(jax.jit(method.fit_transform)(jax.random.key(0), x[:9]).coords).all()
    gradient = jax.jit(jax.grad(lambda t: jnp.sum(method.insert(jax.random.key(0), shared, t).coords)))(x[20])
    assert np.isfinite(gradient).all()


def test_another_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv(pallas.VARIABLE, "yes")
    with pytest.raises(ValueError, match="DRJAX_PALLAS must be 0 or 1, got 'yes'"):
        pallas.is_enabled()


def test_pairs_of_another_size_are_refused():
    x, pairs = points(1, 10, 2, "float32")
    with pytest.raises(ValueError, match=r"must have shape \(9, 9\) or that padded"):
        stress_kernel(pairs[0], x[0, :9], backend="interpret")


def at_start(n, k, dtype):
    """A descent that has begun: coordinates and affinities of three maps, of which one is at its last iterations."""
    y, p = points(3, n, k, dtype)
    state = tsne._State(
        y=jnp.asarray(y),
        update=0.01 * jnp.asarray(y),
        gains=jnp.ones_like(y),
        count=jnp.asarray([0, 250, 290], jnp.int32),
        exploring=jnp.asarray([True, False, False]),
        best=jnp.full(3, jnp.inf, dtype),
        best_at=jnp.zeros(3, jnp.int32),
        norm=jnp.full(3, jnp.inf, dtype),
        stopped=jnp.zeros(3, bool),
    )
    return state, jnp.asarray(p / p.sum(axis=(1, 2), keepdims=True))


DESCENT = Descent(
    exaggeration=12.0, learning_rate=20.0, exploration=250, max_iter=300, patience=300, min_grad_norm=1e-7
)


SOME_SIZES = [(50, 2, "float64"), (130, 3, "float64"), (40, 2, "float32")]


@pytest.mark.parametrize(("n", "k", "dtype"), SOME_SIZES, indirect=["dtype"])
def test_steps_in_one_launch_are_those_one_by_one(monkeypatch, dtype, backend, n, k):
    # Few: the descent multiplies rounding.
    monkeypatch.setattr(tsne, "CHECK_EVERY", 16)
    state, p = at_start(n, k, dtype)
    expected = jax.vmap(functools.partial(tsne._steps, DESCENT))(state, p)
    found = jax.jit(jax.vmap(functools.partial(tsne._steps_at_once, DESCENT, backend=backend)))(state, p)
    np.testing.assert_array_equal(found.count, [15, 265, 300])
    np.testing.assert_array_equal(found.count, expected.count)
    limit = {"float64": 1e-10, "float32": 1e-3}[dtype]
    for part in ("y", "update", "gains"):
        ours, theirs = getattr(found, part), getattr(expected, part)
        np.testing.assert_allclose(ours, theirs, atol=limit * np.abs(theirs).max())


def test_tsne_makes_its_steps_in_one_launch_on_a_gpu_only_if_it_is_asked_for(monkeypatch):
    state, p = at_start(40, 2, "float32")
    for value, count in (("0", 0), ("1", 1)):
        monkeypatch.setenv(pallas.VARIABLE, value)
        program = exported(jax.vmap(functools.partial(tsne._steps, DESCENT)), "cuda", state, p)
        assert program.count(f"@{TRITON}") == count


@pytest.mark.parametrize(("n", "k", "dtype"), SOME_SIZES, indirect=["dtype"])
def test_iterations_of_smacof_in_one_launch_are_those_one_by_one(dtype, backend, n, k):
    x, pairs = points(3, n, k, dtype)
    shared, row = jnp.asarray(pairs[0][1:, 1:] / pairs.max()), jnp.asarray(pairs[:, 0, 1:] / pairs.max())
    shared = jnp.asarray(np.triu(shared) + np.triu(shared, 1).T)
    data = xla._Data(row, jnp.full(3, 0.9, dtype), jnp.sum(row**2, axis=1) + 0.405 * jnp.sum(shared**2))
    # The second, which has just moved far, reaches the cap; the others stop by the rule.
    count, moved = jnp.asarray([0, 8, 0], jnp.int32), jnp.asarray([0, 1e3, 0], dtype)
    never = jnp.zeros(3, bool)
    coords = jnp.asarray(x - x.mean(axis=1, keepdims=True))
    start = xla._State(coords, moved, jnp.zeros(3, dtype), count, never, never)
    rule = xla.Rule(max_iter=9, eps=0.02)
    expected = start
    one = jax.jit(jax.vmap(functools.partial(xla._step, rule, functools.partial(xla.forces_in_xla, shared))))
    for _ in range(xla.AT_ONCE):
        new = one(expected, data)
        kept = expected.finished
        expected = jax.tree.map(
            lambda old, new: jnp.where(kept.reshape(-1, *(1,) * (old.ndim - 1)), old, new),  # noqa: B023
            expected,
            new,
        )
    launch = functools.partial(xla._steps_at_once, rule, shared, backend=backend)
    found = jax.jit(jax.vmap(launch))(start, data)
    assert expected.stopped.any()
    assert not expected.stopped.all()
    for name in ("count", "stopped", "finished"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    limit = {"float64": 1e-12, "float32": 1e-4}[dtype]
    for name in ("coords", "moved", "stress"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, atol=limit * np.abs(theirs).max())
