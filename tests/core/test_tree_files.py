"""Pytrees in files: bit for bit, of drjax's classes alone, and damage is told."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.core import array_files, tree_files
from drjax.core.streamed import Product
from drjax.core.types import Embedding

KNOWN = np.random.default_rng(0).normal(size=(6, 3))


def test_a_tree_comes_back_bit_for_bit(tmp_path):
    tree = Embedding(
        coords=[np.asfortranarray(KNOWN * np.pi), jnp.arange(3, dtype=jnp.uint32), np.array([np.nan, -0.0, 5e-324])],
        objective=(1, True, None, "text", 0.1, -np.inf),
        n_iter={"b": np.int64(2**62 + 1), "a": np.dtype(np.float32)},
        status=jax.random.split(jax.random.key(7)),
        info=jax.random.key(7, impl="rbg"),
    )
    path = tmp_path / "tree.npz"
    found = tree_files.put(path, tree_files.contents(tree))
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(found), strict=True):
        assert type(a) is type(b)
        if isinstance(a, jax.Array) and jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            assert a.dtype == b.dtype
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    # Products are summed in the order that arrays lie in.
    assert found.coords[0].flags.f_contiguous
    assert found.n_iter["b"].dtype == np.int64
    # The first writer is believed.
    assert tree_files.put(path, tree_files.contents((1,))).objective == tree.objective


def test_what_is_at_hand_is_not_copied():
    mapped = KNOWN[::-1][::-1]  # the same memory under another name
    tree = (Product(mapped, np.zeros(3)), jnp.asarray(KNOWN.astype(np.float32)), KNOWN + 0)
    arrays = tree_files.contents(tree, {"known": KNOWN})
    assert sum(array.nbytes for name, array in arrays.items() if name != "tree") == 24
    product, single, copied = tree_files.restored(arrays, {"known": KNOWN})
    assert product.rows is KNOWN
    assert single.dtype == jnp.float32
    np.testing.assert_array_equal(single, tree[1])
    np.testing.assert_array_equal(copied, KNOWN)
    # Of the same values in another order in memory, a copy: products would differ.
    assert len(tree_files.contents(np.asfortranarray(KNOWN), {"known": KNOWN})) == 2


class Outside:
    pass


@pytest.mark.parametrize(
    "part",
    [Outside(), len, {1: 2}, np.array([None]), jnp.zeros(2, jnp.bfloat16), jnp.asarray(0.5)],
    ids=["class", "function", "keys", "objects", "bfloat16", "weak type"],
)
def test_what_has_no_form_is_refused(part):
    with pytest.raises(ValueError, match="a pytree's"):
        tree_files.contents([part])


@pytest.mark.parametrize(
    "tree",
    [
        {"class": ["os", "system"], "fields": ["true"]},
        {"class": ["drjax.core.store", "Store"], "fields": []},
        {"class": ["drjax.core.store", "os.system"], "fields": ["true"]},
        {"class": ["drjax.core.types", "Embedding"], "fields": [1]},
        {"array": "7", "turned": False},
        {"beside": "other"},
        {"odd": 1},
    ],
)
def test_a_file_that_names_what_is_no_class_of_drjax_is_refused(tree):
    arrays = {"tree": np.frombuffer(json.dumps(tree).encode(), np.uint8)}
    with pytest.raises(ValueError, match="must"):
        tree_files.restored(arrays)


def test_a_precision_that_would_be_lost_is_refused(tmp_path):
    with jax.enable_x64(True):
        arrays = tree_files.contents(jnp.asarray(KNOWN))
    array_files.save_arrays(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match="arrays must have dtypes that JAX keeps, got float64"):
        tree_files.load(tmp_path / "x.npz")
