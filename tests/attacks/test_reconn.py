"""RecoNN on digits: what an adversary sees of a model, what networks and regressions make of it, and their files."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from drjax import data
from drjax.attacks.reconstruction import reconn
from drjax.attacks.reconstruction.model_vectors import Inputs
from drjax.attacks.reconstruction.reconn import RECIPES, ReconnConfig, ReconnModel, choose_queries, representation
from drjax.core.types import Status
from drjax.nets.classifier_training import Training, train_many
from drjax.nets.classifiers import Classifier
from drjax.nets.training import TrainConfig, predict, train
from drjax.nets.vector_reconstructors import VectorReconstructor

TRAINING = Training(model=Classifier(hidden=(6,)), epochs=40, learning_rate=0.2)
CNN = Training(model=Classifier(image_shape=(8, 8, 1), channels=(2, 3), hidden=(4,)))
N_KNOWN, N_SHADOWS, N_VALIDATION, N_TESTED = 100, 300, 50, 100
QUICK = dataclasses.replace(RECIPES["fast"], epochs=30, hidden=(100,), n_components=200, batch_size=32, n_ensemble=1)


@functools.cache
def digits():
    """Known records, their labels, and the targets of all models with theirs; pixels in [0, 1]."""
    images = data.load("digits")
    order = np.random.default_rng(0).permutation(len(images.x))[: N_KNOWN + N_SHADOWS + N_VALIDATION + N_TESTED]
    x, y = np.asarray(images.x, np.float32)[order], np.asarray(images.y)[order]
    return x[:N_KNOWN], y[:N_KNOWN], x[N_KNOWN:], y[N_KNOWN:]


@functools.cache
def released():
    known_x, known_y, targets_x, targets_y = digits()
    init = TRAINING.model.init(jax.random.key(1), 64)
    return train_many(TRAINING, known_x, known_y, targets_x, targets_y, init=init)


def queries():
    return choose_queries(jax.random.key(5), digits()[0], 40)


@functools.cache
def parts(access="weights"):
    """(vectors, targets) to train on, to validate on and to attack."""
    vectors = representation(TRAINING, released(), access=access, queries=queries() if access == "logits" else None)
    cuts = [N_SHADOWS, N_SHADOWS + N_VALIDATION]
    return list(zip(np.split(vectors, cuts), np.split(digits()[2], cuts), strict=True))


@functools.cache
def fitted(access="weights", config=QUICK):
    shadows, validation, _ = parts(access)
    return reconn.fit(jax.random.key(0), *shadows, config, validation=validation)


def error_of(result, access="weights"):
    """Mean squared error on the attacked models, relative to that of the mean of the shadow targets."""
    shadows, _, (_, targets) = parts(access)
    return np.mean((result.x - targets) ** 2) / np.mean((shadows[1].mean(axis=0) - targets) ** 2)


def test_fast_recipe_beats_the_mean_image_clearly():
    model, history = fitted()
    result = reconn.reconstruct(model, parts()[2][0])
    assert error_of(result) < 0.6
    assert result.x.dtype == np.float32
    assert result.x.shape == (N_TESTED, 64)
    assert result.candidates.shape == (N_TESTED, 1, 64)
    assert not result.status.any()
    assert np.isnan(result.residual_norm).all()
    assert history.validation_loss[-1, 0] < history.validation_loss[0, 0]


def test_notebook_recipe_beats_the_mean_image():
    config = dataclasses.replace(RECIPES["notebook"], epochs=40, hidden=(200, 200), learning_rate=1e-3)
    model, _ = fitted(config=config)
    assert error_of(reconn.reconstruct(model, parts()[2][0])) < 0.9


@pytest.mark.parametrize(
    ("fit", "access", "limit"),
    [(reconn.fit_ridge, "weights", 0.8), (reconn.fit_quadratic, "weights", 0.6), (reconn.fit_quadratic, "logits", 0.8)],
)
def test_regressions_beat_the_mean_image(fit, access, limit):
    shadows, _, (vectors, _) = parts(access)
    model = fit(*shadows)
    result = model.reconstruct(vectors)
    assert error_of(result, access) < limit
    assert result.x.min() >= 0
    assert result.x.max() <= 1
    np.testing.assert_array_equal(result.x, fit(*shadows).reconstruct(vectors).x)


def test_ridge_leave_one_out_error_is_that_of_leaving_one_out():
    shadows, _, _ = parts()
    vectors, targets = shadows[0][:40].astype(np.float64), shadows[1][:40]
    model = reconn.fit_ridge(vectors, targets)
    found = model.regression
    kernel = (found.inputs @ found.inputs.T + 1) / 2
    errors = []
    for i in range(40):
        rest = np.arange(40) != i
        penalised = kernel[np.ix_(rest, rest)] + found.choice.penalty * np.eye(39)
        dual = np.linalg.solve(penalised, (targets - found.intercept)[rest])
        errors.append(kernel[i, rest] @ dual + found.intercept - targets[i])
    np.testing.assert_allclose(found.choice.loo_mse, np.mean(np.square(errors)), rtol=1e-6)


def test_decoder_for_images_and_its_critic_learn_too():
    config = dataclasses.replace(
        QUICK, epochs=12, image_shape=(8, 8, 1), channels=(8, 8), adversarial_weight=0.01, learning_rate=3e-3
    )
    model, history = fitted(config=config)
    assert error_of(reconn.reconstruct(model, parts()[2][0])) < 0.9
    assert not history.status.any()


def test_weights_are_those_of_ravel_pytree_and_layers_a_part_of_them():
    params = released()
    flat = representation(TRAINING, params)
    assert flat.shape == (N_SHADOWS + N_VALIDATION + N_TESTED, TRAINING.model.n_parameters(64))
    assert flat.dtype == np.float32
    np.testing.assert_array_equal(flat[7], ravel_pytree(jax.tree.map(lambda leaf: leaf[7], params))[0])
    first = 6 + 6 * 64
    np.testing.assert_array_equal(representation(TRAINING, params, access="layers", layers=[0]), flat[:, :first])
    swapped = representation(TRAINING, params, access="layers", layers=[1, 0])
    np.testing.assert_array_equal(swapped, np.concatenate([flat[:, first:], flat[:, :first]], axis=1))


@pytest.mark.parametrize("training", [TRAINING, CNN], ids=["dense", "convolutional"])
def test_logits_are_the_models_point_by_point(training):
    keys = jax.random.split(jax.random.key(3), 5)
    params = jax.vmap(lambda key: training.model.init(key, 64))(keys)
    points = queries()
    vectors = representation(training, params, access="logits", queries=points)
    assert vectors.shape == (5, 40 * 10)
    one = jax.tree.map(lambda leaf: leaf[3], params)
    np.testing.assert_allclose(vectors[3].reshape(40, 10), training.model.logits(one, points), rtol=1e-5, atol=1e-6)


def test_parameters_of_a_convolutional_model_are_its_layers():
    params = jax.vmap(lambda key: CNN.model.init(key, 64))(jax.random.split(jax.random.key(3), 2))
    assert representation(CNN, params).shape == (2, CNN.model.n_parameters(64))
    assert representation(CNN, params, access="layers", layers=(0, 1)).shape == (2, 2 * 9 + 2 + 2 * 3 * 9 + 3)


def test_queries_are_different_known_records():
    known = digits()[0]
    drawn = choose_queries(jax.random.key(0), known, N_KNOWN)
    np.testing.assert_array_equal(np.unique(drawn, axis=0), np.unique(known, axis=0))
    with pytest.raises(ValueError, match="known_x must have at least 200 rows, got 100"):
        choose_queries(jax.random.key(0), known)


def test_inputs_are_standardised_and_constant_coordinates_harmless():
    raw = np.random.default_rng(0).normal(3, 5, size=(50, 8)).astype(np.float32)
    raw[:, 2] = 0.1
    z = Inputs.fit(raw, has_equal_lengths=False).transform(raw)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-5)  # float32
    np.testing.assert_allclose(z.std(axis=0), [1, 1, 0, 1, 1, 1, 1, 1], atol=1e-5)
    equal = Inputs.fit(raw, has_equal_lengths=True).transform(raw)
    np.testing.assert_allclose(np.linalg.norm(equal, axis=1), np.sqrt(8), rtol=1e-5)
    np.testing.assert_array_equal(np.sign(equal), np.sign(z))
    projected = Inputs.fit(raw, has_equal_lengths=False, n_components=7).transform(raw)
    assert projected.shape == (50, 7)
    np.testing.assert_allclose(np.mean(projected**2), 1, rtol=1e-4)
    # Seven directions hold all that varies: scalar products are kept, up to the common scale.
    np.testing.assert_allclose(projected @ projected.T, z @ z.T, rtol=1e-3, atol=1e-3)
    assert Inputs.fit(raw[:5], has_equal_lengths=False, n_components=7).transform(raw).shape == (50, 5)


def test_rmsprop_of_the_loop_is_optax_rmsprop():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)).astype(np.float32), rng.uniform(size=(12, 4)).astype(np.float32)
    config = TrainConfig(epochs=5, batch_size=12, optimizer="rmsprop", learning_rate=3e-2, l1_weight=0.5)

    def make(rngs):
        return VectorReconstructor(3, 4, hidden=(5,), rngs=rngs)

    key = jax.random.key(0)
    state, history = train(key[None], make, x, y, config, validation=(x, y))
    assert history.best_epoch[0] == 4

    fresh = train(key[None], make, x, y, dataclasses.replace(config, epochs=1, learning_rate=1e-12), validation=(x, y))
    params, rest = jax.tree.map(lambda leaf: leaf[0], fresh[0])
    optimizer = optax.rmsprop(3e-2)
    memory = optimizer.init(params)

    def loss(p):
        state = jax.tree.map(lambda leaf: leaf[None], (p, rest))
        error = predict(make, state, x)[0] - y
        return jnp.mean(error**2) + 0.5 * jnp.mean(jnp.abs(error))

    for _ in range(5):
        updates, memory = optimizer.update(jax.grad(loss)(params), memory, params)
        params = optax.apply_updates(params, updates)
    for a, b in zip(jax.tree.leaves(state[0]), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(a[0], b, atol=1e-5)  # a full batch in another order


def test_saved_model_reconstructs_the_same(tmp_path):
    model, _ = fitted()
    path = tmp_path / "model.npz"
    model.save(path)
    loaded = ReconnModel.load(path)
    assert loaded.config == model.config
    vectors = parts()[2][0]
    np.testing.assert_array_equal(reconn.reconstruct(loaded, vectors).x, reconn.reconstruct(model, vectors).x)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"model\.npz must be"):
        ReconnModel.load(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(ValueError, match=r"model\.npz must be"):
        ReconnModel.load(path)


def test_equal_keys_give_equal_models_and_other_keys_others(tmp_path):
    shadows, validation, (vectors, _) = parts()
    config = dataclasses.replace(QUICK, epochs=2, n_ensemble=2)
    options = {"validation": validation, "checkpoint": tmp_path / "fit.npz"}
    first, _ = reconn.fit(jax.random.key(0), *shadows, config, validation=validation)
    again, _ = reconn.fit(jax.random.key(0), *shadows, config, **options)
    np.testing.assert_array_equal(reconn.reconstruct(first, vectors).x, reconn.reconstruct(again, vectors).x)
    assert np.abs(first.state[0]["decoder"]["kernel"][0] - first.state[0]["decoder"]["kernel"][1]).max() > 1e-3
    with pytest.raises(ValueError, match="checkpoint must come from"):
        reconn.fit(jax.random.key(1), *shadows, config, **options)


@pytest.mark.parametrize("regression", [False, True], ids=["network", "regression"])
def test_release_that_is_not_finite_is_flagged_and_the_others_are_not(regression):
    shadows, _, (vectors, _) = parts()
    vectors = vectors[:3].copy()
    vectors[1, 5] = np.inf
    attack = (
        reconn.fit_ridge(*shadows).reconstruct if regression else functools.partial(reconn.reconstruct, fitted()[0])
    )
    result = attack(vectors)
    assert result.status.tolist() == [0, Status.NON_FINITE, 0]
    assert np.isnan(result.x[1]).all()
    np.testing.assert_allclose(result.x[[0, 2]], attack(vectors[[0, 2]]).x, atol=1e-6)


def test_notebook_recipe_is_the_notebooks():
    recipe = RECIPES["notebook"]
    assert (recipe.optimizer, recipe.learning_rate, recipe.batch_size, recipe.epochs) == ("rmsprop", 3e-4, 32, 200)
    assert (recipe.hidden, recipe.has_products, recipe.n_components) == ((1000, 1000), False, None)
    assert (recipe.mse_weight, recipe.l1_weight, recipe.schedule) == (1, 1, "constant")
    assert recipe.patience >= recipe.epochs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optimizer": "sgd"}, "optimizer"),
        ({"hidden": ()}, "hidden"),
        ({"dropout": 1.0}, "dropout must be < 1"),
        ({"dropout": float("nan")}, "dropout"),
        ({"n_components": 0}, "n_components"),
        ({"n_ensemble": 0}, "n_ensemble"),
        ({"adversarial_weight": 0.1}, "adversarial_weight must be 0 without image_shape"),
        ({"image_shape": (8, 6, 1)}, "image_shape"),
    ],
)
def test_bad_configuration_raises_and_names_the_field(change, message):
    with pytest.raises(ValueError, match=message):
        ReconnConfig(**change)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"access": "gradients"}, "access must be one of"),
        ({"access": "layers"}, "layers must be given"),
        ({"layers": [0]}, "layers must be given for access 'layers' and only then"),
        ({"access": "layers", "layers": []}, "at least one index"),
        ({"access": "layers", "layers": [1, 1]}, "none twice"),
        ({"access": "layers", "layers": [2]}, "every entry of layers must be <= the last layer = 1"),
        ({"access": "layers", "layers": [-1]}, "every entry of layers must be an integer >= 0"),
        ({"access": "logits"}, "queries must be given"),
        ({"access": "logits", "queries": np.zeros((3, 63))}, "queries must have 64 columns"),
        ({"access": "logits", "queries": np.full((3, 64), np.nan)}, "queries must be finite"),
    ],
)
def test_bad_access_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        representation(TRAINING, released(), **options)


def test_parameters_of_another_classifier_are_refused():
    params = released()
    for wrong in (params[:1], params[0], {}, jax.tree.map(lambda leaf: leaf[0], params), None):
        with pytest.raises(ValueError, match="params must"):
            representation(TRAINING, wrong)


def test_bad_arrays_raise_and_name_the_argument():
    shadows, validation, _ = parts()
    vectors, targets = shadows
    key, broken = jax.random.key(0), np.where(np.arange(vectors.size).reshape(vectors.shape) == 3, np.nan, vectors)
    for arguments, held_out, message in (
        ((broken, targets), validation, "releases must be finite"),
        ((vectors, targets[:-1]), validation, "targets must have one row per vector"),
        ((vectors, 16 * targets), validation, r"targets must be in \[0, 1\]"),
        (shadows, (validation[0][:, :-1], validation[1]), r"validation\[0\] must have \d+ columns"),
        (shadows, (validation[0], validation[1][:, :-1]), r"validation\[1\] must have 64 columns"),
    ):
        with pytest.raises(ValueError, match=message):
            reconn.fit(key, *arguments, QUICK, validation=held_out)
    with pytest.raises(ValueError, match="image_shape must have 64 entries"):
        reconn.fit(key, *shadows, RECIPES["cifar10"], validation=validation)
    with pytest.raises(ValueError, match="key must be a single key"):
        reconn.fit(0, *shadows, QUICK, validation=validation)
    with pytest.raises(ValueError, match=r"releases must be numeric, of shape \(m, \d+\)"):
        reconn.reconstruct(fitted()[0], vectors[:, :-1])
    with pytest.raises(ValueError, match=r"releases must have shape \(b, \d+\)"):
        reconn.fit_ridge(*shadows).reconstruct(vectors[:, :-1])
    with pytest.raises(ValueError, match="releases must have at least 2 rows"):
        reconn.fit_ridge(vectors[:1], targets[:1])
