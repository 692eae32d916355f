import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

from drjax.attacks import matching
from drjax.attacks.matching import match_rows


@pytest.fixture(scope="module")
def digits():
    x = load_digits().data / 16
    return x[np.random.default_rng(0).permutation(len(x))]


@pytest.mark.parametrize("k", [1, 2, 5])
def test_finds_the_rows_and_the_signs_of_scikit_learn_s_output_again(digits, k):
    rng = np.random.default_rng(k)
    for target in range(500, 505):
        x = np.vstack([digits[target], digits[:149]])
        coords = SklearnPCA(k, svd_solver="full").fit_transform(x) * rng.choice([-1, 1], k)
        order = rng.permutation(150)
        found = order[match_rows(digits[:149], coords[order])]
        # With one component many records lie closer together than the target moves them.
        assert (found == np.arange(150)).mean() > (0.1 if k == 1 else 0.95)  # chance is 0.007
        assert sorted(found) == list(range(150))


def test_rounds_after_the_first_mend_what_it_gets_wrong(digits, monkeypatch):
    rng = np.random.default_rng(0)

    def share(rounds):
        monkeypatch.setattr(matching, "ROUNDS", rounds)
        right = []
        for target in range(500, 512):
            coords = SklearnPCA(2, svd_solver="full").fit_transform(np.vstack([digits[target], digits[:99]]))
            order = rng.permutation(100)
            right.append((order[match_rows(digits[:99], coords[order])] == np.arange(100)).mean())
        return np.mean(right)

    assert share(3) > share(0) + 0.01


def test_bad_input_names_the_argument():
    with pytest.raises(ValueError, match="coords must have 6 rows"):
        match_rows(np.eye(5), np.ones((5, 2)))
    with pytest.raises(ValueError, match="known must have at least 3 rows"):
        match_rows(np.eye(2), np.ones((3, 2)))
