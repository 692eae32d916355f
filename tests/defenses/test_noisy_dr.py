from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import DRMethod, Embedding, Status, hyperparams
from drjax.defenses import DEFENSES, InputNoise, OutputNoise, Rounding, defend
from drjax.dr import METHODS, PCA, TSNE, SparseRandomProjection

KEY = jax.random.key(5)
N, D, M = 12, 6, 4

SMALL = {
    "isomap": {"n_neighbors": 3},
    "tsne": {"perplexity": 3.0, "max_iter": 10, "learning_rate": 1.0},
    "umap": {"n_neighbors": 5, "n_epochs": 11, "learning_rate": 0.1},
}
"""t-SNE and UMAP are chaotic: what differs by rounding at the start stays small for a few steps only."""


OF_ANY_SIZE = sorted(set(DEFENSES) - {"hexagons"})
"""Defences of maps of any number of coordinates."""


@hyperparams
class Unchanged:
    """A method that releases the records themselves, so that a test sees what was done to them."""

    name: ClassVar[str] = "unchanged"
    n_components: int = D

    @property
    def deterministic(self):
        return True

    def fit_transform(self, key, x):
        del key
        x = jnp.asarray(x)
        return Embedding(x, jnp.sum(x), jnp.int32(0), jnp.uint32(Status.SIGN_TIE), ())

    def objective(self, coords, x):
        return jnp.sum(coords - x)

    def prepare(self, known, *, shared_key=None):
        del shared_key
        return jnp.asarray(known)

    def insert(self, key, shared, target):
        return self.fit_transform(key, jnp.concatenate([target[None], shared]))

    def insert_batch(self, keys, shared, targets):
        return jax.vmap(self.insert, in_axes=(0, None, 0))(keys, shared, targets)


def data(n=N, d=D, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * 0.6 ** np.arange(d) + rng.normal(size=d)).astype(dtype)


def wrapped(name):
    return METHODS[name](**SMALL.get(name, {}))


def tolerance(method):
    # As in the contract of the methods: a descent may stop an iteration earlier, a start grows ten thousandfold.
    return {"mds": 1e-2, "tsne": 2e-4}.get(method.name, 2e-5)


@jax.jit
def fit(method, key, x):
    return method.fit_transform(key, x)


@jax.jit
def insert(method, key, shared, target):
    return method.insert(key, shared, target)


@jax.jit
def insert_batch(method, keys, shared, targets):
    return method.insert_batch(keys, shared, targets)


CASES = [("input-noise", name) for name in sorted(METHODS)]
CASES += [("output-noise", "pca"), ("output-noise", "tsne"), ("rounding", "srp")]
"""Noise before the method meets each in its own way; what comes after it does not see which it is."""


@pytest.mark.parametrize(("defense", "name"), CASES)
def test_at_scale_0_it_is_the_undefended_method(defense, name):
    method, x = wrapped(name), data()
    defended = defend(defense, method, 0)
    assert isinstance(defended, DRMethod)
    found = fit(defended, KEY, x)
    # Of a defence that draws, the method has the second half of the key.
    key = KEY if defense == "rounding" else jax.random.split(KEY)[1]
    expected = fit(method, key, x)
    np.testing.assert_allclose(found.coords, expected.coords, atol=tolerance(method))
    assert int(found.status) == int(expected.status)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-4, atol=tolerance(method))
    assert defended.n_components == method.n_components
    for fact in ("title", "unit", "minimises", "stationary"):
        assert getattr(defended, fact) == getattr(method, fact)
    assert not defended.repeatable


@pytest.mark.parametrize(
    ("defense", "name", "randomness"),
    [
        ("input-noise", "pca", "shared"),
        ("input-noise", "srp", "fresh"),
        ("input-noise", "srp", "shared"),
        ("input-noise", "mds", "fresh"),
        ("output-noise", "srp", "fresh"),
        ("output-noise", "srp", "shared"),
        ("rounding", "pca", "fresh"),
    ],
)
def test_a_batch_of_insertions_equals_single_ones_and_a_fit(defense, name, randomness):
    method, x, targets = wrapped(name), data(), data(M, seed=9)
    # A grid as coarse as the maps' rounding would turn a last digit into a step.
    defended = defend(defense, method, 1e-6 if defense == "rounding" else 0.1)
    shared_key = jax.random.key(3) if randomness == "shared" else None
    shared = defended.prepare(x[1:], shared_key=shared_key)
    keys = jax.random.split(KEY, M)
    batch = insert_batch(defended, keys, shared, targets)
    assert batch.coords.shape == (M, N, method.n_components)
    for i in range(M):
        one = insert(defended, keys[i], shared, targets[i])
        np.testing.assert_allclose(batch.coords[i], one.coords, atol=tolerance(method))
        assert int(batch.status[i]) == int(one.status)
        if shared_key is None:
            whole = fit(defended, keys[i], np.vstack([targets[i], x[1:]]))
            np.testing.assert_allclose(batch.coords[i], whole.coords, atol=tolerance(method))


def is_normal_with(std, values):
    """Whether independent values may be normal with mean 0 and that standard deviation, at level 1e-3."""
    return scipy.stats.kstest(np.ravel(values) / std, "norm").pvalue > 1e-3


def test_input_noise_is_gaussian_of_the_given_size_fresh_in_every_row_of_every_shadow_and_unclipped():
    known, targets = np.full((N - 1, D), 0.5, np.float32), np.full((200, D), 0.01, np.float32)
    out = shadow_embeddings(KEY, InputNoise(method=Unchanged(), sigma=0.3), known, targets)
    noise = out.coords - np.concatenate([targets[:, None], np.broadcast_to(known, (200, N - 1, D))], axis=1)
    for part in (noise[:, 0], noise[:, 1:], noise[:, 3], noise[..., 2]):
        assert is_normal_with(0.3, part)
        assert not is_normal_with(0.25, noise)
    assert len(np.unique(noise)) > 0.99 * noise.size
    assert out.coords.min() < -0.3
    # Rows, features and shadows are uncorrelated: 14,400 pairs have correlations of about 1 / 120.
    for axis in range(3):
        assert abs(np.mean(noise * np.roll(noise, 1, axis=axis)) / 0.09) < 0.04


@pytest.mark.parametrize("relative", [True, False])
def test_output_noise_is_gaussian_in_the_stated_unit(relative):
    x = data(40) * 3
    method = OutputNoise(method=PCA(), sigma=0.2, relative=relative)
    plain = np.asarray(fit(PCA(), KEY, x).coords)
    unit = np.sqrt(np.mean((plain - plain.mean(axis=0)) ** 2)) if relative else 1.0
    noise = np.stack([np.asarray(fit(method, jax.random.key(i), x).coords) - plain for i in range(30)])
    assert is_normal_with(0.2 * unit, noise)
    assert not is_normal_with(0.25 * unit, noise)


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_relative_output_noise_and_rounding_scale_with_the_coordinates(scale):
    x = data(30)
    for defense in ("output-noise", "rounding"):
        method = defend(defense, PCA(), 0.3)
        expected, found = (np.asarray(fit(method, KEY, factor * x).coords) for factor in (1.0, scale))
        np.testing.assert_allclose(found, scale * expected, rtol=1e-3, atol=1e-3 * scale)


def test_rounding_takes_the_nearest_multiple_of_the_step():
    x = data(30)
    plain = np.asarray(fit(PCA(), KEY, x).coords)
    rounded = np.asarray(fit(Rounding(method=PCA(), step=0.01, relative=False), KEY, x).coords)
    np.testing.assert_allclose(rounded, np.round(plain, 2), atol=1e-6)
    # Of the spread two digits are told.
    width = 0.25 * float(f"{np.sqrt(np.mean((plain - plain.mean(axis=0)) ** 2)):.1e}")
    relative = np.asarray(fit(Rounding(method=PCA(), step=0.25), KEY, x).coords) / width
    np.testing.assert_allclose(relative, np.round(plain / width), atol=1e-5)
    assert len(np.unique(np.round(relative))) > 3
    equal = np.ones((N, D), np.float32)
    assert np.isfinite(fit(Rounding(method=PCA(), step=0.25), KEY, equal).coords).all()


@pytest.mark.parametrize("defense", ["input-noise", "output-noise"])
def test_a_known_seed_is_the_method_s_and_not_the_noise_s(defense):
    known, targets = data()[1:], np.repeat(data(1, seed=9), 30, axis=0)
    srp = SparseRandomProjection(density=1.0)
    plain = shadow_embeddings(KEY, srp, known, targets, randomness="shared").coords
    assert np.ptp(plain, axis=0).max() == 0
    # Every entry of the matrix is +-1 / sqrt(2): noise of the records reaches a coordinate with a gain of sqrt(D / 2).
    gain = np.sqrt(D / 2) if defense == "input-noise" else 1.0
    sigma = 0.1
    wrap = InputNoise if defense == "input-noise" else OutputNoise
    options = {} if defense == "input-noise" else {"relative": False}
    method = wrap(method=srp, sigma=sigma, **options)
    shared, fresh = (shadow_embeddings(KEY, method, known, targets, randomness=r).coords for r in ("shared", "fresh"))
    centred = shared - shared.mean(axis=0)
    # 30 shadows, 24 coordinates: the deviation is known to some 3%.
    assert np.sqrt(np.sum(centred**2) / (29 * N * 2)) == pytest.approx(sigma * gain, rel=0.12)
    assert np.ptp(fresh, axis=0).mean() > 2 * np.ptp(shared, axis=0).mean()
    key = jax.random.split(KEY)[1]  # the shared one, see `attacks.shadow`
    matrix = np.asarray(fit(srp, key, np.eye(D, dtype=np.float32)).coords)
    np.testing.assert_allclose(shared.mean(axis=0), np.vstack([targets[:1], known]) @ matrix, atol=6 * sigma * gain / 5)


def test_shadows_do_not_depend_on_the_chunk_they_are_in():
    known, targets = data()[1:], data(7, seed=9)
    for defense in DEFENSES:
        method = defend(defense, PCA(), 0.1)
        whole, parts = (shadow_embeddings(KEY, method, known, targets, batch_size=size).coords for size in (7, 3))
        np.testing.assert_allclose(whole, parts, atol=2e-5)  # sums in another order, float32


@pytest.mark.parametrize("defense", sorted(DEFENSES))
def test_a_sweep_over_the_scale_does_not_retrace_nor_does_one_inside_another_defence(defense):
    traces = []

    @jax.jit
    def counted(method, key, x):
        traces.append(1)
        return method.fit_transform(key, x)

    for scale in (0, 0.1, 2, np.float32(0.5), 1e-3):
        counted(defend(defense, PCA(), scale), KEY, data())
    assert len(traces) == 1
    for inner, outer in ((0.1, 0.2), (0.3, 0.1)):
        counted(Rounding(method=defend(defense, PCA(), inner), step=outer), KEY, data())
    assert len(traces) == 2
    if defense in OF_ANY_SIZE:
        counted(defend(defense, PCA(n_components=3), 0.1), KEY, data())
        assert len(traces) == 3


@pytest.mark.parametrize("defense", OF_ANY_SIZE)
def test_flags_of_the_method_stay_and_a_bad_target_marks_its_own_lane_only(defense):
    assert int(fit(defend(defense, Unchanged(), 0.1), KEY, data()).status) == Status.SIGN_TIE
    method = defend(defense, PCA(), 0.1)
    targets = data(M, seed=9)
    targets[1] = np.nan
    status = insert_batch(method, jax.random.split(KEY, M), method.prepare(data()[1:]), targets).status
    assert [bool(int(s) & Status.NON_FINITE) for s in status] == [False, True, False, False]
    flat = fit(defend(defense, PCA(), 0.0), KEY, np.ones((N, D), np.float32))
    assert int(flat.status) & Status.DEGENERATE
    huge = fit(OutputNoise(method=PCA(), sigma=3e38, relative=False), KEY, data(200))
    assert int(huge.status) & Status.NON_FINITE  # beyond float32 where the deviate is above 1.2


def test_objective_is_the_wrapped_method_s_and_precision_the_records(dtype):
    x = data(dtype=dtype)
    for defense in DEFENSES:
        method = defend(defense, PCA(), 0.1)
        out = fit(method, KEY, x)
        assert out.coords.dtype == dtype
        assert float(method.objective(out.coords, x)) == pytest.approx(float(PCA().objective(out.coords, x)))
        assert method.deterministic == (defense in ("rounding", "groups", "hexagons"))
    srp = Rounding(method=SparseRandomProjection(), step=0.1)
    assert not srp.deterministic


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf"), True, "1", None, np.array([0.1, -1.0])])
@pytest.mark.parametrize("defense", sorted(DEFENSES))
def test_a_scale_that_is_no_number_from_0_is_refused(defense, bad):
    with pytest.raises(ValueError, match=r"(sigma|step|size|width) must be a finite number >= 0, got"):
        defend(defense, PCA(), bad)


def test_other_bad_input_is_refused():
    with pytest.raises(
        ValueError, match="defense must be one of groups, hexagons, input-noise, output-noise, rounding; got 'clipping'"
    ):
        defend("clipping", PCA(), 0.1)
    for method in ("pca", PCA, None):
        with pytest.raises(ValueError, match="method must be a DR method, got"):
            InputNoise(method=method, sigma=0.1)
    noisy = InputNoise(method=TSNE(perplexity=float(N)), sigma=0.1)
    with pytest.raises(ValueError, match="perplexity must be < n = 12 records"):
        noisy.prepare(data()[1:])
    known, spoilt = data()[1:], data()[1:]
    spoilt[3, 2] = np.nan
    for defense in DEFENSES:
        method = defend(defense, PCA(), 0.1)
        with pytest.raises(ValueError, match="target"):
            insert(method, KEY, method.prepare(known), np.zeros(D + 1, np.float32))
        with pytest.raises(ValueError, match=r"known must be finite.*\(3, 2\)"):
            method.prepare(spoilt)


@pytest.mark.usefixtures("all_platforms")
def test_lowers_for_tpu_on_a_machine_without_one():
    keys, targets = jax.random.split(KEY, M), data(M, seed=9)
    for defense in DEFENSES:
        method = defend(defense, PCA(), 0.1)
        shared = method.prepare(data()[1:])
        jitted = jax.jit(lambda *rest, method=method: method.insert_batch(*rest).coords)
        assert jax.export.export(jitted, platforms=["tpu"])(keys, shared, targets).platforms == ("tpu",)
