import csv

import numpy as np
import pytest
from PIL import Image

from drjax.attacks import roc
from drjax.attacks.membership import leverages, pca_scores, release_of
from drjax.cli import main

D, N = 8, 40


def failure(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["attack", "membership", *(str(a) for a in arguments)])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.count("\n") == 1
    return error


def table(path, x, extra=None):
    names = [f"c{i}" for i in range(D)]
    columns = {} if extra is None else extra
    data = np.column_stack([*columns.values(), x]) if columns else x
    np.savetxt(path, data, delimiter=",", header=",".join([*columns, *names]), comments="", fmt="%.17g")


@pytest.fixture
def files(tmp_path):
    x = np.random.default_rng(0).normal(size=(300, D)) * 1.3 ** -np.arange(D)
    table(tmp_path / "members.csv", x[:N])
    table(tmp_path / "others.csv", x[N : 2 * N])
    table(tmp_path / "public.csv", x[100:])
    truth = np.repeat([1, 0], N)
    table(tmp_path / "both.csv", x[: 2 * N], {"id": np.arange(2 * N), "in": truth})
    release = release_of(x[:N], 4, eigenvalues=True)
    np.savez(tmp_path / "r.npz", components=release.components, eigenvalues=release.eigenvalues, n_records=N,
             columns=[f"c{i}" for i in range(D)])  # fmt: skip
    np.save(tmp_path / "v.npy", release.components)
    return tmp_path, x, release


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.figures
def test_scores_are_those_of_the_library(files, capsys):
    folder, x, release = files
    main(["attack", "membership", "--components", f"{folder}/v.npy", "--members", f"{folder}/members.csv", "--others",
          f"{folder}/others.csv", "--out", f"{folder}/s.csv", "--plot", f"{folder}/roc.png"])  # fmt: skip
    found = rows(folder / "s.csv")
    scores = np.array([float(row["score"]) for row in found])
    np.testing.assert_allclose(scores, -pca_scores(release.components, x[: 2 * N]), rtol=1e-12)
    assert [int(row["row"]) for row in found] == [*range(N), *range(N)]
    assert [row["member"] for row in found] == ["1"] * N + ["0"] * N
    assert int(found[int(scores.argmax())]["rank"]) == 1
    said = capsys.readouterr().out
    auc = roc.auc(scores, np.repeat([1, 0], N))
    assert f"AUC: {auc.estimate:.3f} [{auc.low:.3f}, {auc.high:.3f}]" in said
    assert "used as they are" in said
    with Image.open(folder / "roc.png") as image:
        assert min(image.size) > 300


def test_the_strongest_attack_is_what_the_files_allow(files, capsys):
    folder, x, release = files
    base = ["attack", "membership", "--components", f"{folder}/r.npz", "--candidates", f"{folder}/both.csv",
            "--label", "in"]  # fmt: skip
    main([*base, "--out", f"{folder}/a.npz"])
    assert "Attack: leverage" in capsys.readouterr().out
    with np.load(folder / "a.npz") as arrays:
        np.testing.assert_allclose(arrays["score"], -leverages(release, x[: 2 * N])[:, -1], rtol=1e-9)
        np.testing.assert_array_equal(arrays["member"], np.repeat([1, 0], N))
    main([*base, "--out", f"{folder}/b.npz", "--public", f"{folder}/public.csv", "--n-shadows", "8"])
    assert "Attack: ratio" in capsys.readouterr().out
    with np.load(folder / "b.npz") as arrays:
        strong = roc.auc(arrays["score"], arrays["member"]).estimate
    assert strong > roc.auc(-pca_scores(release.components, x[: 2 * N]), np.repeat([1, 0], N)).estimate > 0.5


def test_standardising_by_public_records_is_that(files):
    folder, x, _ = files
    public = x[100:]
    z = (x - public.mean(axis=0)) / public.std(axis=0)
    release = release_of(z[:N], 3)
    np.save(folder / "z.npy", release.components)
    main(["attack", "membership", "--components", f"{folder}/z.npy", "--candidates", f"{folder}/members.csv",
          "--public", f"{folder}/public.csv", "--standardise-by", "public", "--attack", "reconstruction",
          "--out", f"{folder}/s.npz"])  # fmt: skip
    with np.load(folder / "s.npz") as arrays:
        np.testing.assert_allclose(arrays["score"], -pca_scores(release.components, z[:N]), rtol=1e-9)


def test_a_manifest_makes_the_noise_known_and_says_what_no_attack_exceeds(files, capsys):
    folder, _, _ = files
    main(["release", "pca", f"{folder}/members.csv", "--epsilon", "500", "--public", f"{folder}/public.csv",
          "--out", f"{folder}/out", "--trials", "19", "--splits", "2", "--quiet", "--n-components", "3"])  # fmt: skip
    base = ["attack", "membership", "--components", f"{folder}/out/components.npz", "--manifest",
            f"{folder}/out/manifest.json", "--members", f"{folder}/members.csv", "--others", f"{folder}/others.csv",
            "--public", f"{folder}/public.csv", "--n-shadows", "4"]  # fmt: skip
    for attack in ("strongest", "shadow-error", "ratio", "reconstruction", "leverage"):
        main([*base, "--attack", attack, "--out", f"{folder}/{attack}.npz"])
        said = capsys.readouterr().out
        assert f"Attack: {'matrix-ratio' if attack == 'strongest' else attack}" in said
        assert "the guarantee allows" in said
        assert "centred, scaled and cut" in said
    with np.load(folder / "strongest.npz") as arrays:
        # Hardly any noise and 40 records: what is left of them is plain to see.
        assert roc.auc(arrays["score"], arrays["member"]).estimate > 0.6
    error = failure(capsys, "--components", folder / "r.npz", "--manifest", folder / "out" / "manifest.json",
                    "--candidates", folder / "both.csv", "--out", folder / "x.csv")  # fmt: skip
    assert "another SHA-256" in error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--components": "nothing.npz"}, "there is no file nothing.npz"),
        ({"--components": "members.csv"}, "the rows k of components must be <= d"),
        ({"--candidates": "nothing.csv"}, "there is no file nothing.csv"),
        ({"--candidates": None}, "candidates must be given, or members and others both"),
        ({"--candidates": None, "--members": "members.csv"}, "candidates must be given, or members and others both"),
        ({"--members": "members.csv"}, "members and others must be left out with --candidates"),
        ({"--label": "c0"}, "label must be a column of 0 and 1"),
        ({"--label": "zzz"}, "got no 'zzz'"),
        ({"--attack": "magic"}, "attack must be one of"),
        ({"--attack": "ratio"}, "attack ratio must have --public"),
        (
            {"--attack": "matrix-ratio", "--public": "public.csv"},
            "--manifest and moment among the components",
        ),
        ({"--attack": "ratio", "--public": "few.csv"}, "public must hold at least the 40 records"),
        ({"--standardise-by": "public"}, "public must be given with --standardise-by public"),
        ({"--plot": "roc.png"}, "plot must be left out"),
        ({"--out": "s.txt"}, "out must end in .csv or .npz"),
        ({"--out": "both.csv"}, "out must be a new file"),
        ({"--n-shadows": "1"}, "n_shadows must be an integer >= 2"),
        ({"--manifest": "both.csv"}, "manifest must be one that drjax release wrote"),
        ({"--candidates": "narrow.npy"}, "narrow.npy must have 8 columns, got 3"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(files, capsys, monkeypatch, change, message):
    folder, x, _ = files
    monkeypatch.chdir(folder)
    table(folder / "few.csv", x[100:120])
    np.save(folder / "narrow.npy", x[:5, :3])
    before = sorted(path.name for path in folder.iterdir())
    given = {"--components": "r.npz", "--candidates": "both.csv", "--out": "s.csv", **change}
    words = [word for pair in given.items() if pair[1] is not None for word in pair]
    assert message in failure(capsys, *words)
    assert sorted(path.name for path in folder.iterdir()) == before
