"""Sensitivities against a search for neighbours that exceed them, of ours and of the papers'."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from drjax.bounds.curve import RELATIONS
from drjax.synthesis import sensitivity
from drjax.synthesis.contract import Box
from drjax.synthesis.frame import Frame, in_unit_ball
from drjax.synthesis.pca_gauss import PCAGauss, PCAGaussSpectrum
from drjax.synthesis.ron_gauss import RONGauss

M, P = 3, 2
BOX = Box.of(-3.0, 5.0, M)
RANDOM, ROUNDS, KEPT, PER_ROUND = 40_000, 60, 50, 1000
"""Tries of one search: RANDOM + ROUNDS * PER_ROUND = 100,000."""


def searched(size, start, seed=0):
    """The largest size of parameters (tries, k) that random tries and then hill climbing find, and how many tries."""
    rng = np.random.default_rng(seed)
    parameters = start(rng, RANDOM)
    # As many at a time as later on: a program for each number of tries would be compiled.
    found = np.concatenate([size(part) for part in np.split(parameters, RANDOM // PER_ROUND)])
    best, tries = float(found.max()), RANDOM
    for i in range(ROUNDS):
        order = np.argsort(found)[-KEPT:]
        parameters, found = parameters[order], found[order]
        parents = parameters[rng.integers(KEPT, size=PER_ROUND)]
        step = np.exp(rng.uniform(-8, 0, (PER_ROUND, 1))) * (1 - i / ROUNDS)
        moved = parents + step * np.abs(parents).max(axis=1, keepdims=True) * rng.normal(size=parents.shape)
        new = size(moved)
        best, tries = max(best, float(new.max())), tries + PER_ROUND
        parameters, found = np.concatenate([parameters, moved]), np.concatenate([found, new])
    return best, tries


def normal(width):
    def start(rng, m):
        drawn = rng.normal(size=(m, width)) * np.exp(rng.uniform(-2, 3, (m, 1)))
        drawn[: m // 3] *= rng.random((m // 3, width)) < 0.5
        drawn[m // 3 : m // 2] = np.sign(drawn[m // 3 : m // 2]) * 10
        return drawn

    return start


def upper(matrices):
    i, j = np.triu_indices(matrices.shape[-1])
    return matrices[..., i, j]


def l1(values):
    return np.abs(values).reshape(len(values), -1).sum(axis=1)


def l2(values):
    return np.sqrt((values**2).reshape(len(values), -1).sum(axis=1))


# ---- what methods release, by their own code


def labels_of(task, raw):
    """A label of any size, or one of three classes; (tries, rows)."""
    if task == "unsupervised":
        return None
    return raw if task == "regression" else np.abs(np.rint(raw)).astype(int) % 3


@functools.cache
def sums(kind, neighbouring, task):
    """Records (tries, rows, M) and labels to what steps 1 and 3 add noise to, by the code of `fit`."""
    fields = {"regression": {"target_range": (-2.0, 2.0)}, "classification": {"n_classes": 3}, "unsupervised": {}}
    made = kind(neighbouring=neighbouring, box=BOX, n_components=P, **fields[task])
    components = np.linalg.qr(np.random.default_rng(0).normal(size=(M, P)))[0].T
    frame = Frame(np.array([0.2, -0.1, 0.05]), np.array(0.6), np.array(math.sqrt(M)))

    def one(x, y, weight):
        v, size = in_unit_ball(BOX.encode(x), kind.SPHERE)
        return made.first_sum(v, size, weight), made.moment_sums(v, y, weight, frame, jnp.asarray(components))

    return made, jax.jit(jax.vmap(one, in_axes=(0, 0 if task != "unsupervised" else None, 0)))


def changes(kind, neighbouring, task, parameters):
    """How both sums move between data sets of three records that differ in the first; parameters (tries, 16)."""
    made, found = sums(kind, neighbouring, task)
    tries = len(parameters)
    x = parameters[:, :12].reshape(tries, 4, M)
    y = labels_of(task, parameters[:, 12:16])
    one, other = [0, 2, 3], [1, 2, 3]
    present = np.ones((tries, 3))
    absent = present * [0, 1, 1]

    def pick(rows):
        return None if y is None else y[:, rows]

    first = found(x[:, one], pick(one), present)
    if neighbouring == "replace_one":
        second = found(x[:, other], pick(other), present)
    else:
        # Of a record that is left out nothing is added up, whether or not its place is kept.
        second = found(x[:, one], pick(one), absent)
    return made, *(np.asarray(a) - np.asarray(b) for a, b in zip(first, second, strict=True))


CASES = [(PCAGauss, task) for task in ("unsupervised", "regression", "classification")] + [(RONGauss, "regression")]
LEAST = {"first l1": 0.83, "first l2": 0.96, "moments l1": 0.72, "moments l2": 0.99}
"""Share of each bound that the search must reach. In L2 all but one are attained (3% are size, which two records far
apart share). In L1 the weights of count, size and label are fixed and not what would be worst, which costs up to 28%
under "replace_one"; with free vectors the bounds are met, see below."""


@pytest.mark.parametrize("neighbouring", RELATIONS)
@pytest.mark.parametrize(("kind", "task"), CASES)
@pytest.mark.parametrize("norm", [l1, l2])
def test_no_neighbours_move_a_released_sum_by_more_than_its_sensitivity(norm, kind, task, neighbouring):
    def first(parameters):
        return norm(changes(kind, neighbouring, task, parameters)[1])

    def third(parameters):
        change = changes(kind, neighbouring, task, parameters)[2]
        return l1(upper(change)) if norm is l1 else l2(change)

    relation = {"neighbouring": neighbouring}
    q, n_groups = 1 + P + (task == "regression"), 3 if task == "classification" else 1
    if norm is l1:
        units = {
            "first": sensitivity.sum_l1(M + 1 + (neighbouring == "add_or_remove"), **relation),
            "moments": sensitivity.moment_l1(q, n_groups=n_groups, **relation),
        }
    else:
        units = {"first": sensitivity.sum_l2(**relation), "moments": sensitivity.moment_l2(**relation)}
    with jax.enable_x64(True):
        made = sums(kind, neighbouring, task)[0]
        limits = {"first": made._first_bound() * units["first"], "moments": made._bound() ** 2 * units["moments"]}
        for name, size in (("first", first), ("moments", third)):
            found, tries = searched(size, normal(16))
            assert tries >= 100_000
            assert found <= limits[name] * (1 + 1e-9)
            assert found >= LEAST[f"{name} {norm.__name__}"] * limits[name]


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
@pytest.mark.parametrize(("p", "norm"), [(1, l1), (2, l2), (3, l1)])
def test_no_neighbours_move_the_spectrum_by_more_than_its_sensitivity(norm, p, neighbouring):
    made = PCAGaussSpectrum(neighbouring=neighbouring, box=BOX, n_components=p, clip_norm=0.9)
    eigenvalues = jax.jit(jax.vmap(made.eigenvalues))
    middle = np.mean([BOX.lower, BOX.upper], axis=0)

    def size(parameters):
        x = parameters.reshape(-1, 4, M)
        # A record in the middle of the box adds nothing.
        other = x[:, 1:2] if neighbouring == "replace_one" else np.broadcast_to(middle, x[:, 1:2].shape)
        moved = eigenvalues(x[:, [0, 2, 3]]) - eigenvalues(np.concatenate([other, x[:, 2:]], axis=1))
        return norm(np.asarray(moved))

    limit = (sensitivity.spectrum_l1 if norm is l1 else sensitivity.spectrum_l2)(p, neighbouring=neighbouring)
    with jax.enable_x64(True):
        found, tries = searched(size, normal(4 * M))
    assert tries >= 100_000
    assert found <= limit * (1 + 1e-9)
    assert found >= 0.97 * limit


# ---- the formulas themselves, for any vectors in the unit ball


def in_ball(vectors):
    return vectors / np.maximum(1, np.linalg.norm(vectors, axis=-1, keepdims=True))


def outer(vectors):
    return vectors[..., :, None] * vectors[..., None, :]


@pytest.mark.parametrize("q", [1, 2, 4, 7])
def test_bounds_in_l1_are_met_by_some_vectors_of_the_ball_and_exceeded_by_none(q):
    def pair(parameters):
        return in_ball(parameters.reshape(-1, 2, q))

    checks = [
        (lambda a, b: l1(a - b), sensitivity.sum_l1(q, neighbouring="replace_one"), 0.97),
        (lambda a, _: l1(a), sensitivity.sum_l1(q, neighbouring="zero_out"), 0.97),
        (lambda a, _: l1(upper(outer(a))), sensitivity.moment_l1(q, neighbouring="zero_out"), 0.97),
        # The bound is that of a matrix of signs; the nearest rank allows is up to 9% less.
        (lambda a, b: l1(upper(outer(a) - outer(b))), sensitivity.moment_l1(q, neighbouring="replace_one"), 0.9),
        (
            lambda a, b: l1(upper(outer(a))) + l1(upper(outer(b))),
            sensitivity.moment_l1(q, neighbouring="replace_one", n_groups=2),
            0.97,
        ),
        (lambda a, _: l1(outer(a)), sensitivity.full_moment_l1(q, neighbouring="zero_out"), 0.97),
        (lambda a, b: l1(outer(a) - outer(b)), sensitivity.full_moment_l1(q, neighbouring="replace_one"), 0.93),
    ]
    for size, limit, least in checks:
        found, tries = searched(lambda parameters, size=size: size(*np.moveaxis(pair(parameters), 1, 0)), normal(2 * q))
        assert tries >= 100_000
        assert least * limit <= found <= limit * (1 + 1e-9)


@pytest.mark.parametrize("neighbouring", ["zero_out", "replace_one"])
def test_a_labelled_moment_moves_by_no_more_than_its_bound(neighbouring):
    p, label = 3, 0.7

    def size(parameters):
        z = in_ball(parameters[:, : 2 * p].reshape(-1, 2, p))
        y = label * np.clip(parameters[:, 2 * p :], -1, 1)
        w = np.concatenate([z, y[:, :, None]], axis=2)
        second = outer(w[:, 1]) if neighbouring == "replace_one" else 0
        return l1(outer(w[:, 0]) - second)

    limit = sensitivity.labelled_moment_l1(p, neighbouring=neighbouring, label=label)
    found, _ = searched(size, normal(2 * p + 2))
    assert (0.98 if neighbouring == "zero_out" else 0.8) * limit <= found <= limit * (1 + 1e-9)


# ---- what the papers say


def data_sets(parameters, n, q):
    """Pairs of data sets of n records in [-1, 1]^q that differ in one."""
    rows = np.clip(parameters.reshape(-1, n + 1, q), -1, 1)
    return rows[:, 1:], rows[:, [0, *range(2, n + 1)]]


def corners(width):
    def start(rng, m):
        return rng.choice([-1.0, 1.0], (m, width)) * np.exp(rng.normal(size=(m, 1)))

    return start


def scatter(rows, *, is_centred):
    rows = rows - rows.mean(axis=1, keepdims=True) if is_centred else rows
    return np.swapaxes(rows, 1, 2) @ rows


def test_paper_002s_sensitivities_hold_about_a_public_centre():
    n, m = 3, 3
    spectrum, covariance = ([] for _ in range(2))
    for p in (1, 2, 3):

        def of_spectrum(parameters, p=p):
            a, b = (
                np.linalg.eigvalsh(scatter(rows / math.sqrt(m), is_centred=False))[:, ::-1][:, :p]
                for rows in data_sets(parameters, n, m)
            )
            return l1(a - b)

        spectrum.append(searched(of_spectrum, corners((n + 1) * m))[0] / sensitivity.paper_unsupervised(p, 1))

        def of_covariance(parameters, p=p):
            a, b = data_sets(parameters, 1, p + 1)
            return l1(outer(a[:, 0]) - outer(b[:, 0]))

        covariance.append(searched(of_covariance, corners(2 * (p + 1)))[0] / sensitivity.paper_supervised(p, 1))
    # Theorem 4 is loose from p = 3 on, where 2 is the truth (a cube has no orthogonal corners in three dimensions);
    # theorem 5 by (p + 1)^2 against p^2 + 4 p + 1.
    np.testing.assert_allclose(spectrum, [1, 1, 2 / 3], rtol=0.08)
    assert max(spectrum) <= 1 + 1e-9
    np.testing.assert_allclose(covariance, [(p + 1) ** 2 / (p**2 + 4 * p + 1) for p in (1, 2, 3)], rtol=0.01)


def centred_pairs(parameters, n, q):
    """Pairs as of `data_sets`, each centred by its own mean; the entries of the centred records are in [-1, 1]."""
    rows = parameters.reshape(-1, n + 1, q)
    pair = [own - own.mean(axis=1, keepdims=True) for own in (rows[:, 1:], rows[:, [0, *range(2, n + 1)]])]
    largest = np.max([np.abs(own).max(axis=(1, 2)) for own in pair], axis=0)[:, None, None]
    return [own / np.where(largest > 0, largest, 1) for own in pair]


def test_of_centred_records_in_the_cube_theorem_5_holds_and_theorem_4_is_off_by_n_over_n_minus_1():
    n, p = 8, 2
    more = sensitivity.about_sample_mean(n, is_bounded_centred=True)

    def of_covariance(parameters):
        a, b = (np.swapaxes(own, 1, 2) @ own for own in centred_pairs(parameters, n, p + 1))
        return l1(a - b)

    limit = (p + 1) ** 2 * more
    found, _ = searched(of_covariance, corners((n + 1) * (p + 1)))
    assert 0.9 * limit <= found <= limit * (1 + 1e-9)  # nine free records are not brought to one place in 100,000 tries
    assert limit == pytest.approx(10.2857, abs=1e-4)
    assert limit < sensitivity.paper_supervised(p, 1)
    # Attained: the others in one place, one record at the corner and its neighbour beside the others.
    at_one_place = np.zeros((1, n + 1, p + 1))
    at_one_place[:, 0] = 1
    assert of_covariance(at_one_place.reshape(1, -1))[0] == pytest.approx(limit)

    for k in (1, 2):

        def of_spectrum(parameters, k=k):
            a, b = (
                np.linalg.eigvalsh(np.swapaxes(own, 1, 2) @ own / 2)[:, ::-1][:, :k]
                for own in centred_pairs(parameters, n, 2)
            )
            return l1(a - b)

        found, _ = searched(of_spectrum, corners((n + 1) * 2))
        claimed = sensitivity.paper_unsupervised(k, 1)
        assert claimed < found <= more * claimed * (1 + 1e-9)


def test_scaling_records_to_the_cube_and_centring_them_then_breaks_theorems_4_and_5():
    n = 8

    def of_spectrum(parameters):
        a, b = (
            np.linalg.eigvalsh(scatter(rows / math.sqrt(2), is_centred=True))[:, ::-1]
            for rows in data_sets(parameters, n, 2)
        )
        return l1(a - b)

    found, _ = searched(of_spectrum, corners((n + 1) * 2))
    assert found > 1.7 * sensitivity.paper_unsupervised(2, 1)

    def of_covariance(parameters):
        a, b = (scatter(rows, is_centred=True) for rows in data_sets(parameters, n, 3))
        return l1(a - b)

    found, _ = searched(of_covariance, corners((n + 1) * 3))
    # By records at one corner and one at the other.
    assert found == pytest.approx(9 * sensitivity.about_sample_mean(n, is_bounded_centred=False), rel=1e-6)
    assert found > 2.4 * sensitivity.paper_supervised(2, 1)


def test_a_record_that_changes_class_costs_twice_what_parallel_composition_says():
    made, found = sums(PCAGauss, "replace_one", "classification")
    components = np.linalg.qr(np.random.default_rng(0).normal(size=(M, P)))[0]
    direction = components @ np.ones(P)
    x = np.mean([BOX.lower, BOX.upper], axis=0) + 40 * direction
    pair = [np.stack([x, x, x])] * 2
    labels = [np.array([0, 1, 2]), np.array([1, 1, 2])]
    with jax.enable_x64(True):
        sums_of = [
            np.asarray(found(a[None], y[None], np.ones((1, 3)))[1][0]) for a, y in zip(pair, labels, strict=True)
        ]
    of_class = [float(l1(upper((sums_of[0] - sums_of[1])[k])[None])[0]) for k in range(3)]
    one = made._bound() ** 2 * sensitivity.moment_l1(1 + P, neighbouring="zero_out")
    assert of_class[0] == pytest.approx(of_class[1])
    assert of_class[2] == 0
    # Both classes move by all of the record, which is more than one class may, and no more than is paid for.
    assert of_class[0] <= one < 1.4 * one < sum(of_class)
    assert sum(of_class) <= made._bound() ** 2 * sensitivity.moment_l1(1 + P, neighbouring="replace_one", n_groups=3)


def test_ron_gauss_s_code_under_noises_covariances_by_the_root_of_half_the_dimension():
    for p in (2, 4, 8):
        true = sensitivity.full_moment_l1(p, neighbouring="replace_one")
        assert true / sensitivity.ron_gauss_covariance(p, 1) == pytest.approx(math.sqrt(p / 2), rel=1e-9)
        # Met at even p: D_ij = 2 / p cos(a_i + a_j) is +-2 / p times the root of a half for these angles.
        angles = np.pi / 8 + np.pi / 2 * np.arange(p)
        x, y = math.sqrt(2 / p) * np.cos(angles), math.sqrt(2 / p) * np.sin(angles)
        assert np.linalg.norm([x, y], axis=1) == pytest.approx([1, 1])
        assert l1((np.outer(x, x) - np.outer(y, y))[None])[0] == pytest.approx(math.sqrt(2) * p)
    assert sensitivity.sum_l1(5, neighbouring="replace_one") == pytest.approx(2 * sensitivity.ron_gauss_mean(5, 1))


@pytest.mark.parametrize(("p", "exact"), [(2, 2 * math.sqrt(2)), (3, math.sqrt(17)), (4, 4 * math.sqrt(2))])
def test_the_bound_on_ron_gauss_s_covariance_is_met_at_even_dimensions_and_not_at_odd_ones(p, exact):
    """The largest |x x^T - y y^T|_1 in the ball is the largest less the least eigenvalue of a matrix of signs."""
    i, j = np.triu_indices(p)
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=len(i))))
    matrices = np.zeros((len(signs), p, p))
    matrices[:, i, j] = matrices[:, j, i] = signs
    values = np.linalg.eigvalsh(matrices)
    largest = (np.maximum(values[:, -1], 0) - np.minimum(values[:, 0], 0)).max()
    assert largest == pytest.approx(exact)
    bound = sensitivity.full_moment_l1(p, neighbouring="replace_one")
    assert (largest < 0.98 * bound) == (p % 2 == 1)
    assert largest > sensitivity.ron_gauss_covariance(p, 1) or p == 2


# ---- theorems 2 and 3, proposition 4, section IX-A


def test_scaling_changes_no_signal_to_noise_ratio():
    values = np.random.default_rng(0).uniform(-1, 1, 5)
    one = sensitivity.laplace_snr(values, sensitivity.paper_identity(30), 0.7)
    for c in (1e-3, 8.0):
        scaled = sensitivity.laplace_snr(c * values, sensitivity.paper_identity(30, a=c), 0.7)
        np.testing.assert_allclose(scaled, one, rtol=1e-12)
    rng = np.random.default_rng(1)
    noise = rng.laplace(scale=sensitivity.paper_identity(30) / 0.7, size=(200_000, 5))
    np.testing.assert_allclose(values**2 / noise.var(axis=0), one, rtol=0.03)  # four errors of a variance


def test_reducing_dimensions_raises_the_signal_to_noise_ratio_by_the_square():
    whole, reduced = (sensitivity.laplace_snr(1.0, sensitivity.paper_identity(300, p), 1.0) for p in (None, 10))
    assert reduced / whole == pytest.approx((300 / 10) ** 2)


@pytest.mark.parametrize(("m", "p"), [(77, 5), (117, 10), (301, 3)])
def test_data_dependent_components_pay_exactly_below_the_bound_of_proposition_4(m, p):
    bound = sensitivity.proposition_4_bound(m, p)
    below, above = math.floor(bound), math.ceil(bound)
    for n, pays in ((below, True), (above, False)):
        # The whole matrix has the sensitivity (m^2 + 4 m + 1) a^2 / n in the paper.
        assert (sensitivity.paper_data_dependent(p, n) <= sensitivity.paper_supervised(m, n)) == pays


def test_the_ratio_of_gain_and_loss_is_one_at_full_dimension_and_large_where_few_directions_hold_all():
    m = 20
    steps = np.array([sensitivity.paper_covariance(p, 100) for p in range(1, m + 1)])
    flat, steep = sensitivity.sir(np.ones(m), steps), sensitivity.sir(np.exp(-np.arange(m)), steps)
    assert flat[-1] == pytest.approx(1)
    assert steep[-1] == pytest.approx(1)
    np.testing.assert_allclose(flat, m / np.arange(1, m + 1))
    assert steep[1] > 80
    np.testing.assert_array_equal(sensitivity.sir(np.exp(-np.arange(m))[::-1], steps), steep)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sensitivity.sum_l2(neighbouring="other"), "neighbouring must be one of"),
        (lambda: sensitivity.sum_l1(0, neighbouring="zero_out"), "q must be an integer"),
        (lambda: sensitivity.moment_l1(2, neighbouring="zero_out", n_groups=0), "n_groups must be an integer"),
        (lambda: sensitivity.moment_l1(2, neighbouring="other"), "neighbouring must be one of"),
        (lambda: sensitivity.labelled_moment_l1(2, neighbouring="zero_out", label=0.0), "label must be"),
        (lambda: sensitivity.labelled_moment_l1(2, neighbouring="other"), "neighbouring must be one of"),
        (lambda: sensitivity.spectrum_l2(0, neighbouring="zero_out"), "p must be an integer"),
        (lambda: sensitivity.laplace_snr(1.0, 0.0, 1.0), "sensitivity must be"),
        (lambda: sensitivity.sir([1.0, 1.0], [1.0]), "must be m numbers each"),
        (lambda: sensitivity.sir([0.0], [1.0]), "singular_values must be finite"),
        (lambda: sensitivity.proposition_4_bound(3, 0), "p must be an integer"),
        (lambda: sensitivity.about_sample_mean(1, is_bounded_centred=True), "n must be an integer"),
    ],
)
def test_arguments_out_of_range_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
