import numpy as np
import pytest

from drjax.core import streamed


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(streamed, "BLOCK_ENTRIES", 100)


def graded(n, d):
    """Directions over seven orders of magnitude, about a mean far from 0."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0, 7, d) + 3


def constant_and_dependent(n, d):
    x = np.random.default_rng(1).normal(size=(n, d))
    x[:, 2], x[:, 4] = 7.3, x[:, 0] + x[:, 1]
    return x


def sorted_rows(n, d):
    """The first block is nothing like the rest, and constant."""
    x = np.random.default_rng(2).normal(size=(n, d))
    x[: n // 2] = 5.0
    return x


@pytest.mark.parametrize("make", [graded, constant_and_dependent, sorted_rows])
@pytest.mark.parametrize("is_centred", [True, False])
def test_principal_directions_are_those_of_a_singular_value_decomposition(make, is_centred):
    x = make(300, 12)
    mean, singular, basis = streamed.principal_directions(x, is_centred=is_centred)
    centred = x - x.mean(axis=0) if is_centred else x
    np.testing.assert_allclose(mean, x.mean(axis=0) if is_centred else np.zeros(12), atol=1e-14)
    expected = np.linalg.svd(centred, compute_uv=False)
    expected = expected[: np.linalg.matrix_rank(centred)]
    # Relative, the smallest ones too.
    np.testing.assert_allclose(singular, expected, rtol=1e-8)
    np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-13)
    np.testing.assert_allclose(centred @ basis.T @ basis, centred, atol=1e-13)
    left = centred @ basis.T / singular
    # What they are rounded to is a share of the largest.
    np.testing.assert_allclose(left.T @ left, np.eye(len(basis)), atol=1e-15 * singular[0] / singular[-1] + 1e-11)


def test_rows_that_are_all_equal_have_no_direction():
    mean, singular, basis = streamed.principal_directions(np.full((40, 3), 0.1))
    assert mean.tolist() == [0.1] * 3
    assert (singular.shape, basis.shape) == ((0,), (0, 3))


def test_moments_are_those_of_numpy_and_leave_the_records_as_they_are():
    x = np.random.default_rng(3).normal(size=(57, 4)) + 100
    before = x.copy()
    mean, scatter = streamed.moments(x)
    np.testing.assert_allclose(mean, x.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(scatter, np.cov(x.T) * 56, rtol=1e-12)
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(streamed.moments(x, is_centred=False)[1], x.T @ x, rtol=1e-14)


@pytest.mark.parametrize("weights", [None, np.random.default_rng(5).normal(size=(6, 4))])
def test_a_product_is_the_array_that_it_stands_for(weights):
    rows = np.random.default_rng(4).normal(size=(90, 6)).astype(np.float32)
    centre = rows.mean(axis=0, dtype=np.float64)
    product = streamed.Product(rows, centre, weights)
    whole = (rows - centre) @ (np.eye(6) if weights is None else weights)
    assert product.shape == whole.shape
    assert len(product) == 90
    right, left = np.random.default_rng(6).normal(size=(whole.shape[1], 3)), np.random.default_rng(7).normal(size=90)
    for found, expected in (
        (np.asarray(product), whole),
        (product[3], whole[3]),
        (product[5:9], whole[5:9]),
        (product[np.array([8, 1]), :2], whole[[8, 1], :2]),
        (product @ right, whole @ right),
        (product @ right[:, 0], whole @ right[:, 0]),
        (product.T @ left, whole.T @ left),
        (product.T @ np.outer(left, left[:2]), whole.T @ np.outer(left, left[:2])),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_rows_of_a_product_are_not_read_before_they_are_asked_for(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    read = []

    class Watched:
        shape = mapped.shape

        def __getitem__(self, at):
            read.append(at)
            return mapped[at]

    product = streamed.Product(Watched(), np.zeros(2), np.eye(2))
    assert read == []
    np.testing.assert_array_equal(product[4], [8.0, 9.0])
    assert read == [4]
