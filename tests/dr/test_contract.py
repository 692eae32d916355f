"""What every method of `drjax.dr.METHODS` promises, and a method behind steps. Its line there covers a new one."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax import dr
from drjax.core.types import DRMethod, Status
from drjax.dr import METHODS

N, D, M = 12, 7, 4
KEY, SHARED_KEY = jax.random.key(5), jax.random.key(11)


SMALL = {
    "isomap": {"n_neighbors": 2},
    "landmark_isomap": {"n_neighbors": 2},
    "tsne": {"perplexity": 1.5, "max_iter": 10, "learning_rate": 1.0},
    "umap": {"n_neighbors": 5, "n_epochs": 11, "learning_rate": 0.1},
}
"""Hyperparameters for data sets of two or three records.

t-SNE is chaotic: what differs by rounding at the start has nothing in common after some fifty steps. Its first ten are
compared here; `tests/dr/test_tsne.py` has the distribution of the maps. So is UMAP, even more: at its usual learning
rate 1e-14 grows to 1e-5 within the eleven epochs that run here at a tenth of it.
"""

SETTLED = SMALL | {"tsne": {"perplexity": 3.0}, "umap": {"n_neighbors": 5}}
"""Hyperparameters under which a descent on twelve records has all the iterations that it wants."""

DRAWS_BY_PLACE = {"umap": "noise on the start and negative samples belong to the place in the list, not to the record"}
"""Methods under which equal records part, and why."""

SEES_THE_ORIGIN = {"svd"}
"""Methods of records as they lie about 0, whose maps change in shape where all records are moved; no scaler does so."""

WITH_STEPS = {
    "pca behind scalers, rotated": lambda **options: dr.Pipeline(
        before=(dr.Robust(), dr.Standardise()), method=dr.PCA(**options), after=(dr.Rotate(),)
    ),
    "classical-mds of single records, rescaled": lambda **options: dr.Pipeline(
        before=(dr.CentredRows(),), method=dr.ClassicalMDS(**options), after=(dr.Rescale(factor=2.0),)
    ),
    "svd behind a scaler, rescaled": lambda **options: dr.Pipeline(
        before=(dr.MinMax(),), method=dr.TruncatedSVD(**options), after=(dr.Rescale(factor=3.0),)
    ),
    "tsne of first components, centred": lambda **options: dr.Pipeline(
        before=(dr.FirstPCA(n_components=4),), method=dr.TSNE(**options), after=(dr.Centre(), dr.Mirror())
    ),
}
"""Ways of insertion behind steps: a fit for each shadow, the method's own, and a fit where the method descends."""

WITH_METRIC = {
    f"{name} by manhattan distances": functools.partial(METHODS[name], metric="manhattan")
    for name in sorted(METHODS)
    if "metric" in METHODS[name].__dataclass_fields__
}
"""Methods that are given distances, by another metric than their default; `tests/dr/test_metrics.py` has the rest."""

VARIANTS = METHODS | WITH_STEPS | WITH_METRIC


NAMES = [*sorted(METHODS), *WITH_STEPS, *WITH_METRIC]
DRAWING = [name for name in sorted(METHODS) if not METHODS[name]().deterministic]
SOME = [*sorted(METHODS), "pca behind scalers, rotated", "classical_mds by manhattan distances"]
"""Every method, once behind steps and once by another metric: for what steps and metrics do not change."""

every_draw = pytest.mark.parametrize(
    ("kind", "shared_key"),
    [*((name, "fresh") for name in NAMES), *((name, "shared") for name in DRAWING)],
    indirect=True,
)
"""The methods that draw do so for each shadow and once for all; the others have one program for both."""

both_precisions = pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((name, "float32") for name in NAMES), *((name, "float64") for name in SOME)],
    indirect=True,
)


@pytest.fixture(params=NAMES)
def kind(request):
    """Makes a method of hyperparameters."""
    return VARIANTS[request.param]


@pytest.fixture
def method(kind):
    return kind(**SMALL.get(kind().name, {}))


@pytest.fixture
def settled(kind):
    return kind(**SETTLED.get(kind().name, {}))


@pytest.fixture(params=["fresh", "shared"])
def shared_key(request):
    """None where every shadow draws for itself; a key where all use the same draw."""
    return SHARED_KEY if request.param == "shared" else None


def data(n=N, d=D, dtype="float32", seed=0):
    # Directions of clearly different variance: eigenvectors are then determined well above rounding.
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * 0.6 ** np.arange(d) + rng.normal(size=d)).astype(dtype)


TRACED: list[str] = []
"""Names of the methods whose fits were traced, each time anew."""


@jax.jit
def fit(method, key, x):
    TRACED.append(method.name)
    return method.fit_transform(key, x)


@functools.cache
def prepared(method, is_shared, n=N, d=D, dtype="float32"):
    """What shadows share of all records of `data` but the first, and whether that is the draw too."""
    return method.prepare(data(n, d, dtype)[1:], shared_key=SHARED_KEY if is_shared else None)


@jax.jit
def insert(method, key, shared, target):
    return method.insert(key, shared, target)


@jax.jit
def insert_batch(method, keys, shared, targets):
    return method.insert_batch(keys, shared, targets)


@jax.jit
def insert_mapped(method, keys, shared, targets):
    return jax.vmap(insert, in_axes=(None, 0, None, 0))(method, keys, shared, targets)


@jax.jit
def moved(method, key, shared, target, along):
    """The derivative of the coordinates where the target moves."""
    return jax.jvp(lambda t: method.insert(key, shared, t).coords, (target,), (along,))[1]


@jax.jit
def force(method, coords, x):
    return jnp.linalg.norm(jax.grad(method.objective)(coords, x))


def tolerance(dtype, method):
    # Coordinates here are below 10 in size; sums of at most 12 terms, and one eigensolver, lose two digits.
    if method.name == "mds" and dtype == "float32":
        # The stopping rule looks at the seventh digit of the stress: another order of the sums stops the same descent
        # an iteration earlier or later. The stress falls by at least n |step|^2, so a step there is still up to
        # sqrt(eps) = 1e-3 of the norm of all coordinates, which is 10, or by manhattan distances 20.
        return 1e-2 if getattr(method, "metric", "euclidean") == "euclidean" else 2e-2
    if method.name == "tsne":
        # Ten steps grow the start, and what rounding left in it, up to ten thousandfold; by manhattan distances it is
        # 2.3e-4 on some processors.
        in_float32 = 2e-4 if getattr(method, "metric", "euclidean") == "euclidean" else 5e-4
        return {"float32": in_float32, "float64": 1e-11}[dtype]
    return {"float32": 2e-5, "float64": 1e-11}[dtype]


def test_implements_the_protocol(method):
    assert isinstance(method, DRMethod)
    assert METHODS[method.name] is type(method) or isinstance(method, dr.Pipeline)
    assert all(isinstance(fact, bool) for fact in (method.deterministic, method.repeatable, method.stationary))
    assert method.title.strip()
    assert all(text is None or text.strip() for text in (method.unit, method.minimises))


@both_precisions
def test_returns_the_shapes_and_dtypes_of_the_contract(method, dtype):
    out = fit(method, KEY, data(dtype=dtype))
    chex.assert_shape(out[:4], [(N, method.n_components), (), (), ()])
    chex.assert_type(out[:4], [dtype, dtype, jnp.int32, jnp.uint32])
    assert int(out.status) in (Status.OK, Status.NOT_CONVERGED)
    chex.assert_tree_all_finite(out.coords)


@pytest.mark.parametrize(
    ("kind", "given"),
    [*((name, "float64") for name in SOME), *((name, "bool") for name in sorted(METHODS))],
    indirect=["kind"],
)
def test_computes_in_float32_when_x64_is_off(method, given):
    _computes_in_float32(method, given)


@pytest.mark.parametrize("given", ["int32", "uint8", "float16"])
def test_records_of_any_type_are_computed_in_float32(given):
    _computes_in_float32(METHODS["pca"](), given)


def _computes_in_float32(method, given):
    x = (data() > 0) if given == "bool" else np.abs(data() * 10).astype(given)
    assert jax.eval_shape(fit, method, KEY, x).coords.dtype == jnp.float32
    shared = method.prepare(x[1:])
    assert jax.eval_shape(insert, method, KEY, shared, x[0]).coords.dtype == jnp.float32


@pytest.mark.parametrize("name", sorted(METHODS))
def test_computes_in_float32_what_is_given_so_where_x64_is_on(name):
    x, method = data(n=60), METHODS[name](**({"perplexity": 5} if name == "tsne" else {}))
    with jax.enable_x64(True):
        assert jax.eval_shape(fit, method, KEY, x).coords.dtype == jnp.float32
        shared = method.prepare(x[1:])
        out = jax.eval_shape(insert_batch, method, jax.random.split(KEY, M), shared, x[:M])
        assert out.coords.dtype == jnp.float32


def test_depends_on_the_key_exactly_if_not_deterministic(method):
    first, second = (np.asarray(fit(method, jax.random.key(seed), data()).coords) for seed in (0, 1))
    assert np.array_equal(first, second) == method.deterministic


def test_the_same_key_gives_the_same_result(method):
    first, second = (fit(method, KEY, data()) for _ in range(2))
    np.testing.assert_array_equal(first.coords, second.coords)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", SOME, indirect=True)
def test_vmap_equals_a_loop(method):
    x = np.stack([data(seed=i) for i in range(M)])
    keys = jax.random.split(KEY, M)
    batch = jax.jit(jax.vmap(fit, in_axes=(None, 0, 0)))(method, keys, x)
    for i in range(M):
        one = fit(method, keys[i], x[i])
        np.testing.assert_allclose(batch.coords[i], one.coords, atol=tolerance("float32", method))
        assert int(batch.status[i]) == int(one.status)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "n", "d", "dtype", "shared_key"),
    [
        *((name, N, D, "float32", "fresh") for name in NAMES),
        *((name, N, D, "float32", "shared") for name in DRAWING),
        *((name, N, D, "float64", "fresh") for name in SOME),
        *((name, 3, D, "float32", "shared") for name in NAMES if name not in WITH_METRIC),  # wider than long
    ],
    indirect=["kind", "dtype", "shared_key"],
)
def test_insert_equals_fit_transform_with_the_target_first(method, dtype, shared_key, n, d):
    x = data(n, d, dtype)
    shared = prepared(method, shared_key is not None, n, d, dtype)
    inserted = insert(method, KEY, shared, x[0])
    fitted = fit(method, KEY if shared_key is None else shared_key, x)
    np.testing.assert_allclose(inserted.coords, fitted.coords, atol=tolerance(dtype, method))
    np.testing.assert_allclose(inserted.objective, fitted.objective, rtol=1e-4, atol=tolerance(dtype, method))
    assert inserted.coords.dtype == fitted.coords.dtype
    assert int(inserted.status) == int(fitted.status)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "dtype", "shared_key"),
    [
        *((name, "float32", "fresh") for name in NAMES),
        *((name, "float32", "shared") for name in DRAWING),
        *((name, "float64", "fresh") for name in sorted(METHODS)),
    ],
    indirect=True,
)
def test_insert_batch_equals_stacked_inserts(method, dtype, shared_key):
    targets = data(M, dtype=dtype, seed=9)
    shared = prepared(method, shared_key is not None, dtype=dtype)
    keys = jax.random.split(KEY, M)
    batch = insert_batch(method, keys, shared, targets)
    chex.assert_shape(batch.coords, (M, N, method.n_components))
    for i in range(M):
        one = insert(method, keys[i], shared, targets[i])
        chex.assert_trees_all_equal_structs(one, batch)
        np.testing.assert_allclose(batch.coords[i], one.coords, atol=tolerance(dtype, method))
        assert int(batch.status[i]) == int(one.status)


@pytest.mark.parametrize(
    ("kind", "shared_key"),
    [*((name, "fresh") for name in SOME), *((name, "shared") for name in DRAWING)],
    indirect=True,
)
def test_insert_is_safe_under_jit_and_vmap(method, shared_key):
    targets = data(M, seed=9)
    shared = prepared(method, shared_key is not None)
    keys = jax.random.split(KEY, M)
    mapped = insert_mapped(method, keys, shared, targets)
    batch = insert_batch(method, keys, shared, targets)
    np.testing.assert_allclose(mapped.coords, batch.coords, atol=tolerance("float32", method))


def test_a_shared_key_gives_all_shadows_of_one_target_the_same_coordinates(method):
    shared = method.prepare(data()[1:], shared_key=KEY)
    targets = np.repeat(data(1, seed=9), M, axis=0)
    out = insert_batch(method, jax.random.split(KEY, M), shared, targets)
    np.testing.assert_allclose(np.ptp(np.asarray(out.coords), axis=0), 0, atol=tolerance("float32", method))


def test_equal_hyperparameters_do_not_retrace(method):
    fit(method, KEY, data())
    before = len(TRACED)
    assert method.name in TRACED
    for seed in range(3):
        fit(dataclasses.replace(method), jax.random.key(seed), data(seed=seed))
    assert len(TRACED) == before


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(name, "float64" if name in SOME else "float32") for name in NAMES] + [("mds", "float32"), ("umap", "float32")],
    indirect=True,
)
def test_objective_is_that_of_the_fit(method, dtype):
    x = data(dtype=dtype)
    out = fit(method, KEY, x)
    found = jax.jit(method.objective)(out.coords, x)
    # A difference of two sums of squares of about 50: the rounding of either is in the result.
    np.testing.assert_allclose(found, out.objective, rtol=1e-3, atol=10 * tolerance(dtype, method))
    assert np.isnan(found) == (method.minimises is None)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), True, 2.0, "2", None])
def test_n_components_that_is_no_count_is_refused_on_construction(kind, bad):
    with pytest.raises(ValueError, match="n_components must be an integer >= 1"):
        kind(n_components=bad)


def test_hyperparameters_are_keyword_only(method):
    with pytest.raises(TypeError):
        type(method)(2)


def test_data_of_another_rank_are_refused_while_tracing(method):
    for shape in [(N,), (2, N, D), (0, D), (N, 0)]:
        with pytest.raises(ValueError, match="x must be a non-empty array"):
            jax.eval_shape(fit, method, KEY, jnp.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_known_records_that_are_not_finite_are_refused(method, bad):
    known = data()[1:]
    known[3, 2] = bad
    with pytest.raises(ValueError, match=r"known must be finite.*\(3, 2\)"):
        method.prepare(known)


def test_a_target_of_another_width_is_refused(method):
    shared = prepared(method, False)
    with pytest.raises(ValueError, match="target"):
        insert(method, KEY, shared, np.zeros(D + 1, np.float32))


@every_draw
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_target_marks_its_own_lane_only(method, shared_key, bad):
    shared = prepared(method, shared_key is not None)
    targets = data(M, seed=9)
    keys = jax.random.split(KEY, M)
    clean = insert_batch(method, keys, shared, targets)
    # Every entry: a projection with few non-zeros need not read any given one.
    targets[1] = bad
    out = insert_batch(method, keys, shared, targets)
    assert int(out.status[1]) & Status.NON_FINITE
    others = np.array([0, 2, 3])
    assert not (np.asarray(out.status)[others] & np.uint32(Status.NON_FINITE)).any()
    np.testing.assert_allclose(out.coords[others], clean.coords[others], atol=tolerance("float32", method))


def test_bad_data_are_reported_and_not_raised(method):
    x = data()
    x[2] = np.nan
    assert int(fit(method, KEY, x).status) & Status.NON_FINITE


SMALL_OR_DEGENERATE = {
    "two rows": ("fresh", data(2)),
    "three rows": ("shared", data(3)),
    "duplicate rows": ("shared", np.repeat(data(4), 3, axis=0)),
    "constant columns": ("fresh", np.where(np.arange(D) % 2, 1.0, data()).astype(np.float32)),
    "equal rows": ("shared", np.ones((N, D), np.float32)),
    "zeros": ("fresh", np.zeros((N, D), np.float32)),
}


@pytest.mark.parametrize(
    ("kind", "shared_key", "x"),
    [
        pytest.param(name, "fresh" if name in WITH_METRIC else draw, x, id=f"{what}-{name}")
        for what, (draw, x) in SMALL_OR_DEGENERATE.items()
        # A metric changes nothing in how few records are handled.
        for name in {2: SOME[:-1], 3: [*sorted(METHODS), *WITH_STEPS]}.get(len(x), NAMES)
    ],
    indirect=["kind", "shared_key"],
)
def test_small_and_degenerate_data_give_finite_coordinates(method, shared_key, x):
    if method.name == "umap" and len(x) < 3:
        for refused in (lambda: fit(method, KEY, x), lambda: method.prepare(x[1:])):
            with pytest.raises(ValueError, match="number of records n must be >= 3"):
                refused()
        return
    if method.name in ("isomap", "landmark_isomap"):
        method = dataclasses.replace(method, n_neighbors=min(method.n_neighbors, len(x) - 1))
    fitted = fit(method, KEY if shared_key is None else shared_key, x)
    inserted = insert(method, KEY, method.prepare(x[1:], shared_key=shared_key), x[0])
    for out in (fitted, inserted):
        assert np.isfinite(out.coords).all()
        assert not int(out.status) & Status.NON_FINITE
    # Directions of no variance have coordinates that are zero up to the rounding of the others. t-SNE pushes coinciding
    # points apart along what rounding left between them.
    atol = 1e-2 if method.name == "tsne" else max(1e-4, tolerance("float32", method))
    if isinstance(method, dr.Pipeline) and method.name == "tsne":
        # Behind a projection that rounding decides the whole map of equal records: its quality is what can be compared.
        np.testing.assert_allclose(inserted.objective, fitted.objective, rtol=0.05, atol=1e-3)
    else:
        np.testing.assert_allclose(np.abs(inserted.coords), np.abs(fitted.coords), atol=atol)


@both_precisions
@pytest.mark.parametrize("at", [0, 4], ids=["the target", "a known record"])
def test_a_point_at_1e30_is_embedded_or_flagged(method, dtype, at):
    x = data(dtype=dtype)
    x[at] = 1e30
    shared = method.prepare(x[1:])
    for out in (fit(method, KEY, x), insert(method, KEY, shared, x[0])):
        # Its square is beyond float32, not beyond float64.
        assert np.isfinite(out.coords).all() != bool(int(out.status) & Status.NON_FINITE)
        assert dtype == "float32" or np.isfinite(out.coords).all()
    targets = np.stack([x[0], *data(M - 1, dtype=dtype, seed=9)])
    if at == 0:
        alone = insert(method, KEY, shared, targets[1])
        beside = insert_batch(method, jnp.stack([KEY] * M), shared, targets)
        np.testing.assert_allclose(beside.coords[1], alone.coords, atol=tolerance(dtype, method))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("isomap", {"n_neighbors": N}, "n_neighbors must be <= .*= 11, got 12"),
        ("landmark_isomap", {"n_neighbors": N}, "n_neighbors must be <= .*= 11, got 12"),
        ("tsne", {"perplexity": float(N)}, "perplexity must be < n = 12 records, got 12"),
        ("tsne", {"perplexity": 1e9}, "perplexity must be < n = 12 records, got 1e"),
    ],
)
def test_neighbourhoods_larger_than_the_data_are_refused_before_any_work(name, options, message):
    method = METHODS[name](**options)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(fit, method, KEY, data())
    with pytest.raises(ValueError, match=message):
        method.prepare(data()[1:])


def test_equal_rows_get_equal_coordinates(method):
    if method.name in DRAWS_BY_PLACE:
        pytest.skip(DRAWS_BY_PLACE[method.name])
    x = data()
    x[4] = x[7]
    coords = np.asarray(fit(method, KEY, x).coords)
    np.testing.assert_allclose(coords[4], coords[7], atol=tolerance("float32", method))


@every_draw
def test_permuting_the_known_rows_permutes_their_coordinates(method, shared_key):
    if method.name in DRAWS_BY_PLACE:
        pytest.skip(DRAWS_BY_PLACE[method.name])
    if method.name == "mds":
        method = dataclasses.replace(
            method, init="classical"
        )  # a random start belongs to the place in the list, not to the record
    x = data()
    order = np.random.default_rng(0).permutation(N - 1)
    plain, permuted = (
        insert(method, KEY, method.prepare(known, shared_key=shared_key), x[0]).coords
        for known in (x[1:], x[1:][order])
    )
    np.testing.assert_allclose(permuted[0], plain[0], atol=tolerance("float32", method))
    np.testing.assert_allclose(permuted[1:], plain[1:][order], atol=tolerance("float32", method))


@both_precisions
def test_translating_the_data_moves_all_coordinates_alike(method, dtype):
    x = data(dtype=dtype)
    shift = np.linspace(-1, 1, D).astype(dtype)
    before, after = (np.asarray(fit(method, KEY, y).coords) for y in (x, x + shift))
    moved = after - before
    if method.name in SEES_THE_ORIGIN and not isinstance(method, dr.Pipeline):
        assert np.abs(moved - moved[0]).max() > 0.1
        return
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=tolerance(dtype, method))


@both_precisions
def test_scaling_the_data_scales_the_coordinates(method, dtype):
    x = data(dtype=dtype)
    before, after = (np.asarray(fit(method, KEY, y).coords) for y in (x, 4 * x))
    factor = 1 if method.unit is None else 4
    np.testing.assert_allclose(after, factor * before, atol=4 * tolerance(dtype, method))


@pytest.mark.parametrize("kind", [*SOME, *list(WITH_STEPS)[1:]], indirect=True)
def test_a_repeatable_release_follows_its_derivative_in_the_target(method, settled):
    if not method.repeatable:
        pytest.skip("the release is not repeatable")
    with jax.enable_x64(True):
        method = settled
        x, along, step = data(dtype="float64"), np.linspace(-1, 1, D), 1e-5
        shared = method.prepare(x[1:], shared_key=KEY)
        ahead, behind = (np.asarray(insert(method, KEY, shared, x[0] + h * along).coords) for h in (step, -step))
        # The error of the difference is step^2 times a third derivative, and rounding over the step.
        expected = (ahead - behind) / (2 * step)
        assert np.abs(expected).max() > 1e-2
        np.testing.assert_allclose(moved(method, KEY, shared, x[0], along), expected, atol=1e-4)


def test_the_gradient_vanishes_at_a_stationary_release(method, settled):
    if not method.stationary:
        pytest.skip("the release is not stationary")
    method, x = settled, data()
    coords = np.asarray(fit(method, KEY, x).coords)
    elsewhere = np.random.default_rng(0).permutation(coords)
    # MDS stops at a seventh digit of the stress: at a step of 1e-3 of the map.
    assert force(method, coords, x) < 1e-2 * force(method, elsewhere, x)


@pytest.mark.parametrize("kind", SOME, indirect=True)
@pytest.mark.usefixtures("all_platforms")
def test_lowers_for_tpu_on_a_machine_without_one(method):
    keys, targets = jax.random.split(KEY, M), data(M, seed=9)
    # What draws nothing has one program for both kinds of draws.
    shared = [prepared(method, draws) for draws in ((False,) if method.deterministic else (False, True))]

    # One program, which is lowered as a whole: what fits and insertions have in common is traced and lowered once.
    @jax.jit
    def all_programs(key, x, keys, targets, *shared):
        return fit(method, key, x).coords, *(insert_batch(method, keys, one, targets).coords for one in shared)

    exported = jax.export.export(all_programs, platforms=["tpu"])(KEY, data(), keys, targets, *shared)
    assert exported.platforms == ("tpu",)


def test_pca_refuses_more_components_than_rows_or_columns_while_tracing():
    for n, d in [(5, 2), (2, 5)]:
        with pytest.raises(ValueError, match=r"n_components must be <= min\(n, d\)"):
            jax.eval_shape(fit, METHODS["pca"](n_components=3), KEY, jnp.zeros((n, d)))
        with pytest.raises(ValueError, match=r"n_components must be <= min\(n, d\)"):
            METHODS["pca"](n_components=3).prepare(data(n, d)[1:])
