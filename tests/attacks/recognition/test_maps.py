"""Maps that libraries made are recognised by their known records, and others are not."""

import jax
import numpy as np
import pytest
import umap
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.decomposition import NMF, PCA, KernelPCA
from sklearn.manifold import MDS, TSNE, Isomap, LocallyLinearEmbedding
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, RobustScaler, StandardScaler, minmax_scale

from drjax import dr
from drjax.attacks.recognition import FAMILIES, checked, recognise, rescaled
from drjax.attacks.recognition.belief import Belief, Candidate
from drjax.attacks.recognition.stand_ins import confirmed, is_usual
from drjax.attacks.recognition.tsne import TSNEFamily
from drjax.attacks.recognition.tsne_scaled import MultipliedTSNEFamily

N, TARGET = 90, 17


@pytest.fixture(scope="module")
def records() -> np.ndarray:
    x = load_breast_cancer().data
    return x[np.random.default_rng(0).choice(len(x), N, replace=False)]


@pytest.fixture(scope="module")
def standard(records) -> np.ndarray:
    return StandardScaler().fit_transform(records)


@pytest.fixture(scope="module")
def tsne_map(standard) -> np.ndarray:
    return TSNE(perplexity=12, random_state=0).fit_transform(standard)


def believed(records: np.ndarray, coords: np.ndarray, **asked) -> Belief:
    return recognise(jax.random.key(0), np.delete(records, TARGET, axis=0), coords, target_row=TARGET, **asked)


@pytest.fixture(scope="module")
def tsne_belief(records, tsne_map) -> Belief:
    return believed(records, tsne_map)


def steps_of(belief: Belief) -> tuple[str, ...]:
    assert belief.best is not None, belief.in_words()
    return tuple(step.name for step in belief.best.before)


def test_tsne_of_standardised_records_is_named_with_its_perplexity(tsne_belief):
    belief = tsne_belief
    assert belief.method.name == "tsne"
    assert steps_of(belief) == ("standard",)
    assert belief.method.method.perplexity == pytest.approx(12, rel=0.1)
    assert belief.margin > 2
    assert "Barnes-Hut" in belief.engine
    assert "t-SNE with perplexity 12 of standardised records" in belief.in_words()


def test_the_exact_algorithm_and_the_metric_of_tsne_show_in_the_map(records):
    coords = TSNE(perplexity=20, metric="manhattan", method="exact", random_state=0).fit_transform(records)
    belief = believed(records, coords, methods=("tsne",))
    assert steps_of(belief) == ()
    assert belief.best.metric == "manhattan"
    assert belief.engine == "exact"
    assert belief.best.own.perplexity == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize("n_components", [4, 10])
def test_any_number_of_first_components_is_found(records, standard, n_components):
    scores = PCA(n_components).fit_transform(standard)
    belief = believed(records, TSNE(perplexity=12, random_state=0).fit_transform(scores), methods=("tsne",))
    assert steps_of(belief) == ("standard", "first-pca")
    counts = {one.before[-1].n_components for one in (belief.best, *belief.tied) if len(one.before) == 2}
    assert n_components in counts
    assert all(abs(one - n_components) <= 1 for one in counts)
    assert belief.best.own.perplexity == pytest.approx(12, rel=0.1)


def test_umap_is_named_with_neighbours_and_least_distance(records, standard):
    coords = umap.UMAP(n_neighbors=10, min_dist=0.3, random_state=0, n_jobs=1).fit_transform(standard)
    belief = believed(records, coords)
    assert belief.method.name == "umap"
    assert steps_of(belief) == ("standard",)
    assert 8 <= belief.best.own.n_neighbors <= 12
    assert belief.best.own.min_dist == pytest.approx(0.3, abs=0.051)


def test_smacof_is_named_with_the_metric(records, standard):
    coords = MDS(random_state=0, n_init=1, init="classical_mds").fit_transform(standard)
    belief = believed(records, coords)
    assert belief.method.name == "mds"
    assert steps_of(belief) == ("standard",)
    assert belief.best.metric == "euclidean"


@pytest.mark.parametrize("n_neighbors", [5, 12])
def test_isomap_is_named_with_its_neighbours(records, standard, n_neighbors):
    belief = believed(records, Isomap(n_neighbors=n_neighbors, eigen_solver="dense").fit_transform(standard))
    assert belief.method.name == "isomap"
    assert steps_of(belief) == ("standard",)
    assert belief.best.own.n_neighbors == n_neighbors


def test_isomap_is_not_taken_for_that_of_a_few_components_where_the_target_lies_off_its_neighbours():
    x = load_breast_cancer().data
    x = x[np.random.default_rng(0).permutation(len(x))[:200]]
    belief = recognise(jax.random.key(0), x[1:], Isomap().fit_transform(x), methods=("isomap",))
    assert steps_of(belief) == ()
    assert belief.best.own.n_neighbors == 5


def test_a_number_of_components_that_fits_better_by_chance_is_not_believed():
    x = load_wine().data
    x = x[np.random.default_rng(4).permutation(len(x))[:150]]
    belief = recognise(jax.random.key(0), x[1:], Isomap(n_neighbors=10).fit_transform(x), methods=("isomap",))
    assert steps_of(belief) == ()
    assert "whether it was Isomap with n_neighbors 10 of" in belief.in_words()


def test_releases_are_not_compared_where_too_few_records_are_left_for_the_perplexity(records, standard):
    coords = TSNE(perplexity=12, random_state=0).fit_transform(standard[:21])
    release = checked(records[1:21], coords)
    (family,) = (one for one in FAMILIES if one.name == "tsne")
    of = Candidate("tsne", dr.TSNE(perplexity=19.0), 0.02, 0.01)
    assert not is_usual(jax.random.key(0), release, of, family)
    assert confirmed(jax.random.key(0), release, of, family) == of


def test_a_graph_of_several_components_shows_in_the_map(records):
    apart = np.where(np.arange(N)[:, None] % 2, records, records + 1e5)
    belief = believed(apart, Isomap(n_neighbors=5, eigen_solver="dense").fit_transform(apart), methods=("isomap",))
    assert belief.best.own.n_neighbors == 5
    assert "2 components" in belief.engine


FEW = 60


def foreign_maps(standard):
    rng = np.random.default_rng(1)
    tsne_map = TSNE(perplexity=12, random_state=0).fit_transform(standard)
    yield "kernel PCA", KernelPCA(2, kernel="rbf").fit_transform(standard)
    yield "LLE", LocallyLinearEmbedding(n_neighbors=12, eigen_solver="dense").fit_transform(standard)
    yield "sheared t-SNE", tsne_map @ np.array([[1, 0.5], [0, 1.3]])
    yield "t-SNE in another order", tsne_map[rng.permutation(FEW)]


def test_maps_of_other_kinds_are_none_of_these(records):
    few = records[:FEW]
    for name, coords in foreign_maps(StandardScaler().fit_transform(few)):
        belief = believed(few, coords)
        assert belief.title == "none of these", f"{name}: {belief.in_words()}"


@pytest.mark.parametrize("peer", [KernelPCA(5, kernel="rbf"), NMF(5, max_iter=2000)])
def test_maps_of_several_components_are_no_tsne_of_a_perplexity_next_to_their_number(peer):
    # So large a perplexity makes affinities all but alike, and releases that are made to compare with are not at rest.
    digits = np.random.default_rng(0).permutation(load_digits().data)[:200]
    release = checked(digits[1:], peer.fit_transform(minmax_scale(digits)))
    found = TSNEFamily().on_inputs(release, release.scale_free_inputs[:4])
    assert min(one.excess for one in found) > TSNEFamily.doubtful


@pytest.mark.parametrize(("scaler", "k"), [(RobustScaler(quantile_range=(10, 90)), 2), (PowerTransformer(), 4)])
def test_components_behind_foreign_scalers_are_no_multiplied_tsne(scaler, k):
    # Of alike affinities and free factors they are as near to rest as a map that was stopped early.
    wine = np.roll(np.random.default_rng(3).permutation(load_wine().data)[:170], -3, axis=0)
    release = checked(wine[1:], make_pipeline(scaler, PCA(k)).fit_transform(wine))
    assert not any(one.fits for one in MultipliedTSNEFamily().candidates(release))


def test_a_map_of_a_perplexity_next_to_the_number_of_records_is_named(standard, records):
    coords = TSNE(perplexity=75, random_state=0).fit_transform(standard)
    release = checked(records[1:], coords)
    best = min(TSNEFamily().on_inputs(release, release.scale_free_inputs), key=lambda one: one.misfit)
    assert best.fits
    assert best.own.perplexity == pytest.approx(75, rel=0.02)
    assert [step.name for step in best.before] == ["standard"]


@pytest.mark.parametrize("to", ["a constant", "from 0 to 1"])
def test_a_tsne_map_whose_columns_were_multiplied_is_named_with_the_factors(records, tsne_map, tsne_belief, to):
    factors = np.array([0.013, 0.013]) if to == "a constant" else 1 / np.ptp(tsne_map, axis=0)
    belief, plain = believed(records, factors * tsne_map + [0.5, -2]), tsne_belief
    assert (belief.best.family, steps_of(belief)) == ("tsne", ("standard",))
    assert belief.best.own.perplexity == pytest.approx(12, rel=0.1)
    (after,) = belief.method.after
    # Of ninety records, a map that still grew a little does not tell its size any closer.
    np.testing.assert_allclose(after.factors, factors, rtol=0.1)
    assert "each column multiplied by a constant" in belief.title
    assert not isinstance(plain.method, dr.Pipeline) or not plain.method.after


def test_the_search_for_factors_begins_anew_where_it_goes_astray():
    # From the factors of perplexity 3 no way leads to those of the next.
    x = load_diabetes(scaled=False).data[:150]
    made = TSNE(perplexity=18, init="random", random_state=3).fit_transform(RobustScaler().fit_transform(x))
    scaled = 2 * (made - made.min(axis=0)) / np.ptp(made, axis=0) - 1
    belief = recognise(jax.random.key(0), x[1:], scaled, methods=("tsne",))
    assert steps_of(belief) == ("robust",)
    assert belief.best.own.perplexity == pytest.approx(18, rel=0.1)
    np.testing.assert_allclose(belief.method.after[0].factors, 2 / np.ptp(made, axis=0), rtol=0.1)


def test_factors_are_told_of_a_stated_tsne_that_they_put_at_rest(records, standard, tsne_map):
    known = np.delete(records, TARGET, axis=0)
    stated = dr.Pipeline(before=(dr.Standardise(),), method=dr.TSNE(perplexity=12.0))
    found = rescaled(stated, known, tsne_map * [0.02, 0.5], target_row=TARGET)
    assert (found.before, found.method) == (stated.before, stated.method)
    np.testing.assert_allclose(found.after[0].factors, [0.02, 0.5], rtol=0.1)
    foreign = KernelPCA(2, kernel="rbf").fit_transform(standard)
    for method, coords in (
        (stated, tsne_map),
        (stated, foreign),
        (dr.TSNE(perplexity=12.0), tsne_map * [0.02, 0.5]),
        (dr.UMAP(), tsne_map),
        (found, tsne_map),
    ):
        assert rescaled(method, known, coords, target_row=TARGET) is method
    # Of too few records nothing is told.
    assert rescaled(stated, known[:10], 0.02 * tsne_map[:11]) is stated


@pytest.mark.parametrize("factor", [1e-4, 1e-2])
def test_a_tiny_map_is_no_reason_to_believe_in_tsne(records, factor):
    coords = factor * np.random.default_rng(0).normal(size=(N, 2))
    assert believed(records, coords, methods=("tsne",)).method is None


@pytest.mark.parametrize("factor", [0.013, 7.7])
def test_an_smacof_map_that_was_multiplied_is_named_with_its_factor(records, standard, factor):
    coords = MDS(2, n_init=1, init="random", random_state=0).fit_transform(standard)
    belief = believed(records, factor * coords)
    assert (belief.method.name, steps_of(belief)) == ("mds", ("standard",))
    (after,) = belief.method.after
    assert float(after.factor) == pytest.approx(factor, rel=2e-3)
    for foreign in (KernelPCA(2, kernel="rbf").fit_transform(standard), np.random.default_rng(1).normal(size=(N, 2))):
        assert believed(records, factor * foreign, methods=("mds",)).method is None


def test_place_and_rotation_of_a_map_make_no_difference(records, tsne_map):
    cos, sin = np.cos(1.0), np.sin(1.0)
    moved = tsne_map @ np.array([[cos, sin], [-sin, cos]]) * [1, -1] + [5, -3]
    plain, other = (believed(records, one, methods=("tsne",)) for one in (tsne_map, moved))
    assert other.best.before == plain.best.before
    assert other.best.own.perplexity == pytest.approx(plain.best.own.perplexity, rel=0.1)


def test_a_rounded_map_is_recognised_for_what_its_digits_show(records, tsne_map):
    belief = believed(records, np.round(tsne_map, 1), methods=("tsne",))
    assert steps_of(belief) == ("standard",)
    assert belief.best.own.perplexity == pytest.approx(12, rel=0.2)
    assert believed(records, np.round(tsne_map, -1), methods=("tsne",)).method is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"known": "nan"}, "known"),
        ({"known": "short"}, "one row more than known, 89 for 88 known records, got 90"),
        ({"known": "few"}, "at least 20 different rows"),
        ({"known": "copies"}, "at least 20 different rows"),
        ({"target_row": N}, "target_row"),
        ({"methods": ("som",)}, "methods"),
        ({"coords": "constant"}, "constant column"),
        ({"coords": "nan"}, "coords"),
    ],
)
def test_refuses_what_it_cannot_judge(records, change, message):
    known, coords = np.delete(records, TARGET, axis=0), records[:, :2].copy()
    if change.get("known") == "nan":
        known[3, 1] = np.nan
    elif change.get("known") == "short":
        known = known[1:]
    elif change.get("known") == "few":
        known, coords = known[:15], coords[:16]
    elif change.get("known") == "copies":
        known = np.tile(known[:5], (18, 1))[: N - 1]
    if change.get("coords") == "constant":
        coords[:, 1] = 2
    elif change.get("coords") == "nan":
        coords[0, 0] = np.nan
    asked = {name: value for name, value in change.items() if name in ("target_row", "methods")}
    with pytest.raises(ValueError, match=message):
        recognise(jax.random.key(0), known, coords, **({"target_row": TARGET if len(known) > 20 else 0} | asked))
