"""Steps before a published PCA, recognised by the known records; releases by scikit-learn."""

import jax
import numpy as np
import pytest
from sklearn import datasets, decomposition, manifold, preprocessing
from sklearn.pipeline import make_pipeline

from drjax import dr
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.recognition import recognise
from drjax.core.types import Status

KEY = jax.random.key(0)
SCALERS = {
    None: None,
    "standard": preprocessing.StandardScaler(),
    "min-max": preprocessing.MinMaxScaler(),
    "unit-rows": preprocessing.Normalizer(),
}


def records(name, n=150):
    x = getattr(datasets, f"load_{name}")().data
    return x[np.random.default_rng(2).permutation(len(x))[:n]]


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("step", SCALERS)
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "digits"])
def test_steps_and_whitening_are_named(data, step, whiten):
    x = records(data)
    peers = [
        peer for peer in (SCALERS[step], decomposition.PCA(3, whiten=whiten, svd_solver="full")) if peer is not None
    ]
    believed = recognise(KEY, x[1:], make_pipeline(*peers).fit_transform(x), methods=("pca",)).method
    before = believed.before if isinstance(believed, dr.Pipeline) else ()
    after = believed.after if isinstance(believed, dr.Pipeline) else ()
    assert [one.name for one in before] == ([step] if step else [])
    assert [one.name for one in after] == (["unit-variance"] if whiten else [])


@pytest.mark.parametrize("peer", [decomposition.TruncatedSVD(3, random_state=0), decomposition.PCA(3)])
@pytest.mark.parametrize("step", SCALERS)
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "digits"])
def test_centring_is_told_where_the_release_shows_it(data, step, peer):
    x = records(data)
    scaler = SCALERS[step]
    coords = (make_pipeline(scaler, peer) if scaler else peer).fit_transform(x)
    belief = recognise(KEY, x[1:], coords, methods=("pca", "svd"))
    own = {one.own.name for one in (belief.best, *belief.tied)}
    if step == "standard":
        assert own == {"pca", "svd"}
    else:
        assert own == {"svd" if isinstance(peer, decomposition.TruncatedSVD) else "pca"}
    assert [one.name for one in belief.best.before] == ([step] if step else [])


def test_a_constant_factor_is_found():
    x = records("wine")
    believed = recognise(KEY, x[1:], 2.5 * decomposition.PCA(2).fit_transform(x), methods=("pca",)).method
    assert believed.after[0].factor == pytest.approx(2.5, rel=1e-6)


def moved(coords, seed=0):
    """The map turned and mirrored, multiplied and shifted."""
    rng = np.random.default_rng(seed)
    k = coords.shape[1]
    return 3 * coords @ np.linalg.qr(rng.normal(size=(k, k)))[0] + rng.normal(size=k)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("step", SCALERS)
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "digits"])
def test_turned_and_shifted_scores_are_named_and_attacked(data, step, k):
    x = records(data)
    peers = [peer for peer in (SCALERS[step], decomposition.PCA(k, svd_solver="full")) if peer is not None]
    plain = make_pipeline(*peers).fit_transform(x)
    belief = recognise(KEY, x[1:], moved(plain), methods=("pca",))
    assert belief.method is not None, belief.in_words()
    assert [one.name for one in belief.best.before] == ([step] if step else [])
    assert [one.name for one in belief.method.after] == ["rescale", "rotate", "shift"]
    assert "rotated" in belief.title
    back = np.asarray(belief.method.undone(moved(plain)))
    np.testing.assert_allclose(np.abs(back), np.abs(plain), atol=0.02 * np.abs(plain).max())


def test_the_attack_takes_turned_and_shifted_scores():
    x = records("wine", 80)
    coords = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2)).fit_transform(x)
    turn = np.array([[0.6, 0.8], [0.8, -0.6]])
    for published in (coords @ turn, coords + np.array([1.0, -2.0])):
        answer = attack_embedding(KEY, None, x[1:], published)
        np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-3)
    rows = np.random.default_rng(0).permutation(len(x))
    answer = attack_embedding(KEY, None, x[1:], (coords @ turn)[rows], shuffled=True)
    assert rows[answer.order[0]] == 0
    np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-3)


def test_sheared_scores_are_no_scores_of_quartiles():
    rng = np.random.default_rng(3002)
    x = datasets.load_breast_cancer().data
    x = x[rng.permutation(len(x))[:120]]
    scores = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2)).fit_transform(x)
    for shear in (0.2, 0.5):
        sheared = moved(scores @ np.array([[1, shear], [0, 1.3]]))
        belief = recognise(KEY, x[1:], sheared, methods=("pca", "svd"))
        assert "mixed by a linear map" in belief.title
        assert [one.name for one in belief.best.before] == ["standard"]


@pytest.mark.parametrize("peer", [manifold.MDS(11, n_init=1, init="random", random_state=0), manifold.Isomap()])
def test_no_rotation_makes_scores_of_other_maps(peer):
    x = records("wine", 80)
    coords = peer.fit_transform(preprocessing.StandardScaler().fit_transform(x))
    assert recognise(KEY, x[1:], moved(coords), methods=("pca", "svd")).method is None


@pytest.mark.parametrize(
    "peer",
    [
        decomposition.KernelPCA(2, kernel="rbf", gamma=0.1),
        decomposition.FactorAnalysis(2),
        decomposition.NMF(2, max_iter=500),
    ],
    ids=lambda peer: type(peer).__name__,
)
def test_what_is_no_pca_is_not_taken_for_one(peer):
    x = preprocessing.MinMaxScaler().fit_transform(records("breast_cancer"))
    believed = recognise(KEY, x[1:], peer.fit_transform(x), methods=("pca",))
    assert believed.method is None
    assert "none" in believed.in_words()


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_whitened_scores_that_were_turned_by_fifteen_degrees_are_mixed_ones(name):
    x = records(name, 150)
    scores = decomposition.PCA(2, whiten=True).fit_transform(preprocessing.StandardScaler().fit_transform(x))
    assert recognise(KEY, x[1:], scores, methods=("pca",)).title.endswith("scaled to unit variance")
    cos, sin = np.cos(np.radians(15)), np.sin(np.radians(15))
    turn = np.array([[cos, -sin], [sin, cos]])
    belief = recognise(KEY, x[1:], scores @ turn, methods=("pca",))
    assert belief.title == "PCA of standardised records, scaled to unit variance, mixed by a linear map"
    mixed = np.asarray(belief.method.after[1].matrix)
    # Up to signs, and to what one record changes.
    np.testing.assert_allclose(np.abs(mixed), np.abs(turn), atol=0.02)


MIXTURES = {
    "independent components": lambda k: decomposition.FastICA(k, random_state=0, max_iter=3000),
    "scaled to [0, 1]": lambda k: make_pipeline(decomposition.PCA(k), preprocessing.MinMaxScaler()),
    "whitened and turned": lambda k: make_pipeline(
        decomposition.PCA(k, whiten=True),
        preprocessing.FunctionTransformer(lambda z: z @ np.linalg.qr(np.random.default_rng(0).normal(size=(k, k)))[0]),
    ),
}


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("step", [None, "standard", "min-max"])
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "diabetes"])
def test_components_behind_a_linear_map_are_named(data, mixture, step, k):
    x = records(data)
    peers = [peer for peer in (SCALERS[step], MIXTURES[mixture](k)) if peer is not None]
    coords = make_pipeline(*peers).fit_transform(x)
    for given in (coords, np.round(coords, 4)):
        belief = recognise(KEY, x[1:], given, methods=("pca", "svd"))
        assert belief.method is not None, belief.in_words()
        assert [one.name for one in belief.best.before] == ([step] if step else [])
        names = {one.name for one in belief.method.after}
        # Independent components that are the principal ones, but for their order, are whitened scores.
        assert names & {"linear", "unit-variance"}
    centred, whole = coords - coords.mean(axis=0), np.asarray(belief.method.undone(coords))
    left = whole - centred @ np.linalg.lstsq(centred, whole, rcond=None)[0]
    assert np.abs(left - left.mean(axis=0)).max() < 1e-5 * np.abs(whole).max()


@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("step", [None, "standard"])
def test_the_attack_takes_components_behind_a_linear_map(mixture, step):
    x = records("wine", 100)
    peers = [peer for peer in (SCALERS[step], MIXTURES[mixture](3)) if peer is not None]
    answer = attack_embedding(KEY, None, x[1:], make_pipeline(*peers).fit_transform(x))
    assert answer.verdict == "reliable"
    assert answer.attack.name == "behind-steps"
    np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-4)


def test_independent_components_of_fewer_records_than_features_are_named_where_nothing_scales_them():
    x = records("digits", 50)
    components = decomposition.FastICA(3, random_state=1, max_iter=3000)
    coords = components.fit_transform(x)
    assert "mixed by a linear map" in recognise(KEY, x[1:], coords, methods=("pca",)).title
    scaled = decomposition.FastICA(3, random_state=1, max_iter=3000).fit_transform(preprocessing.scale(x))
    assert recognise(KEY, x[1:], scaled, methods=("pca",)).method is None


@pytest.mark.parametrize("off", [0.0, 1e-16, 1e-12])
def test_columns_that_are_functions_of_others_are_no_mixed_components(off):
    x = records("wine")
    coords = decomposition.FastICA(3, random_state=0, max_iter=3000).fit_transform(x)
    coords = np.column_stack([coords, coords[:, 0] + off * np.random.default_rng(0).normal(size=len(x))])
    assert recognise(KEY, x[1:], coords, methods=("pca", "svd")).method is None


@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "diabetes", "digits"])
def test_scores_of_other_linear_methods_are_no_mixed_components(data, k):
    x = records(data)
    scaled = preprocessing.StandardScaler().fit_transform(x)
    others = {
        "factors": decomposition.FactorAnalysis(k).fit_transform(scaled),
        "random projection": scaled @ np.random.default_rng(0).normal(size=(x.shape[1], k)),
        "some features": scaled[:, 2 : 2 + k],
        "nearly components": decomposition.PCA(k).fit_transform(scaled * np.linspace(1, 1.5, x.shape[1])),
    }
    for name, coords in others.items():
        assert recognise(KEY, x[1:], coords, methods=("pca",)).method is None, name


@pytest.mark.parametrize(
    "steps",
    [
        (preprocessing.StandardScaler(), decomposition.FactorAnalysis(2)),
        (preprocessing.QuantileTransformer(n_quantiles=50, random_state=0), decomposition.PCA(2)),
    ],
    ids=["factors", "quantile transform"],
)
def test_few_records_are_no_reason_to_take_a_map_for_a_pca_of_quartiles(steps):
    x = coords = records("wine", 100)
    for step in steps:
        coords = step.fit_transform(coords)
    assert recognise(KEY, x[1:], coords, methods=("pca", "svd")).method is None
    own = decomposition.PCA(2).fit_transform(preprocessing.RobustScaler().fit_transform(x))
    believed = recognise(KEY, x[1:], own, methods=("pca", "svd"))
    assert [step.name for step in believed.best.before] == ["robust"]


def test_an_attack_without_a_method_recognises_it_or_answers_with_the_mean():
    x = records("wine", 80)
    coords = make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(2)).fit_transform(x)
    answer = attack_embedding(KEY, None, x[1:], coords, attack="behind-steps")
    assert "standardised" in answer.belief.title
    np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-4)
    noise = np.random.default_rng(0).normal(size=(80, 2))
    refused = attack_embedding(KEY, None, x[1:], noise)
    assert refused.belief.method is None
    assert refused.found.status & Status.MISFIT
    np.testing.assert_allclose(refused.found.x, x[1:].mean(axis=0))


def test_scores_of_nearly_all_dimensions_are_no_smacof_though_they_keep_its_distances():
    x = records("wine", 80)
    coords = make_pipeline(SCALERS["standard"], decomposition.PCA(11)).fit_transform(x)
    belief = recognise(KEY, x[1:], coords, methods=("pca", "mds"))
    fitting = {one.family for one in belief.candidates if one.fits}
    assert fitting == {"pca", "mds"}
    assert belief.best.family == "pca"
    assert not belief.tied
    assert belief.margin >= 1


OUTLYING = {
    "whitened": decomposition.PCA(2, whiten=True),
    "independent": decomposition.FastICA(2, random_state=0),
    "whitened, four": decomposition.PCA(4, whiten=True),
}


@pytest.mark.parametrize("decimals", [None, 4])
@pytest.mark.parametrize("peer", OUTLYING)
def test_a_target_that_moved_the_scaling_far_is_no_reason_to_refuse(peer, decimals):
    x = records("wine")
    # In two features half as far again from the mean as any other record.
    x[0, [1, 4]] = x.mean(axis=0)[[1, 4]] + 1.5 * (x.max(axis=0) - x.mean(axis=0))[[1, 4]]
    coords = make_pipeline(preprocessing.StandardScaler(), OUTLYING[peer]).fit_transform(x)
    coords = coords if decimals is None else np.round(coords, decimals)
    belief = recognise(KEY, x[1:], coords, methods=("pca",), decimals=decimals)
    assert belief.method is not None, belief.in_words()
    assert [one.name for one in belief.best.before] == ["standard"]
    answer = attack_embedding(KEY, None, x[1:], coords)
    if decimals is None:
        np.testing.assert_allclose(answer.found.x, x[0], rtol=1e-3)


@pytest.mark.parametrize("scaler", [preprocessing.MinMaxScaler(), preprocessing.RobustScaler(), None])
@pytest.mark.parametrize("data", ["breast_cancer", "wine", "diabetes"])
def test_no_target_makes_other_scalings_standard(data, scaler):
    x = records(data)
    peers = [peer for peer in (scaler, decomposition.PCA(2, whiten=True)) if peer is not None]
    belief = recognise(KEY, x[1:], make_pipeline(*peers).fit_transform(x), methods=("pca",))
    standard = [one for one in belief.candidates if [step.name for step in one.before] == ["standard"]]
    assert not any(one.fits for one in standard)
