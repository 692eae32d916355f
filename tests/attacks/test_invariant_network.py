"""The network on invariant features end to end on small MDS maps of digits, and what its files promise."""

import dataclasses

import chex
import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

from drjax.attacks.reconstruction import invariant
from drjax.attacks.reconstruction.invariant_network import InvariantNetwork, InvariantNetworkConfig, _weight, fit
from drjax.attacks.shadow import shadow_embeddings
from drjax.core.types import Status
from drjax.dr import MDS

QUICK = InvariantNetworkConfig(epochs=12, width=64, n_outputs=20)
X = np.random.default_rng(0).permutation(load_digits().data.astype(np.float32) / 16)
PARTS = {"train": X[50:450], "validation": X[450:550], "test": X[550:650]}


@pytest.fixture(scope="module")
def maps():
    """Releases of each part, from random starts."""
    keys = jax.random.split(jax.random.key(0), 3)
    return {
        name: shadow_embeddings(key, MDS(max_iter=60), X[:30], part).coords
        for key, (name, part) in zip(keys, PARTS.items(), strict=True)
    }


@pytest.fixture(scope="module")
def trained(maps):
    return train(maps)


@pytest.fixture(scope="module")
def again(maps, tmp_path_factory):
    """The same training, and the file in which it was kept."""
    path = tmp_path_factory.mktemp("again") / "training.npz"
    return train(maps, checkpoint=path)[0], path


def train(maps, key=3, **options):
    validation = (maps["validation"], PARTS["validation"])
    return fit(jax.random.key(key), maps["train"], PARTS["train"], QUICK, validation=validation, **options)


def error(x):
    return np.mean((x - PARTS["test"]) ** 2)


def test_beats_the_mean_record_and_is_no_worse_than_the_kernel_beside_it(maps, trained):
    model, history = trained
    result = model.reconstruct(maps["test"])
    assert not result.status.any()
    assert error(result.x) < 0.85 * error(PARTS["train"].mean(axis=0))
    kernel = invariant.fit(maps["train"], PARTS["train"])
    # The weight is chosen on a hundred records; it may cost a little on others.
    assert error(result.x) < 1.02 * error(kernel.reconstruct(maps["test"]).x)
    # The network alone, too, has learnt more than the mean.
    alone = dataclasses.replace(model, weight=1.0)
    assert error(alone.reconstruct(maps["test"]).x) < 0.95 * error(PARTS["train"].mean(axis=0))
    assert history.validation_loss[-1].max() < history.validation_loss[0].max()


def test_a_network_half_as_far_from_the_kernel_as_the_targets_is_not_weighed_double(maps, trained):
    coords = maps["validation"]
    base, own = trained[0].kernel.reconstruct(coords).x, trained[0]._network(coords)
    # Least squares on the line through both would be 2, -1 and 0.5.
    for factor, weight in ((2, 1), (-1, 0), (0.5, 0.5)):
        assert _weight(trained[0], coords, base + factor * (own - base)) == pytest.approx(weight)


def test_does_not_change_with_rotation_and_reflection(maps, trained):
    model, _ = trained
    turned = maps["test"] @ np.array([[0.6, 0.8], [0.8, -0.6]]) + 3
    np.testing.assert_allclose(model.reconstruct(turned).x, model.reconstruct(maps["test"]).x, atol=1e-3)  # float32


def test_the_same_key_gives_the_same_model_and_another_key_another(maps, trained, again):
    same, _ = again
    chex.assert_trees_all_equal(trained[0].state, same.state)
    assert same.weight == trained[0].weight
    other, _ = train(maps, key=4)
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(same.state), jax.tree.leaves(other.state), strict=True))


def test_a_saved_model_reconstructs_the_same(maps, trained, tmp_path):
    model, _ = trained
    model.save(tmp_path / "model.npz")
    loaded = InvariantNetwork.load(tmp_path / "model.npz")
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded.reconstruct(maps["test"]).x, model.reconstruct(maps["test"]).x)
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="must be"):
        InvariantNetwork.load(tmp_path / "other.npz")


def test_a_killed_training_goes_on_where_it_was(maps, trained, again):
    first, path = again
    second, history = train(maps, checkpoint=path)
    assert history.compile_seconds == 0
    for model in (first, second):
        np.testing.assert_array_equal(model.reconstruct(maps["test"]).x, trained[0].reconstruct(maps["test"]).x)


def test_bad_releases_are_flagged_and_the_others_untouched(maps, trained):
    model, _ = trained
    coords = maps["test"][:3].copy()
    coords[1, 2, 0] = np.nan
    result = model.reconstruct(coords)
    assert result.status.tolist() == [0, Status.NON_FINITE, 0]
    assert np.isnan(result.x[1]).all()
    expected = model.reconstruct(maps["test"][[0, 2]]).x
    np.testing.assert_allclose(result.x[[0, 2]], expected, atol=1e-5)  # batches of another size


def test_failed_members_do_not_enter_the_mean(maps, trained):
    model, _ = trained
    half = dataclasses.replace(model, member_status=np.array([Status.NON_FINITE, 0], np.uint32), weight=1.0)
    alone = dataclasses.replace(
        model, state=jax.tree.map(lambda leaf: leaf[1:], model.state), member_status=np.zeros(1, np.uint32), weight=1.0
    )
    np.testing.assert_array_equal(half.reconstruct(maps["test"]).x, alone.reconstruct(maps["test"]).x)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"key": 0}, "key must be a single key"),
        ({"targets": PARTS["train"][:5]}, "targets must have one row per release"),
        ({"validation": (np.zeros((4, 9, 2)), np.zeros((4, 64)))}, r"validation\[0\] must have shape \(4, 31, 2\)"),
        ({"validation": (np.zeros((4, 31, 2)), np.zeros((4, 6)))}, r"validation\[1\] must have 64 columns"),
        ({"validation": (np.full((4, 31, 2), np.nan), np.zeros((4, 64)))}, r"validation\[0\] must be finite"),
    ],
)
def test_bad_arrays_raise_and_name_the_argument(maps, change, match):
    few, targets = maps["train"][:20], PARTS["train"][:20]
    arguments = {"key": jax.random.key(0), "releases": few, "targets": targets, "config": QUICK}
    arguments |= {"validation": (maps["validation"], PARTS["validation"]), **change}
    with pytest.raises(ValueError, match=match):
        fit(
            arguments["key"],
            arguments["releases"],
            arguments["targets"],
            arguments["config"],
            validation=arguments["validation"],
        )


@pytest.mark.parametrize(
    ("field", "value"), [("width", 0), ("n_blocks", -1), ("dropout", 1.0), ("dropout", -0.1), ("n_outputs", 0)]
)
def test_bad_configuration_raises_and_names_the_field(field, value):
    with pytest.raises(ValueError, match=field):
        InvariantNetworkConfig(**{field: value})
