"""A release with nothing public but ranges: what it keeps of the variance about the records' mean, and what it says."""

import json

import jax
import numpy as np
import pytest

from drjax.cli.release_commands import in_words
from drjax.defenses.dp_pca import AnalyticGauss
from drjax.releases import PCAReleaseConfig, expected, release_pca

FAST = {"trials": 19, "splits": 2}
D, K = 4, 1


def skewed(n=400, seed=0):
    """Records far from the middle of their ranges [-10, 10], whose variance lies across the way there."""
    rng = np.random.default_rng(seed)
    return np.full(D, -6.0) + rng.normal(size=(n, D)) * [0.3, 0.3, 0.3, 2.5]


def written(folder, x, *, half=10.0):
    np.savetxt(folder / "x.csv", x, delimiter=",", header="a,b,c,d", comments="")
    (folder / "bounds.json").write_text(json.dumps({"lower": [-half] * D, "upper": [half] * D}))
    return {"data": folder / "x.csv", "bounds": folder / "bounds.json"}


def kept(components, x):
    """Captured variance about the mean over the most that as many components capture."""
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    return np.trace(components @ np.cov(x.T) @ components.T) / values[: len(components)].sum()


@pytest.fixture(scope="module")
def clear(tmp_path_factory):
    folder, x = tmp_path_factory.mktemp("clear"), skewed()
    config = PCAReleaseConfig(epsilon=30.0, n_components=K, **written(folder, x), **FAST)
    return x, release_pca(config, folder / "out")


def test_with_only_ranges_the_components_are_those_of_the_variance_about_the_mean(clear):
    x, result = clear
    # The direction of the mean, which has the largest second moment about the middle, keeps 1/4 of it.
    assert kept(result.release.components, x) > 0.9


def test_what_is_announced_is_variance_about_the_mean_whatever_the_centre():
    x = skewed()
    made = AnalyticGauss(neighbouring="replace_one", n_components=K, row_norm=30.0, noise_multiplier=1e-6)
    found = expected.utility(jax.random.key(0), made, lambda _: made, 1.0, x, n_trials=19)
    components = np.asarray(made.release(x).components)
    assert kept(components, x) < 0.5
    # Without noise: announced and measured agree, up to float32.
    assert found.chosen.estimate == pytest.approx(kept(components, x), abs=1e-3)


def test_a_huge_entry_counts_as_the_end_of_its_range_and_no_more(tmp_path):
    x = skewed()
    x[3, 1] = 1e300
    x[4, 2] = -1e300
    config = PCAReleaseConfig(epsilon=1.0, n_components=K, **written(tmp_path, x), **FAST)
    result = release_pca(config, tmp_path / "out")
    assert np.isfinite(result.release.moment).all()
    assert result.outside >= 2
    assert result.expected is not None
    utility, membership = result.expected
    assert np.isfinite(utility.chosen).all()
    assert all(np.isfinite(interval).all() for interval in utility.energy)
    assert all(np.isfinite(attack.auc).all() for attack in membership.attacks)


def test_a_release_that_is_worth_nothing_is_called_so_on_the_console_and_in_red_in_the_report(tmp_path, clear):
    rng = np.random.default_rng(1)
    files = written(tmp_path, rng.normal(size=(400, D)) * [1, 1, 1, 1.5])
    loud = release_pca(PCAReleaseConfig(epsilon=0.001, n_components=K, **files, **FAST), tmp_path / "loud")
    _, good = clear
    assert loud.expected is not None
    assert good.expected is not None
    assert loud.expected[0].is_no_better_than_random
    console = "\n".join(in_words(loud))
    assert "NO BETTER THAN RANDOM DIRECTIONS" in console
    assert f"random directions keep {loud.expected[0].random:.0%}" in console
    page = (loud.private_folder / "report.html").read_text()
    assert page.index("NO BETTER THAN RANDOM DIRECTIONS") < page.index("expected to keep")
    assert 'class="verdict high" aria' in page
    assert not good.expected[0].is_no_better_than_random
    text = (good.private_folder / "report.html").read_text()
    assert "NO BETTER" not in "\n".join(in_words(good)) + text
    assert "as many random directions keep" in text
