import dataclasses
import inspect
import json

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA as SklearnPCA
from sklearn.manifold import trustworthiness

import drjax
from drjax import data
from drjax.audits import AuditConfig
from drjax.cli import commands, main, options
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
            "embedding",
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
    main(["audit", *sizes, "--attack", "closed-form", "ridge", "--out", str(tmp_path / "o")])
    said = capsys.readouterr().out
    assert "report.html" in said
    assert "Ridge" in said


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("a,b\n1,2\n3,7\n", "at least 4 records, got 2"),
        ("a,b\n1,x\n1,x\n1,x\n1,x\n", "'a' (constant), 'b' (constant)"),
        ("a,b\n", "t.csv"),
    ],
)
def test_a_bad_table_is_one_line_that_names_what_is_wrong(tmp_path, capsys, content, match):
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
def test_embed_takes_every_method_and_says_how_good_it_is(tmp_path, capsys, method):
    x = load_digits().data[:50] + 0.01 * np.random.default_rng(0).normal(size=(50, 64))  # blurred: no distances tie
    np.save(tmp_path / "x.npy", x)
    main(["embed", str(tmp_path / "x.npy"), str(tmp_path / "e.npy"), "--method", method, "--seed", "1"])
    coords = np.load(tmp_path / "e.npy")
    assert coords.shape == (50, 2)
    assert np.isfinite(coords).all()
    scaled = data.load(str(tmp_path / "x.npy")).x
    np.testing.assert_allclose(coords, drjax.embed(scaled, method=method, seed=1, dtype="float32"), rtol=1e-6)
    facts = json.loads((tmp_path / "e.npy.json").read_text())
    assert facts["method"] == method
    measured = facts["quality"]["trustworthiness"]
    assert measured == pytest.approx(trustworthiness(scaled, coords), abs=1e-5)  # a sum of ranks, in float32
    assert f"Trustworthiness: {measured:.3f}" in capsys.readouterr().out


def test_hyperparameters_of_any_method_are_options(tmp_path):
    np.save(tmp_path / "x.npy", load_digits().data[:40])
    for number, (method, given) in enumerate(
        [
            ("tsne", {"perplexity": 7.5, "init": "random", "learning_rate": "auto", "max_iter": 260}),
            ("tsne", {"learning_rate": 80.0, "max_iter": 260}),
            ("umap", {"n_neighbors": 6, "n_epochs": 20, "min_dist": 0.3}),
            ("umap", {"n_epochs": None}),
            ("isomap", {"n_neighbors": 4}),
            ("mds", {"init": "classical", "eps": 1e-4}),
            ("srp", {"density": 0.5}),
        ]
    ):
        out = tmp_path / f"{number}.npy"
        words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        main(["embed", str(tmp_path / "x.npy"), str(out), "--method", method, *words])
        found = json.loads((tmp_path / f"{number}.npy.json").read_text())["hyperparameters"]
        assert found == {**found, **given}
        for name, value in given.items():
            assert type(found[name]) is type(value)


def test_every_hyperparameter_has_an_option_with_a_help_text_and_no_other_option_has_its_name():
    names = [name for method in METHODS for name in options.fields_of(method)]
    assert {field.name for field in dataclasses.fields(options.Options)} == set(names)
    others = {field.name for field in dataclasses.fields(AuditConfig)} - {"hyperparameters"}
    others |= {name for command in (commands.audit, commands.embed) for name in inspect.signature(command).parameters}
    assert not others & set(names)
    for method in METHODS:
        for name in options.fields_of(method):
            assert len(options._described(method, name)) > 5
            assert method in options._help(name)


def test_bad_hyperparameters_are_one_line_that_says_what_to_pass(tmp_path, capsys):
    np.save(tmp_path / "x.npy", load_digits().data[:20])
    embed = ("embed", tmp_path / "x.npy", tmp_path / "e.npy", "--method")
    audit = ("audit", "--out", tmp_path / "o", "--n-known", "15", "--method")
    for arguments, words in (
        ((*embed, "tsne"), ["perplexity must be < n = 20 records, got 30", "--perplexity"]),
        ((*audit, "tsne"), ["perplexity must be < n = 16 records, got 30", "--perplexity"]),
        ((*audit, "isomap", "--n-neighbors", "16"), ["n_neighbors", "15, got 16", "pass another --n-neighbors"]),
        ((*embed, "tsne", "--perplexity", "many"), ["--perplexity must be a number, got 'many'"]),
        ((*embed, "tsne", "--max-iter", "2.5"), ["--max-iter must be an integer, got '2.5'"]),
        ((*embed, "umap", "--init", "pca"), ["init must be one of", "'pca'", "--init"]),
        ((*embed, "pca", "--perplexity", "5"), ["--perplexity", "'pca', which has no options"]),
        ((*audit, "mds", "--perplexity", "5"), ["--perplexity", "'mds', which has --init, --n-init"]),
        ((*embed, "lle"), ["method must be one of", "'lle'"]),
    ):
        error = failure(capsys, *arguments)
        assert error.count("\n") == 1
        for word in words:
            assert word in error
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npy"]


def test_embed_publishes_a_defended_embedding_whose_noise_nobody_can_draw_again(tmp_path):
    np.save(tmp_path / "x.npy", load_digits().data[:60])
    coords = {}
    for name, words in {
        "plain": (),
        "first": ("--defense", "output-noise", "--defense-scale", "0.2"),
        "second": ("--defense", "output-noise", "--defense-scale", "0.2"),
        "grid": ("--defense", "rounding", "--defense-scale", "0.5"),
        "input": ("--defense", "input-noise", "--defense-scale", "0.05", "--seed", "3"),
        "again": ("--defense", "input-noise", "--defense-scale", "0.05", "--seed", "3"),
    }.items():
        main(["embed", str(tmp_path / "x.npy"), str(tmp_path / f"{name}.npy"), *words])
        coords[name] = np.load(tmp_path / f"{name}.npy")
    plain = coords["plain"]
    spread = np.sqrt(np.mean((plain - plain.mean(axis=0)) ** 2))
    for name in ("first", "second"):
        assert np.std(coords[name] - plain) == pytest.approx(0.2 * spread, rel=0.25)  # 120 deviates
    assert not np.allclose(coords["first"], coords["second"], atol=0.01 * spread)
    # Of the spread two digits are told.
    width = 0.5 * float(f"{spread:.1e}")
    np.testing.assert_allclose(coords["grid"], width * np.round(plain / width), atol=1e-4)
    np.testing.assert_array_equal(coords["input"], coords["again"])
    facts = json.loads((tmp_path / "first.npy.json").read_text())
    assert (facts["defense"], facts["defense_scale"], facts["seed"]) == ("output-noise", 0.2, None)
    assert facts["hyperparameters"] == {"n_components": 2}


def test_bad_defences_are_one_line_and_write_nothing(tmp_path, capsys):
    np.save(tmp_path / "x.npy", load_digits().data[:60])
    embed = ("embed", tmp_path / "x.npy", tmp_path / "e.npy")
    audit = ("audit", "--out", tmp_path / "o")
    for arguments, words in (
        ((*embed, "--defense", "blur", "--defense-scale", "1"), ["defense must be one of", "'blur'"]),
        ((*embed, "--defense", "rounding"), ["defense_scale must be a finite number > 0", "None"]),
        ((*embed, "--defense", "rounding", "--defense-scale", "-1"), ["defense_scale must be", "-1"]),
        ((*embed, "--defense-scale", "1"), ["defense_scale must be left out without --defense"]),
        ((*audit, "--defense", "rounding"), ["defense_scale must be one or more different finite numbers > 0"]),
        ((*audit, "--defense-scale", "0.1"), ["defense_scale must be left out without a defense"]),
        ((*audit, "--defense", "rounding", "--defense-scale", "nan"), ["defense_scale must be", "nan"]),
    ):
        error = failure(capsys, *arguments)
        assert error.count("\n") == 1
        for word in words:
            assert word in error
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npy"]
