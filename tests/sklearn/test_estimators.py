"""scikit-learn's own checks of an estimator on all of drjax's, and what they do not look at."""

import inspect
import subprocess
import sys

import jax
import numpy as np
import pytest
import sklearn.decomposition
import sklearn.manifold
import sklearn.random_projection
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances
from sklearn.utils.estimator_checks import parametrize_with_checks

from drjax import dr
from drjax.sklearn import MDS, PCA, TSNE, UMAP, ClassicalMDS, Isomap, SparseRandomProjection, smacof, tsne

# Small settings where a default is not for the few records of the checks: scikit-learn's own choice in its test suite.
CHECKED = [
    PCA(),
    SparseRandomProjection(n_components=2),
    MDS(init="random", max_iter=30),
    ClassicalMDS(),
    Isomap(n_neighbors=5),
    TSNE(perplexity=2, max_iter=250),
    UMAP(n_epochs=20, n_neighbors=5),
]
THEIRS = {
    PCA: sklearn.decomposition.PCA,
    SparseRandomProjection: sklearn.random_projection.SparseRandomProjection,
    MDS: sklearn.manifold.MDS,
    ClassicalMDS: sklearn.manifold.ClassicalMDS,
    Isomap: sklearn.manifold.Isomap,
    TSNE: sklearn.manifold.TSNE,
}
DIGITS = load_digits().data[:120]


@parametrize_with_checks(CHECKED)
def test_passes_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("ours", THEIRS, ids=lambda cls: cls.__name__)
def test_constructor_is_scikit_learns(ours):
    assert inspect.signature(ours.__init__) == inspect.signature(THEIRS[ours].__init__)


def test_umaps_parameters_have_umap_learns_names_and_defaults():
    umap = pytest.importorskip("umap")
    theirs = inspect.signature(umap.UMAP.__init__).parameters
    ours = inspect.signature(UMAP.__init__).parameters
    assert {name: p.default for name, p in ours.items()} == {name: theirs[name].default for name in ours}


@pytest.mark.parametrize(
    "estimator",
    [
        PCA(3, svd_solver="full"),
        PCA(3, svd_solver="full", whiten=True),
        MDS(init="random", n_init=2, random_state=3),
        MDS(init="classical_mds"),
        ClassicalMDS(n_components=3),
        ClassicalMDS(n_components=3, metric="manhattan"),
        Isomap(n_neighbors=7, eigen_solver="dense"),
        Isomap(n_neighbors=None, radius=40.0, eigen_solver="dense"),
        Isomap(n_neighbors=7, metric="manhattan", eigen_solver="dense"),
    ],
    ids=str,
)
@pytest.mark.parametrize("x_dtype", [np.float64, np.float32])
def test_embedding_and_fitted_attributes_are_scikit_learns(estimator, x_dtype):
    x = DIGITS.astype(x_dtype)
    theirs = THEIRS[type(estimator)](**estimator.get_params())
    expected, found = theirs.fit_transform(x), clone(estimator).fit(x)
    is_iterative = isinstance(estimator, MDS)
    assert found.fit_transform(x).dtype == x_dtype
    if x_dtype == np.float64:
        # Rounding of 64 x 120 numbers up to 16, and of up to 300 iterations.
        tolerance = {"rtol": 1e-8, "atol": 1e-8 if is_iterative else 1e-9}
    elif is_iterative:
        # The same descent may stop some iterations apart in float32; the stress is what is then comparable.
        assert_allclose(found.stress_, theirs.stress_, rtol=5e-3)
        return
    else:
        # Seven digits of the largest entry; scikit-learn's float32 distances have fewer.
        tolerance = {"rtol": 1e-3, "atol": 2e-3}
    assert_allclose(found.fit_transform(x), expected, **tolerance)
    same = {name for name in vars(theirs) if name.endswith("_")} - {"nbrs_", "kernel_pca_"}
    assert same <= set(vars(found)) | {"nbrs_", "kernel_pca_"}
    for name in same:
        assert_allclose(getattr(found, name), getattr(theirs, name), **tolerance, err_msg=name)


def test_isomap_transforms_new_points_as_scikit_learn():
    x, new = DIGITS[:100], DIGITS[100:]
    ours = Isomap(n_neighbors=6).fit(x)
    theirs = sklearn.manifold.Isomap(n_neighbors=6, eigen_solver="dense").fit(x)
    assert_allclose(ours.transform(new), theirs.transform(new), atol=1e-9)  # rounding
    assert_allclose(ours.reconstruction_error(), theirs.reconstruction_error(), rtol=1e-9)


@pytest.mark.parametrize("x_dtype", [np.float64, np.float32])
def test_pca_of_deficient_rank_has_orthonormal_components(x_dtype):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(30, 4)) @ rng.normal(size=(4, 12))).astype(x_dtype)
    pca = PCA().fit(x)
    assert_allclose(pca.components_ @ pca.components_.T, np.eye(12), atol=50 * np.finfo(x_dtype).eps)
    scale = np.abs(x).max()
    assert_allclose(pca.inverse_transform(pca.transform(x)), x, atol=100 * np.finfo(x_dtype).eps * scale)


def test_pca_is_the_insertion_of_the_first_record():
    with jax.enable_x64(True):
        method = dr.PCA(n_components=3)
        shared = method.prepare(DIGITS[1:])
        inserted = jax.jit(method.insert)(jax.random.key(0), shared, DIGITS[0]).coords
        assert_allclose(PCA(3).fit_transform(DIGITS), inserted, atol=1e-9)  # rounding of an eigenproblem


def test_an_int_seeds_the_projection_that_the_kernel_draws():
    found = SparseRandomProjection(n_components=5, random_state=7).fit_transform(DIGITS)
    with jax.enable_x64(True):
        method = dr.SparseRandomProjection(n_components=5)
        expected = jax.jit(method.fit_transform)(jax.random.key(7), DIGITS).coords
    assert_allclose(found, expected, rtol=1e-12, atol=1e-12)  # the order of sums


def test_tsne_takes_scikit_learns_first_steps_from_its_random_start():
    # Thirty iterations: later ones amplify rounding. scikit-learn runs in float64 from a float64 start.
    start = 1e-4 * np.random.RandomState(5).standard_normal(size=(120, 2)).astype(np.float32)
    theirs = sklearn.manifold.TSNE(method="exact", init=start.astype(np.float64), learning_rate=200.0)
    ours = TSNE(init="random", random_state=5, learning_rate=200.0)
    # Validation wants at least 250 iterations.
    for estimator in (ours, theirs):
        estimator._validate_params = lambda: None
        estimator._EXPLORATION_MAX_ITER = 30
        estimator.max_iter = 30
    # Its _fit alone, because fit_transform validates by a decorator.
    expected = theirs._fit(DIGITS)
    # Squared distances are rounded to float32 there and not here, which moves each bandwidth by 1e-7.
    assert_allclose(ours.fit_transform(DIGITS), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize(
    "estimator", [SparseRandomProjection(3), MDS(init="random"), TSNE(init="random", max_iter=250)]
)
def test_random_state_follows_scikit_learns_protocol(estimator):
    def run(random_state):
        return clone(estimator).set_params(random_state=random_state).fit_transform(DIGITS[:40])

    assert_array_equal(run(1), run(1))
    assert not np.allclose(run(1), run(2))
    rng = np.random.RandomState(1)
    assert not np.allclose(run(rng), run(rng))
    assert_array_equal(run(np.random.RandomState(1)), run(np.random.RandomState(1)))
    np.random.seed(0)  # noqa: NPY002 - what must have no effect
    first = run(None)
    np.random.seed(0)  # noqa: NPY002
    assert not np.allclose(first, run(None))


@pytest.mark.parametrize("estimator", CHECKED, ids=lambda e: type(e).__name__)
def test_nothing_is_computed_by_scikit_learn(estimator, monkeypatch):
    def refuse(*args, **kwargs):  # noqa: ARG001
        raise AssertionError("scikit-learn computes")

    for target in (
        "decomposition._pca.PCA._fit",
        "decomposition._pca.svd_flip",
        "decomposition._kernel_pca.KernelPCA._fit_transform_in_place",
        "manifold._mds._smacof_single",
        "manifold._mds.smacof",
        "manifold._classical_mds.svd_flip",
        "manifold._isomap.shortest_path",
        "manifold._isomap.kneighbors_graph",
        "manifold._t_sne._gradient_descent",
        "manifold._t_sne._kl_divergence_bh",
        "manifold._utils._binary_search_perplexity",
        "random_projection._sparse_random_matrix",
    ):
        monkeypatch.setattr(f"sklearn.{target}", refuse)
    estimator = clone(estimator)
    if not isinstance(estimator, PCA | ClassicalMDS | Isomap):
        estimator.set_params(random_state=0)
    assert np.isfinite(estimator.fit_transform(DIGITS[:40])).all()
    assert not jax.config.jax_enable_x64


@pytest.mark.parametrize(
    ("estimator", "x", "error", "message"),
    [
        (MDS(init="random", metric_mds=False), DIGITS, NotImplementedError, "nonmetric"),
        (Isomap(n_neighbors=3, radius=1.0), DIGITS, ValueError, "Both n_neighbors and radius"),
        (UMAP(metric="minkowski"), DIGITS, ValueError, "metric must be one of"),
        (UMAP(n_neighbors=1), DIGITS, ValueError, "n_neighbors"),
        (TSNE(perplexity=120), DIGITS, ValueError, "perplexity"),
        (TSNE(init=np.zeros((3, 2))), DIGITS, ValueError, "init must have shape"),
        (PCA(svd_solver="fast"), DIGITS, ValueError, "svd_solver"),
        (PCA(65, svd_solver="full"), DIGITS, ValueError, "n_components=65 must be between"),
        (SparseRandomProjection(density=0.0), DIGITS, ValueError, "density"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused(estimator, x, error, message):
    with pytest.raises(error, match=message):
        estimator.fit(x)


def test_smacof_runs_in_xla_where_there_is_no_cpu(monkeypatch):
    delta = pairwise_distances(DIGITS[:30])
    start = np.random.RandomState(0).uniform(size=(30, 2))
    on_cpu = smacof(delta, init=start, max_iter=40)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert_allclose(smacof(delta, init=start, max_iter=40)[0], on_cpu[0], atol=1e-9)  # rounding of 40 iterations


def test_tsne_runs_in_xla_where_there_is_no_cpu(monkeypatch):
    estimator = TSNE(perplexity=5, max_iter=250, init="random", random_state=0)
    expected = estimator.fit(DIGITS[:20]).kl_divergence_
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    # Two descents from one start end in maps about as good as each other, and far from where they began.
    found = estimator.fit(DIGITS[:20])
    assert found.embedding_.dtype == np.float64
    assert_allclose(found.kl_divergence_, expected, rtol=0.5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_tsne_of_many_samples_is_about_as_good_as_scikit_learns_without_all_distances(monkeypatch, dtype):
    monkeypatch.setattr(tsne, "MESH_FROM", 300)
    monkeypatch.setattr(TSNE, "_squared_distances", lambda *_: pytest.fail("all distances were made"))
    x = load_digits().data[:400].astype(dtype)
    found = TSNE(random_state=0).fit(x)
    theirs = sklearn.manifold.TSNE(random_state=0).fit(x)
    assert found.embedding_.dtype == dtype
    # Its own error of the divergence, which leaves out the repulsion's.
    assert_allclose(found.kl_divergence_, theirs.kl_divergence_, rtol=0.1)
    ours, other = (sklearn.manifold.trustworthiness(x, one.embedding_) for one in (found, theirs))
    assert ours > other - 0.01


def test_importing_drjax_imports_neither_scikit_learn_nor_jax():
    code = "import sys, drjax; assert not {'sklearn', 'jax'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)
