"""Kernel ridge regression on descriptors, against scikit-learn's."""

import numpy as np
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_ridge import KernelRidge as SkKernelRidge

from drjax.attacks.property import kernel_model
from drjax.attacks.property.kernel_model import fit_kernel_ridge, relevance


def records(m, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(m, 6)) * [1, 5, 1, 1, 0.1, 3]
    return x, 0.5 + 0.3 * np.tanh(x[:, 0]) + 0.1 * np.sin(2 * x[:, 2]) + 0.02 * rng.normal(size=m)


def sk_ridge(found, y, penalty):
    kernel = Matern(length_scale=np.sqrt(found.regression.unit), nu=1.5)
    return SkKernelRidge(kernel=kernel, alpha=penalty).fit(found.regression.inputs, y - found.regression.intercept)


def test_predicts_as_scikit_learn_with_the_same_kernel_and_its_error_is_that_of_leaving_one_out():
    x, y = records(60)
    found = fit_kernel_ridge(x, y)
    fresh = found.scaler.transform(records(20, seed=1)[0])
    inputs, intercept = found.regression.inputs, found.regression.intercept
    peer = sk_ridge(found, y, found.regression.choice.penalty)
    expected = peer.predict(fresh) + intercept
    np.testing.assert_allclose(found.predict(records(20, seed=1)[0]), expected, atol=1e-6)  # two solvers
    left = []
    for i in range(60):
        rest = np.arange(60) != i
        kernel = Matern(length_scale=np.sqrt(found.regression.unit), nu=1.5)
        one = SkKernelRidge(kernel=kernel, alpha=peer.alpha).fit(inputs[rest], y[rest] - intercept)
        left.append(one.predict(inputs[[i]])[0] + intercept - y[i])
    np.testing.assert_allclose(found.loo_error, np.sqrt(np.mean(np.square(left))), rtol=1e-6)


def test_what_says_nothing_has_little_weight_and_a_bent_answer_is_seen():
    rng = np.random.default_rng(0)
    y = rng.uniform(size=400)
    x = np.stack([y, (y - 0.5) ** 2, rng.normal(size=400)], axis=1)
    found = relevance((x - x.mean(axis=0)) / x.std(axis=0), y)
    # Chance gives correlations of a twentieth.
    assert found[0] > 0.99
    assert found[1] > 0.95
    assert found[2] < 0.15
    np.testing.assert_array_equal(relevance(np.zeros((400, 3)), y), 1)


def test_many_maps_are_tuned_on_some_and_learnt_from_all(monkeypatch):
    x, y = records(400)
    fresh, truth = records(200, seed=1)
    whole = fit_kernel_ridge(x, y)
    monkeypatch.setattr(kernel_model, "MAX_TUNED", 100)
    quick = fit_kernel_ridge(x, y)
    assert len(quick.regression.inputs) == 400
    few = fit_kernel_ridge(x[:100], y[:100])
    errors = [np.abs(found.predict(fresh) - truth).mean() for found in (whole, quick, few)]
    assert errors[1] < 1.2 * errors[0]
    assert errors[1] < 0.8 * errors[2]
