import dataclasses

import jax
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

from drjax import dr
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.recognition import recognise
from drjax.attacks.recognition.agreement import Stated, agreeing

STANDARD = dr.Standardise()


@pytest.fixture(scope="module")
def records():
    x = load_breast_cancer().data
    return x[np.random.default_rng(0).permutation(len(x))[:81]]


@pytest.fixture(scope="module")
def standardised(records):
    coords = PCA(2).fit_transform(StandardScaler().fit_transform(records))
    return recognise(jax.random.key(0), records[1:], coords, methods=("pca",))


@pytest.mark.parametrize(
    ("method", "is_agreed"),
    [
        (dr.Pipeline(before=(STANDARD,), method=dr.PCA()), True),
        (dr.Pipeline(before=(STANDARD, dr.FirstPCA(n_components=500)), method=dr.PCA()), True),
        (dr.Pipeline(before=(STANDARD,), method=dr.ClassicalMDS()), True),
        (dr.PCA(), False),
        (dr.Pipeline(before=(dr.MinMax(),), method=dr.PCA()), False),
        (dr.Pipeline(before=(STANDARD,), method=dr.MDS()), False),
        (dr.Pipeline(before=(STANDARD,), method=dr.PCA(), after=(dr.UnitVariance(),)), False),
    ],
)
def test_a_map_bears_out_how_it_was_made_and_nothing_else(records, standardised, method, is_agreed):
    assert (agreeing(standardised, Stated.whole(method), records) is not None) == is_agreed


def test_what_is_left_open_is_not_compared(records, standardised):
    found = agreeing(standardised, Stated(dr.PCA()), records)
    assert found.method == dr.Pipeline(before=(STANDARD,), method=dr.PCA())
    assert agreeing(standardised, Stated(dr.PCA(), has_steps=True), records) is None


@pytest.mark.parametrize(
    ("stated", "is_agreed"),
    [
        (Stated(dr.TSNE(perplexity=12.0), frozenset({"perplexity"})), True),
        (Stated(dr.TSNE(perplexity=30.0), frozenset({"perplexity"})), False),
        (Stated(dr.TSNE(perplexity=30.0)), True),
        (Stated(dr.TSNE(perplexity=12.0, metric="cosine"), frozenset({"metric"})), False),
        (Stated(dr.Pipeline(before=(dr.MinMax(),), method=dr.TSNE()), has_steps=True), False),
        (Stated(dr.TSNE(), angle=0.5), True),
        (Stated(dr.TSNE(), angle=0.55), True),
        (Stated(dr.TSNE(), angle=0.8), False),
        (Stated(dr.TSNE(), angle=0.2), False),
    ],
)
def test_a_map_contradicts_a_wrong_perplexity_metric_step_or_angle(tsne_map, stated, is_agreed):
    records, belief = tsne_map
    assert (agreeing(belief, stated, records) is not None) == is_agreed


@pytest.fixture(scope="module")
def tsne_map(records):
    coords = TSNE(perplexity=12, random_state=0).fit_transform(records)
    belief = recognise(jax.random.key(0), records[1:], coords, methods=("tsne",))
    return np.concatenate([records[1:2], records[1:]]), belief


@pytest.mark.parametrize(
    ("made", "said", "agreed"),
    [
        ({"angle": 0.2}, "angle 0.2 or less", {0.1, 0.2}),
        ({"angle": 0.65}, "angle 0.65", {0.65}),
        ({"method": "exact"}, "exact", {0.1, 0.2}),
    ],
)
def test_the_angle_of_a_map_by_scikit_learn_is_recognised(records, made, said, agreed):
    coords = TSNE(perplexity=12, random_state=0, **made).fit_transform(records)
    belief = recognise(jax.random.key(0), records[1:], coords, methods=("tsne",))
    assert belief.method.perplexity == 12
    assert belief.title.endswith(f"{said})")
    x = np.concatenate([records[1:2], records[1:]])
    angles = (0.1, 0.2, 0.5, 0.65, 0.8)
    assert {one for one in angles if agreeing(belief, Stated(dr.TSNE(), angle=one), x) is not None} == agreed


def test_an_angle_is_of_t_sne():
    with pytest.raises(ValueError, match="angle must be left out for all methods but tsne"):
        Stated(dr.PCA(), angle=0.5)
    with pytest.raises(ValueError, match="angle must"):
        Stated(dr.TSNE(), angle=-0.5)


def test_without_a_belief_nothing_agrees(records, standardised):
    nothing = dataclasses.replace(standardised, method=None)
    assert agreeing(nothing, Stated(dr.PCA()), records) is None


@pytest.mark.parametrize("moved", ["shifted", "multiplied", "turned", "scaled to [0, 1]"])
def test_what_was_done_to_a_finished_map_need_not_be_stated(records, moved):
    scores = PCA(3).fit_transform(StandardScaler().fit_transform(records))
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    low, high = scores.min(axis=0), scores.max(axis=0)
    coords = {
        "shifted": scores + 5,
        "multiplied": 3 * scores,
        "turned": scores @ turn,
        "scaled to [0, 1]": (scores - low) / (high - low),
    }[moved]
    stated = dr.Pipeline(before=(STANDARD,), method=dr.PCA(n_components=3))
    answer = attack_embedding(jax.random.key(0), stated, records[1:], coords)
    assert not answer.contradiction
    assert answer.verdict == "reliable"
    np.testing.assert_allclose(answer.found.x, records[0], rtol=1e-3)
    assert "beside what was stated" in " ".join(answer.notes)
