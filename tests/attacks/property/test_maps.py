"""Maps of many groups: the same as fitting each, whatever the chunks, with defences in their place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks.property.defences import CoordinateNoise, EmbeddingNoise, EmbeddingRounding, EmbeddingThreshold
from drjax.attacks.property.groups import sample_groups
from drjax.attacks.property.maps import tsne_maps
from drjax.core.types import Embedding, Status, hyperparams
from drjax.dr import METHODS, PCA, TSNE, UMAP
from drjax.dr.tsne import method as tsne_module

KEY = jax.random.key(2)
X = (load_digits().data[:300] / 16).astype(np.float32)
GROUPS = sample_groups(KEY, load_digits().target[:300] < 5, (0.3, 0.6), 40, 3)
SHORT = TSNE(perplexity=8.0, max_iter=100)
NOISE = EmbeddingNoise(scale=0.5)


def test_a_map_is_that_of_its_own_records():
    found = tsne_maps(KEY, X, GROUPS, TSNE(perplexity=8.0, max_iter=12, learning_rate=1.0))
    assert found.coords.shape == (6, 40, 2)
    fit = jax.jit(TSNE(perplexity=8.0, max_iter=12, learning_rate=1.0).fit_transform)
    for rows, coords in zip(GROUPS.rows, found.coords, strict=True):
        alone = np.asarray(fit(KEY, X[rows]).coords)
        # The start differs by the rounding of another decomposition; at a low rate it stays that small.
        np.testing.assert_allclose(coords, alone, atol=1e-4 * np.abs(alone).max())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("init", "defence"),
    [
        ("pca", None),
        ("random", None),
        ("pca", NOISE),
        ("random", CoordinateNoise(scale=0.1)),
        ("pca", EmbeddingThreshold(keep=0.5)),
    ],
)
def test_map_i_depends_on_the_key_and_i_alone(defence, init):
    method = TSNE(perplexity=8.0, max_iter=60, init=init)
    whole = tsne_maps(KEY, X, GROUPS, method, defence=defence)
    parts = tsne_maps(KEY, X, GROUPS.rows[:4], method, defence=defence, batch_size=3)
    if jax.default_backend() == "cpu":  # elsewhere products of another batch round otherwise
        np.testing.assert_array_equal(parts.coords, whole.coords[:4])
    other = tsne_maps(jax.random.key(3), X, GROUPS, method, defence=defence)
    draws = init == "random" or not (defence is None or isinstance(defence, EmbeddingThreshold))
    assert (other.coords != whole.coords).any() == draws


def test_without_room_for_the_pools_distances_the_maps_are_the_same(monkeypatch):
    kept = tsne_maps(KEY, X, GROUPS, SHORT)
    monkeypatch.setattr(tsne_module, "POOL_BYTES", 0)
    np.testing.assert_array_equal(tsne_maps(KEY, X, GROUPS, SHORT).coords, kept.coords)


def test_defences_of_features_come_before_the_map():
    for defence in (EmbeddingRounding(decimals=0), EmbeddingThreshold(keep=0.3)):
        found = tsne_maps(KEY, X, GROUPS, SHORT, defence=defence)
        expected = tsne_maps(KEY, np.asarray(defence.on_features(KEY, X)), GROUPS, SHORT)
        np.testing.assert_array_equal(found.coords, expected.coords)
    # No noise is no defence: the pool's distances and a data set's own agree to the bit.
    silent = tsne_maps(KEY, X, GROUPS, SHORT, defence=EmbeddingNoise(scale=0.0))
    np.testing.assert_array_equal(silent.coords, tsne_maps(KEY, X, GROUPS, SHORT).coords)


def test_every_map_gets_its_own_noise():
    rows = np.stack([GROUPS.rows[0]] * 2)
    for defence in (NOISE, CoordinateNoise(scale=0.1)):
        first, second = tsne_maps(KEY, X, rows, PCA(), defence=defence).coords
        assert (first != second).any()


@hyperparams
class Draws(EmbeddingNoise):
    """A method and a defence that show what their key draws."""

    def on_features(self, key, x):
        return jnp.full_like(x, jax.random.uniform(key))

    def fit_transform(self, key, x):
        nothing = jnp.zeros((), jnp.int32)
        coords = jnp.stack([x[:, 0], jnp.full(len(x), jax.random.uniform(key))], axis=1)
        return Embedding(coords, jnp.zeros(()), nothing, nothing.astype(jnp.uint32), None)

    def on_coords(self, key, coords):
        return jnp.concatenate([coords, jnp.full((len(coords), 1), jax.random.uniform(key))], axis=1)


def test_a_map_and_its_defence_draw_from_keys_of_their_own():
    both = Draws(scale=0.0)
    coords = tsne_maps(KEY, X, GROUPS.rows[:2], both, defence=both, batch_size=2).coords
    assert len(np.unique(coords)) == 6  # two maps: noise of features, the method's draw and noise of coordinates


def test_defences_of_coordinates_come_after_the_map():
    plain = tsne_maps(KEY, X, GROUPS, SHORT)
    noisy = tsne_maps(KEY, X, GROUPS, SHORT, defence=CoordinateNoise(scale=0.1))
    spread = (noisy.coords - plain.coords).std(axis=(0, 1)) / plain.coords.std(axis=1).mean(axis=0)
    # 240 draws for each axis: a standard deviation within 4.5 standard errors, and axes of six maps.
    np.testing.assert_allclose(spread, 0.1, rtol=4.5 / np.sqrt(480) + 0.05)
    np.testing.assert_array_equal(noisy.objective, plain.objective)


# UMAP's many programs take half a minute to compile, and its fits are tested in tests/dr.
@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"umap"}))
def test_any_method_makes_maps(name):
    method = UMAP(n_epochs=20) if name == "umap" else METHODS[name]()
    found = tsne_maps(KEY, X, GROUPS.rows[:2], method)
    assert found.coords.shape == (2, 40, 2)
    assert np.isfinite(found.coords).all()
    if method.deterministic and name in ("pca", "classical_mds"):
        alone = jax.jit(method.fit_transform)(KEY, X[GROUPS.rows[1]]).coords
        np.testing.assert_allclose(found.coords[1], alone, atol=1e-4)  # float32 of coordinates of size 2


@pytest.mark.gpu
def test_a_map_that_fails_says_so_and_leaves_the_others_alone():
    x = X.copy()
    x[GROUPS.rows[1]] = x[GROUPS.rows[1][0]]
    only = np.stack([np.setdiff1d(np.arange(300), GROUPS.rows[1])[:40], GROUPS.rows[1]])
    found = tsne_maps(KEY, x, only, SHORT)
    assert found.status[1] & Status.DEGENERATE
    assert not found.status[0] & Status.DEGENERATE
    assert np.isfinite(found.coords[0]).all()
    if jax.default_backend() == "cpu":
        np.testing.assert_array_equal(found.coords[0], tsne_maps(KEY, x, only[:1], SHORT).coords[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.full((300, 3), np.inf)}, "features must be finite"),
        ({"groups": GROUPS.rows + 290}, "groups must name records from 0 to 299"),
        ({"groups": GROUPS.rows[0]}, "groups must be integer rows"),
        ({"groups": GROUPS.rows / 2}, "groups must be integer rows"),
        ({"method": TSNE(perplexity=40.0)}, "perplexity must be < n = 40 records"),
        ({"key": 0}, "key must be a single key"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"key": KEY, "features": X, "groups": GROUPS, "method": SHORT}
    with pytest.raises(ValueError, match=message):
        tsne_maps(**arguments | changes)
