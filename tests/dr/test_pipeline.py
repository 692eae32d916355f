"""Steps before and after a method, against scikit-learn's; and PCA behind a scaler by block iterations."""

import jax
import numpy as np
import pytest
from sklearn import decomposition, preprocessing
from sklearn.pipeline import make_pipeline

import drjax
from drjax import dr
from drjax.core.types import Status
from drjax.dr.pipeline import scaled
from tests.dr.jitted import KEY, fit, insert, insert_batch

SCALERS = {
    "standard": (dr.Standardise(), preprocessing.StandardScaler()),
    "min-max": (dr.MinMax(), preprocessing.MinMaxScaler()),
    "robust": (dr.Robust(), preprocessing.RobustScaler()),
}


def data(n, d, seed=0, n_constant=3):
    rng = np.random.default_rng(seed)
    x = np.abs(rng.standard_t(4, size=(n, d)) @ rng.normal(size=(d, d)) * 0.5 ** rng.integers(0, 8, d))
    x[:, :n_constant] = 2.5
    return x


STEPS = [
    *SCALERS.values(),
    (dr.UnitRows(), preprocessing.Normalizer()),
    (dr.Log(), preprocessing.FunctionTransformer(np.log1p)),
    (dr.CentredRows(), preprocessing.FunctionTransformer(lambda x: x - x.mean(axis=1, keepdims=True))),
    (dr.FirstPCA(n_components=3), decomposition.PCA(3, svd_solver="full")),
    (dr.FirstPCA(n_components=3, whiten=True), decomposition.PCA(3, whiten=True, svd_solver="full")),
]


@pytest.mark.parametrize(
    ("step", "peer", "n"),
    [
        *((*pair, n) for pair in STEPS for n in (4, 40)),
        # Quartiles lie between other records for every remainder.
        *((*SCALERS["robust"], n) for n in (5, 6, 7)),
    ],
    ids=lambda value: getattr(value, "name", str(value) if isinstance(value, int) else ""),
)
def test_steps_before_are_scikit_learns(step, peer, n):
    x = data(n, 9)
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(step.apply)(x))
    np.testing.assert_allclose(found, peer.fit_transform(x), rtol=1e-9, atol=1e-9)
    assert found.shape == (n, step.width(9, n))


def test_one_hot_is_scikit_learns():
    codes = np.array([[0, 1.5, 2], [1, 2.5, 0], [0, 3.5, 1], [1, 0.0, 2]])
    found = np.asarray(dr.OneHot(n_categories=(2, 0, 3)).apply(codes))
    expected = preprocessing.OneHotEncoder(sparse_output=False).fit_transform(codes[:, [0, 2]])
    np.testing.assert_array_equal(found, np.column_stack([expected, codes[:, 1]]))
    assert dr.OneHot(n_categories=(2, 0, 3)).width(3, 4) == 6
    with pytest.raises(ValueError, match="one entry for each of 3 features"):
        dr.OneHot(n_categories=(2, 0)).apply(codes)


@pytest.mark.parametrize("name", SCALERS)
def test_a_scaler_before_another_changes_nothing(name):
    x, (scaler, _) = data(30, 6), SCALERS[name]
    with jax.enable_x64(True):
        for first, _ in SCALERS.values():
            np.testing.assert_allclose(scaler.apply(first.apply(x)), scaler.apply(x), atol=1e-12)


@pytest.mark.parametrize(
    ("name", "whiten"), [("standard", False), ("standard", True), ("min-max", True), ("robust", False)]
)
def test_pca_behind_a_scaler_is_scikit_learns(name, whiten):
    x, (scaler, peer) = data(120, 90), SCALERS[name]
    theirs = decomposition.PCA(3, whiten=whiten, svd_solver="full")
    expected = make_pipeline(peer, theirs).fit_transform(x)
    method = dr.Pipeline(
        before=(scaler,), method=drjax.PCA(n_components=3), after=(dr.UnitVariance(),) if whiten else ()
    )
    with jax.enable_x64(True):
        fitted, inserted = fit(method, x), insert(method, method.prepare(x[1:]), x[0])
    for found in (fitted, inserted):
        np.testing.assert_allclose(found.coords, expected, atol=1e-9 * np.abs(expected).max())
        assert int(found.status) == 0


@pytest.mark.parametrize(
    ("name", "single"),
    [("standard", dr.Log()), ("standard", dr.CentredRows()), ("min-max", dr.UnitRows()), ("robust", dr.CentredRows())],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_record_is_inserted_behind_steps_on_single_records_and_a_scaler_as_it_is_fitted(name, single):
    x, scaler = data(20, 9), SCALERS[name][0]
    method = dr.Pipeline(before=(single, scaler), method=drjax.PCA())
    with jax.enable_x64(True):
        fitted, inserted = fit(method, x), insert(method, method.prepare(x[1:]), x[0])
    np.testing.assert_allclose(inserted.coords, fitted.coords, atol=1e-9 * np.abs(fitted.coords).max())


@pytest.mark.parametrize(
    ("name", "n", "d", "dtype"),
    [
        ("standard", 150, 80, "float32"),
        ("standard", 80, 150, "float64"),
        ("min-max", 80, 150, "float64"),
        ("robust", 150, 80, "float32"),
    ],
)
def test_many_records_are_inserted_behind_a_scaler_as_they_are_fitted(name, dtype, n, d):
    x, scaler = data(n + 6, d).astype(dtype), SCALERS[name][0]
    targets, known = x[:7], x[7:]
    targets[1, 0] = 7.0  # where all others are alike
    targets[2] *= 30
    targets[3] = known[5]
    method = dr.Pipeline(before=(scaler,), method=drjax.PCA(n_components=2))
    assert scaled.serves(n - 1, d, 2)
    with jax.enable_x64(dtype == "float64"):
        shared = method.prepare(known)
        assert shared.known is None  # no fit for each shadow
        found = insert_batch(method, jax.random.split(KEY, 7), shared, targets)
        fits = [fit(method, np.vstack([t[None], known])) for t in targets]
    eps = np.finfo(dtype).eps
    for i, one in enumerate(fits):
        assert not int(found.status[i]) & Status.NOT_CONVERGED
        # An eigenvector moves by rounding over its gap.
        moved = 100 * eps / float(np.min(one.info.eigengap))
        np.testing.assert_allclose(found.coords[i], one.coords, atol=moved * np.abs(one.coords).max())
        np.testing.assert_allclose(found.objective[i], one.objective, rtol=1e3 * eps)
        np.testing.assert_allclose(found.info.eigenvalues[i], one.info.eigenvalues, rtol=100 * eps)


@pytest.mark.parametrize("k", [12, 40])
def test_many_components_behind_a_scaler_are_those_of_the_fit(k):
    # The iterated rows of 40 components would be more than there are dimensions.
    x = data(90, 80)
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.PCA(n_components=k))
    with jax.enable_x64(True):
        found, expected = insert(method, method.prepare(x[1:]), x[0]), fit(method, x)
    assert scaled.serves(89, 80, k) == (k == 12)
    assert int(found.status) == 0
    np.testing.assert_allclose(found.coords, expected.coords, atol=1e-9)


def test_a_lane_that_is_not_finite_spoils_no_other():
    x = data(90, 80).astype("float32")
    method = dr.Pipeline(before=(dr.Standardise(),), method=drjax.PCA())
    shared, targets = method.prepare(x[1:]), np.stack([x[0], np.full(80, np.nan, "float32")])
    found = insert_batch(method, jax.random.split(KEY, 2), shared, targets)
    alone = insert(method, shared, x[0])
    np.testing.assert_allclose(found.coords[0], alone.coords, atol=1e-4)
    assert int(found.status[1]) & Status.NON_FINITE


@pytest.mark.parametrize(
    "step",
    [
        dr.Rescale(factor=3.0),
        dr.RescaleColumns(factors=(3.0, 0.02, 40.0)),
        dr.Rotate(seed=4),
        dr.Rotate(matrix=((0.0, 1.0, 0.0), (0.6, 0.0, 0.8), (0.8, 0.0, -0.6))),
        dr.Mirror(axes=(1,)),
        dr.Centre(),
        dr.Shift(offset=(1.0, -2.0, 0.0)),
        dr.Round(decimals=6),
    ],
)
def test_steps_after_are_undone_up_to_a_shift_and_digits(step):
    coords = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    back = np.asarray(step.undo(step.apply(coords)))
    np.testing.assert_allclose(back - back.mean(axis=0), coords - coords.mean(axis=0), atol=2e-6)
    published = np.asarray(step.apply(coords))
    assert published.dtype == coords.dtype
    assert step.name == "centre" or not np.array_equal(published, coords)


def test_centred_coordinates_have_mean_zero():
    coords = np.random.default_rng(0).normal(3.0, size=(20, 3)).astype("float32")
    np.testing.assert_allclose(np.asarray(dr.Centre().apply(coords)), coords - coords.mean(axis=0), atol=1e-6)


def test_rotations_turn_and_do_not_mirror():
    for k in (2, 3, 5):
        turned = np.asarray(dr.Rotate(seed=1).apply(np.eye(k, dtype="float32")))
        np.testing.assert_allclose(turned @ turned.T, np.eye(k), atol=1e-6)
        assert np.linalg.det(turned) > 0.99


def test_a_rotation_is_orthogonal_and_fits_the_map():
    with pytest.raises(ValueError, match="matrix must be orthogonal"):
        dr.Rotate(matrix=((1.0, 1.0), (0.0, 1.0)))
    with pytest.raises(ValueError, match="matrix must have 3 rows"):
        dr.Rotate(matrix=((0.0, 1.0), (1.0, 0.0))).apply(np.ones((4, 3)))
    with pytest.raises(ValueError, match="offset must have 3"):
        dr.Shift(offset=(1.0, 2.0)).apply(np.ones((4, 3)))
    with pytest.raises(ValueError, match="factors must have 3 numbers"):
        dr.RescaleColumns(factors=(1.0, 2.0)).apply(np.ones((4, 3)))


def test_digits_are_cut_as_by_the_type():
    coords = np.random.default_rng(0).normal(size=(20, 2)).astype("float32")
    np.testing.assert_array_equal(dr.Cast(dtype="float16").apply(coords), coords.astype("float16"))


def test_a_pipeline_says_of_itself_what_its_steps_change():
    plain, scaled = dr.Pipeline(method=drjax.PCA()), dr.Pipeline(before=(dr.Standardise(),), method=drjax.PCA())
    assert (plain.title, plain.unit) == ("PCA", "of the input")
    assert (scaled.title, scaled.unit) == ("PCA of standardised records", None)
    assert scaled.cost(200, 30).flops > plain.cost(200, 30).flops
    mds = dr.Pipeline(before=(dr.CentredRows(),), method=drjax.MDS(), after=(dr.UnitVariance(),))
    assert not mds.stationary
    assert mds.minimises is None
    assert np.isnan(mds.objective(np.zeros((4, 2)), data(4, 9)))
    stretched = dr.Pipeline(method=drjax.MDS(), after=(dr.RescaleColumns(factors=(2.0, 3.0)),))
    assert (stretched.stationary, stretched.minimises) == (True, "raw stress")
    coords, x = data(4, 2), data(4, 9)
    assert stretched.objective(coords * [2, 3], x) == pytest.approx(float(drjax.MDS().objective(coords, x)), rel=1e-5)
    both = dr.Pipeline(before=(dr.Log(), dr.FirstPCA()), method=drjax.TSNE())
    assert both.title == "t-SNE of principal components of records of logarithms of records"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dr.Pipeline(method=drjax.PCA(), before=[dr.Log()]), "before must be a tuple of Step"),
        (lambda: dr.Pipeline(method=drjax.PCA(), before=(dr.Centre(),)), "before must be a tuple of Step"),
        (lambda: dr.Pipeline(method=drjax.PCA(), after=(dr.Log(),)), "after must be a tuple of AfterStep"),
        (lambda: dr.Pipeline(method="pca"), "method must be a DR method"),
        (lambda: dr.FirstPCA(n_components=0), "n_components must be an integer >= 1"),
        (lambda: dr.Rescale(factor=0.0), "factor must be > 0"),
        (lambda: dr.RescaleColumns(factors=(1.0, 0.0)), "factors must be > 0"),
        (lambda: dr.Cast(dtype="int8"), "dtype must be one of"),
        (lambda: dr.Round(decimals=-1), "decimals must be an integer >= 0"),
    ],
)
def test_bad_steps_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_linear_map_after_a_method_is_undone_and_must_be_invertible():
    x = np.random.default_rng(0).normal(size=(30, 5))
    matrix = ((1.0, 0.5), (0.2, 2.0))
    mixed = dr.Pipeline(method=dr.PCA(), after=(dr.Linear(matrix=matrix),))
    plain = np.asarray(dr.PCA().fit_transform(KEY, x).coords)
    coords = np.asarray(mixed.fit_transform(KEY, x).coords)
    np.testing.assert_allclose(coords, plain @ np.array(matrix), atol=1e-5)
    np.testing.assert_allclose(mixed.undone(coords), plain, atol=1e-5)
    assert not mixed.repeatable
    assert mixed.minimises is None
    for bad in (((1.0, 2.0), (2.0, 4.0)), ((1.0, 2.0),)):
        with pytest.raises(ValueError, match="matrix must"):
            dr.Linear(matrix=bad)
    with pytest.raises(ValueError, match="one a column"):
        dr.Pipeline(method=dr.PCA(n_components=3), after=(dr.Linear(matrix=matrix),)).fit_transform(KEY, x)
