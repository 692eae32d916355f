"""The learned attack end to end on tiny releases, and what its configuration and files promise."""

import dataclasses

import chex
import jax
import numpy as np
import pytest

from drjax.attacks.reconstruction.neural import RECIPES, NeuralConfig, NeuralModel, fit, reconstruct
from drjax.attacks.reconstruction.reconn import ReconnModel
from drjax.core.types import Status

QUICK = NeuralConfig(architecture="flat", epochs=8, batch_size=32, learning_rate=1e-3, patience=8, scaling="standard")


def shadows(m=300, flipped=False, seed=0):
    """Releases of a fixed known set around a target whose two coordinates are linear in it; signs may flip."""
    rng = np.random.default_rng(seed)
    setup = np.random.default_rng(7)
    known, mixing = 3 * setup.normal(size=(5, 2)), setup.normal(size=(2, 6))
    targets = rng.uniform(size=(m, 6))
    coords = (targets - 0.5) @ mixing.T
    rows = known + 0.05 * rng.normal(size=(m, 5, 2))
    releases = np.concatenate([coords[:, None], rows], axis=1)
    if flipped:
        releases = releases * rng.choice([-1, 1], size=(m, 1, 2))
    return releases, targets


def mse_of(config, *, flipped=False, seed=0):
    model, _ = fit(jax.random.key(seed), *shadows(flipped=flipped), config, validation=shadows(80, flipped, 1))
    releases, targets = shadows(100, flipped, 2)
    return np.mean((reconstruct(model, releases).x - targets) ** 2)


@pytest.fixture(scope="module")
def trained():
    config = dataclasses.replace(QUICK, n_ensemble=2, align_signs=True)
    return fit(jax.random.key(0), *shadows(), config, validation=shadows(80, seed=1))


def test_beats_the_mean_record(trained):
    model, _ = trained
    releases, targets = shadows(100, seed=2)
    result = reconstruct(model, releases)
    assert np.mean((result.x - targets) ** 2) < 0.85 * np.var(targets)  # two of six directions are in the release
    assert result.x.dtype == np.float32
    assert result.candidates.shape == (100, 1, 6)
    assert np.isnan(result.residual_norm).all()
    assert not result.status.any()


def test_aligning_signs_undoes_flips():
    aligned = dataclasses.replace(QUICK, align_signs=True)
    same = mse_of(aligned)
    np.testing.assert_allclose(mse_of(aligned, flipped=True), same, rtol=0.1)  # up to one overall sign per component


def test_ensemble_is_the_mean_of_its_members(trained):
    model, _ = trained
    releases, _ = shadows(10, seed=3)
    members = []
    for e in range(2):
        state = jax.tree.map(lambda leaf, e=e: leaf[e : e + 1], model.state)
        members.append(
            reconstruct(dataclasses.replace(model, state=state, member_status=np.zeros(1, np.uint32)), releases).x
        )
    assert np.abs(members[0] - members[1]).max() > 1e-3
    np.testing.assert_allclose(reconstruct(model, releases).x, np.mean(members, axis=0), atol=1e-6)  # float32


def test_failed_members_and_failed_releases_are_flagged_and_left_out(trained):
    model, _ = trained
    releases, _ = shadows(4, seed=3)
    half = dataclasses.replace(model, member_status=np.array([Status.NON_FINITE, 0], np.uint32))
    alone = dataclasses.replace(
        model, state=jax.tree.map(lambda leaf: leaf[1:], model.state), member_status=np.zeros(1, np.uint32)
    )
    np.testing.assert_array_equal(reconstruct(half, releases).x, reconstruct(alone, releases).x)
    none = dataclasses.replace(model, member_status=np.full(2, Status.NON_FINITE, np.uint32))
    assert (reconstruct(none, releases).status == Status.NON_FINITE).all()
    releases[2, 1, 0] = np.nan
    result = reconstruct(model, releases)
    assert result.status.tolist() == [0, 0, Status.NON_FINITE, 0]
    assert np.isnan(result.x[2]).all()
    assert np.isfinite(result.x[[0, 1, 3]]).all()


def test_clip_keeps_reconstructions_in_range(trained):
    model, _ = trained
    releases = 20 * shadows(50, seed=3)[0]
    assert reconstruct(model, releases).x.max() > 1
    clipped = reconstruct(dataclasses.replace(model, config=dataclasses.replace(model.config, clip=True)), releases).x
    assert clipped.min() >= 0
    assert clipped.max() <= 1


def test_saved_model_reconstructs_the_same_and_holds_no_pickle(trained, tmp_path):
    model, _ = trained
    path = tmp_path / "model.npz"
    model.save(path)
    with np.load(path, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
    loaded = NeuralModel.load(path)
    assert loaded.config == model.config
    releases, _ = shadows(10, seed=3)
    np.testing.assert_array_equal(reconstruct(loaded, releases).x, reconstruct(model, releases).x)


def test_damaged_or_foreign_files_are_value_errors(trained, tmp_path):
    model, _ = trained
    path = tmp_path / "model.npz"
    model.save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"model\.npz must be an npz file"):
        NeuralModel.load(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(ValueError, match=r"model\.npz must be"):
        NeuralModel.load(path)
    model.save(path)
    with pytest.raises(ValueError, match=r"model\.npz must be a saved ReconnModel"):
        ReconnModel.load(path)


def test_checkpoint_lets_a_finished_fit_return_at_once(tmp_path):
    arguments = (jax.random.key(0), *shadows(100), QUICK)
    options = {"validation": shadows(40, seed=1), "checkpoint": tmp_path / "fit.npz"}
    first, _ = fit(*arguments, **options)
    second, history = fit(*arguments, **options)
    assert history.compile_seconds == 0
    chex.assert_trees_all_equal(first.state, second.state)


def test_paper_recipe_is_the_papers():
    paper = RECIPES["paper000"]
    assert (paper.epochs, paper.batch_size, paper.learning_rate, paper.patience) == (500, 64, 1e-5, 5)
    assert (paper.mse_weight, paper.l1_weight, paper.schedule) == (1, 1, "constant")
    assert (paper.scaling, paper.align_signs, paper.clip, paper.n_ensemble) == ("minmax", False, False, 1)
    assert dataclasses.replace(RECIPES["bch22"], architecture="auto") == paper


@pytest.mark.parametrize(
    ("field", "value"), [("architecture", "unet"), ("scaling", "log"), ("n_ensemble", 0), ("epochs", 0)]
)
def test_bad_configuration_raises_and_names_the_field(field, value):
    with pytest.raises(ValueError, match=field):
        NeuralConfig(**{field: value})


def test_bad_arrays_raise_and_name_the_argument(trained):
    releases, targets = shadows(40)
    key, validation = jax.random.key(0), shadows(20, seed=1)
    with pytest.raises(ValueError, match="releases must be numeric, of shape"):
        fit(key, releases[:, 0], targets, QUICK, validation=validation)
    with pytest.raises(ValueError, match="architecture 'mnist28' must be given records of 784 entries"):
        fit(key, releases, targets, dataclasses.replace(QUICK, architecture="mnist28"), validation=validation)
    with pytest.raises(ValueError, match=r"validation\[0\] must have shape \(m, 6, 2\)"):
        fit(key, releases, targets, QUICK, validation=(validation[0][:, :4], validation[1]))
    with pytest.raises(ValueError, match=r"validation\[1\] must have 6 columns"):
        fit(key, releases, targets, QUICK, validation=(validation[0], validation[1][:, :4]))
    with pytest.raises(ValueError, match="key must be a single key"):
        fit(0, releases, targets, QUICK, validation=validation)
    with pytest.raises(ValueError, match=r"releases must have shape \(m, 6, 2\)"):
        reconstruct(trained[0], releases[:, :4])
    with pytest.raises(ValueError, match="releases must be finite"):
        fit(key, np.where(releases > 3, np.nan, releases), targets, QUICK, validation=validation)
