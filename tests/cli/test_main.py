import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA

import drjax
from drjax.cli import main
from drjax.dr import METHODS


def failure(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(a) for a in arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert "Traceback" not in error
    return error


def test_version_is_printed(capsys):
    main(["--version"])
    assert capsys.readouterr().out.strip() == f"drjax {drjax.__version__}"


def test_data_list_and_info_name_the_sets(capsys):
    main(["data", "list"])
    assert "mnist" in capsys.readouterr().out
    main(["data", "info", "census"])
    assert "1,080" in capsys.readouterr().out


def test_attack_takes_a_record_back_from_scikit_learn_s_output(tmp_path, capsys):
    x = load_digits().data[:200]
    np.save(tmp_path / "known.npy", x[1:])
    coords = SklearnPCA(2, svd_solver="full").fit_transform(x)
    lines = ["c1,c2", *(f"{a!r},{b!r}" for a, b in coords.tolist())]
    (tmp_path / "coords.csv").write_text("\n".join(lines) + "\n")
    main(
        [
            "attack",
            "--known",
            f"{tmp_path}/known.npy",
            "--coords",
            f"{tmp_path}/coords.csv",
            "--out",
            f"{tmp_path}/r.npz",
        ]
    )
    assert "Written" in capsys.readouterr().out
    with np.load(tmp_path / "r.npz") as result:
        np.testing.assert_allclose(result["x"], x[0], atol=1e-4)  # float64 coordinates written in full


def test_embed_writes_one_row_per_record(tmp_path):
    main(["embed", "digits", str(tmp_path / "e.csv"), "--n-components", "3"])
    assert np.loadtxt(tmp_path / "e.csv", delimiter=",", skiprows=1).shape == (1797, 3)


def test_audit_runs_and_names_its_report(tmp_path, capsys):
    sizes = ["--n-known", "30", "--n-shadow", "80", "--n-validation", "20", "--n-targets", "10"]
    main(["audit", *sizes, "--attacks", "closed-form", "--out", str(tmp_path / "o")])
    assert "report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,b\n1,2\n3,x\n", "'b'"),
        ("a,b\n1,2\n3,nan\n", "'b'"),
        ("a,b\n", "t.csv"),
    ],
)
def test_a_bad_table_is_one_line_that_names_the_column(tmp_path, capsys, content, match):
    (tmp_path / "t.csv").write_text(content)
    error = failure(capsys, "audit", "--data", tmp_path / "t.csv", "--out", tmp_path / "o")
    assert match in error
    assert error.count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_other_bad_input_is_one_line_and_writes_nothing(tmp_path, capsys):
    (tmp_path / "images").mkdir()
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    (tmp_path / "file").write_text("")
    for arguments in (
        ("audit", "--data", tmp_path / "images", "--out", tmp_path / "o"),
        ("audit", "--data", tmp_path / "bad.npz", "--out", tmp_path / "o"),
        ("audit", "--data", "nothing.csv", "--out", tmp_path / "o"),
        ("audit", "--n-known", "0", "--out", tmp_path / "o"),
        ("audit", "--n-known", "5000", "--out", tmp_path / "o"),
        ("audit", "--out", tmp_path / "file" / "o"),
        ("embed", "digits", tmp_path / "missing" / "e.npy"),
        ("data", "info", "nothing"),
    ):
        assert failure(capsys, *arguments).count("\n") == 1
    assert not (tmp_path / "o").exists()


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path, capsys):
    # A file in the way, because a superuser may write to a folder that forbids it.
    (tmp_path / "file").write_text("")
    error = failure(capsys, "audit", "--out", tmp_path / "file" / "run")
    assert "choose another --out" in error
    assert str(tmp_path / "file" / "run") in error
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.parametrize("method", sorted(METHODS))
def test_embed_takes_every_method(tmp_path, method):
    np.save(tmp_path / "x.npy", load_digits().data[:50])
    main(["embed", str(tmp_path / "x.npy"), str(tmp_path / "e.npy"), "--method", method, "--seed", "1"])
    coords = np.load(tmp_path / "e.npy")
    assert coords.shape == (50, 2)
    assert np.isfinite(coords).all()
