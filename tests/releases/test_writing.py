"""Tables keep the shares that the model says, whatever the largest one-hot number would choose."""

import jax
import numpy as np
import pytest

from drjax.bounds import tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.data import schema_sources, tables
from drjax.releases import writing
from drjax.synthesis.contract import Box
from drjax.synthesis.frame import Frame, ProjectedSynthesizer
from drjax.synthesis.gaussian_model import Mixture

SHARES = np.array([0.02, 0.08, 0.9])


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_offsets_choose_each_category_as_often_as_its_mean_says(noise):
    rng = np.random.default_rng(0)
    values = SHARES + noise * rng.normal(size=(4000, 3))
    chosen = np.bincount(np.argmax(values + writing.fit_offsets(values), axis=1), minlength=3) / 4000
    # A share of means of 4,000 draws is off by less than 0.01 itself.
    np.testing.assert_allclose(chosen, SHARES, atol=0.02)
    assert np.bincount(np.argmax(values, axis=1), minlength=3)[0] < 0.02 * 4000


def test_offsets_keep_who_is_closest_to_a_category():
    rng = np.random.default_rng(1)
    latent = rng.normal(size=4000)
    values = np.stack([0.3 + 0.2 * latent, 0.7 - 0.2 * latent], axis=1)
    first = np.argmax(values + writing.fit_offsets(values), axis=1) == 0
    # One threshold on the latent variable, at its 70% quantile.
    assert first.mean() == pytest.approx(0.3, abs=0.02)
    assert latent[first].min() > latent[~first].max() - 1e-9


@pytest.mark.parametrize("means", [(-0.1, 0.4, 0.6), (-1.0, -1.0, -1.0)])
def test_a_category_that_noise_made_negative_is_never_chosen_and_nothing_breaks(means):
    values = np.array(means) + 0.1 * np.random.default_rng(2).normal(size=(1000, 3))
    chosen = np.argmax(values + writing.fit_offsets(values), axis=1)
    assert set(chosen) <= ({1, 2} if means[1] > 0 else {0, 1, 2})


def model(schema, class_means):
    """Gaussians in all features about class means, which are shares of the way between the bounds."""
    m = len(schema.feature_names)
    nothing = tradeoff.EpsilonDelta(0.0, 1.0, neighbouring="replace_one")
    return ProjectedSynthesizer(
        box=Box.of(*schema.bounds),
        task="classification",
        target_range=None,
        label_weight=1.0,
        is_sphere=False,
        decode=True,
        guarantee=Guarantee(nothing, nothing, "none: a test"),
        frame=Frame(np.zeros(m), np.ones(()), np.ones(())),
        components=np.eye(m),
        mixture=Mixture(np.array([0.25, 0.75]), 2 * np.array(class_means) - 1, 0.2 * np.stack([np.eye(m)] * 2)),
    )


def test_tables_have_the_shares_of_each_class():
    rows = b"size,colour,kind\n1,red,a\n5,green,b\n9,blue,a\n"
    schema = schema_sources.infer(tables.read_csv("t", rows), target="kind")
    # Features: size, colour=blue, colour=green, colour=red.
    synthesizer = model(schema, [[0.2, 0.05, 0.05, 0.9], [0.8, 0.7, 0.25, 0.05]])
    table = writing.synthetic_table(jax.random.key(0), synthesizer, schema, 6000)
    assert table.column_names == ["size", "colour", "kind"]
    kind, colour = np.array(table["kind"].to_pylist()), np.array(table["colour"].to_pylist())
    assert np.mean(kind == "a") == pytest.approx(0.25, abs=0.03)
    for name, shares in (("a", (0.05, 0.05, 0.9)), ("b", (0.7, 0.25, 0.05))):
        found = [np.mean(colour[kind == name] == c) for c in ("blue", "green", "red")]
        np.testing.assert_allclose(found, shares, atol=0.03)  # fitted to 4,000 draws, judged on 1,500 and more
    sizes = np.array(table["size"].to_pylist())
    assert sizes.min() >= 1
    assert sizes.max() <= 9
    assert sizes[kind == "b"].mean() > sizes[kind == "a"].mean() + 3
