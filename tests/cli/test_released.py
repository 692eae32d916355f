import numpy as np
import pytest

import drjax
from drjax.cli import main

N = 30


@pytest.fixture
def files(tmp_path):
    """A table with record ids, and maps of it that are wrong in one way each."""
    rng = np.random.default_rng(0)
    x, coords = rng.normal(size=(N, 4)), rng.normal(size=(N, 2))

    def write(name, values, head="", fmt="%.4f"):
        np.savetxt(tmp_path / name, values, delimiter=",", header=head, comments="", fmt=fmt)

    write("table.csv", np.column_stack([np.arange(N), x]), "id,a,b,c,d", "%.6g")
    write("map.csv", coords, "x,y")
    write("short.csv", coords[1:], "x,y")
    write("ids.csv", np.column_stack([np.arange(N), coords]), "id,x,y")
    write("flat.csv", np.column_stack([coords[:, 0], np.full(N, 3.0)]), "x,y")
    np.save(tmp_path / "nan.npy", np.where(np.arange(2 * N).reshape(N, 2) == 5, np.nan, coords))
    (tmp_path / "text.csv").write_text("x,y\n" + "\n".join(f"{a},p{i}" for i, a in enumerate(coords[:, 0])) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("none.csv", (), ["released must hold a map", "there is no file", "none.csv"]),
        ("short.csv", (), ["released must have one row for each of the 30 records of data", "got 29"]),
        ("ids.csv", (), ["n_components must be the number of columns of released, 3", "got 2", "--n-components 3"]),
        ("map.csv", ("--n-components", 3), ["n_components must be the number of columns of released, 2", "got 3"]),
        ("flat.csv", (), ["released must have no constant column", "got 3 in all of column 1"]),
        ("nan.npy", (), ["released must hold a map", "finite", "1 nan", "(2, 1)"]),
        (
            "text.csv",
            (),
            ["n_components must be the number of columns of released, 1", "Column 'y' of the map holds no num"],
        ),
        ("map.csv", ("--decimals", 2), ["decimals must be those of released, which has 4", "got 2"]),
        ("map.csv", ("--n-known", 20), ["n_known must be left out with released", "got 20"]),
        ("map.csv", ("--n-targets", 5), ["n_targets must be left out with released", "max_records", "got 5"]),
        ("map.csv", ("--scale", "standard"), ["scale must be left out where the method is recognised"]),
        ("map.csv", ("--perplexity", 5), ["--perplexity must be given with the method", "--method"]),
        ("map.csv", ("--attacks", "magic"), ["attacks must be one of", "magic"]),
        ("map.csv", ("--method", "pca", "--attacks", "geodesics"), ["attacks must be among", "geodesics"]),
        ("map.csv", ("--method", "pca"), ["released must be the map that PCA makes of data", "leave out --method"]),
    ],
)
def test_bad_input_is_one_line_that_names_argument_rule_and_value(files, capsys, name, options, words):
    out = files / "run"
    arguments = ["audit", "--data", files / "table.csv", "--drop", "id", "--released", files / name, "--out", out]
    arguments += ["--options", "False"]
    with pytest.raises(SystemExit) as stopped:
        main([str(one) for one in (*arguments, "--quiet", *options)])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert all(word in error for word in words), error
    assert not out.exists()


def test_audit_of_a_map_runs_and_prints_how_it_was_made(files, capsys):
    x = np.loadtxt(files / "table.csv", delimiter=",", skiprows=1)[:, 1:]
    np.save(files / "pca.npy", drjax.embed(x))
    arguments = ["audit", "--data", files / "table.csv", "--drop", "id", "--released", files / "pca.npy"]
    main([str(one) for one in (*arguments, "--method", "pca", "--options", "False", "--out", files / "run")])
    printed = " ".join(capsys.readouterr().out.split())
    assert "Map: stated: PCA" in printed
    assert "Compared with the map made anew" in printed
    assert "Most exposed: line" in printed
    assert (files / "run/exposure.csv").exists()
