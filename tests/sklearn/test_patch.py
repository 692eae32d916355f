"""The plugin: scikit-learn's tests on drjax in a process of their own, and that its xfail list is strict."""

import re
import subprocess
import sys

import pytest
import sklearn

from drjax.sklearn.patch import PATCHES, XFAIL_LIST, Entry, read_list


def run(*args):
    options = ["-n", "0", "-p", "drjax.sklearn.patch", "-p", "no:cacheprovider", "--pyargs"]
    command = [sys.executable, "-m", "pytest", *options, *args]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    return result.returncode, result.stdout + result.stderr


def written(tmp_path, body, version=sklearn.__version__):
    path = tmp_path / "list.toml"
    path.write_text(f'sklearn_version = "{version}"\n{body}')
    return f"--xfail-list={path}"


def test_whole_files_and_a_test_of_every_other_file_pass():
    whole = ("sklearn.manifold.tests.test_mds", "sklearn.manifold.tests.test_classical_mds")
    chosen = (
        "sklearn.decomposition.tests.test_pca::test_pca",
        "sklearn.decomposition.tests.test_pca::test_infer_dim_by_explained_variance",
        "sklearn.manifold.tests.test_isomap::test_isomap_reconstruction_error",
        "sklearn.manifold.tests.test_isomap::test_transform",
        "sklearn.manifold.tests.test_t_sne::test_binary_search",
        "sklearn.manifold.tests.test_t_sne::test_gradient",
        "sklearn.manifold.tests.test_t_sne::test_64bit",
        "sklearn.tests.test_random_projection::test_sparse_random_matrix",
        "sklearn.tests.test_random_projection::test_random_projection_numerical_consistency",
    )
    code, output = run(*whole, *chosen)
    assert code == 0, output
    assert "test_mds.py: 15 passed, 12 xfailed, 0 failed" in output
    assert "test_classical_mds.py: 4 passed, 0 xfailed, 0 failed" in output
    for file in ("test_pca.py", "test_isomap.py", "test_t_sne.py", "test_random_projection.py"):
        assert f"{file}: " in output
    assert re.search(r"test_t_sne.py: \d+ passed, 2 xfailed, 0 failed", output)  # of test_64bit


def test_the_list_is_strict(tmp_path):
    """A test that passes, an entry of no test and another version are all told."""
    passes = '[[xfail]]\nreason = "it does not"\ntests = ["test_classical_mds.py::test_classical_mds_wrong_inputs"]\n'
    code, output = run(written(tmp_path, passes, "1.8.0"), "sklearn.manifold.tests.test_classical_mds")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "[XPASS(strict)] it does not" in output
    assert f"THE LIST IS FOR SCIKIT-LEARN 1.8.0, INSTALLED IS {sklearn.__version__}" in output
    unused = '[[xfail]]\nreason = "none"\ntests = ["test_classical_mds.py::test_gone"]\n'
    code, output = run(written(tmp_path, unused), "sklearn.manifold.tests.test_classical_mds")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "no test matches test_classical_mds.py::test_gone" in output


def test_the_shipped_list_is_for_the_pinned_version_and_names_the_six_files():
    version, entries = read_list(XFAIL_LIST)
    assert version == "1.9.1"
    assert {entry.pattern.partition("::")[0] for entry in entries} <= {"test_mds.py", "test_t_sne.py"}


@pytest.mark.parametrize(
    "body",
    [
        '[[xfail]]\nreason = " "\ntests = ["a.py::b"]',
        '[[xfail]]\nreason = "why"\ntests = []',
        '[[xfail]]\nreason = "why"\ntests = ["a.py::b", "a.py::b"]',
    ],
    ids=["no reason", "no tests", "twice"],
)
def test_a_careless_list_is_refused(tmp_path, body):
    option = written(tmp_path, body)
    with pytest.raises(ValueError, match="each"):
        read_list(type(XFAIL_LIST)(option.partition("=")[2]))


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("a.py::t", "a.py::t", True),
        ("a.py::t", "a.py::t[1-x]", True),
        ("a.py::t", "a.py::tt", False),
        ("a.py::t[1-*]", "a.py::t[1-x]", True),
        ("a.py::t[1-*]", "a.py::t[2-x]", False),
        ("a.py::t[0.5]", "a.py::t[0x5]", False),
    ],
)
def test_patterns_match_names(pattern, name, matches):
    assert Entry(pattern, "why").matches(name) is matches


def test_every_patched_name_is_scikit_learns_outside_of_the_plugin():
    for (module, attribute), replacement in PATCHES.items():
        original = getattr(sys.modules[module], attribute)
        assert original is not replacement
        assert original.__module__.startswith("sklearn.") or original.__module__ == "builtins"
