import functools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drjax.bounds import accounting, prior, rero, tradeoff
from drjax.cli import main

ROOT = Path(__file__).parents[2]


def result(capsys, *arguments):
    main(["bound", *arguments, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.figures
def test_rero_is_the_library(capsys, tmp_path):
    plot = tmp_path / "bound.png"
    found = result(
        capsys, "rero", "--noise-multiplier", "30", "--steps", "100", "--neighbouring", "zero_out", "--plot", str(plot)
    )
    kappa = np.array([row["kappa"] for row in found["rows"]])
    curve = accounting.dp_gd(30, 100, neighbouring="zero_out").target_curve
    np.testing.assert_array_equal([row["success"] for row in found["rows"]], rero.from_tradeoff(kappa, curve))
    np.testing.assert_array_equal([row["corollary 4"] for row in found["rows"]], rero.from_zcdp(kappa, 1 / 18))
    assert found["neighbouring"] == "zero_out"
    with Image.open(plot) as image:
        assert min(image.size) > 300


@pytest.mark.parametrize(
    ("options", "make_curve"),
    [
        (("--mu", "1.5"), functools.partial(tradeoff.Gaussian, 1.5)),
        (("--epsilon", "1.5"), functools.partial(tradeoff.EpsilonDelta, 1.5)),
        (("--epsilon", "1.5", "--delta", "1e-3"), functools.partial(tradeoff.EpsilonDelta, 1.5, 1e-3)),
        (("--rho", "0.5"), functools.partial(tradeoff.ZCDP, 0.5)),
        (("--laplace", "2"), functools.partial(tradeoff.Laplace, 2.0)),
        (
            ("--noise-multiplier", "1", "--steps", "20", "--rate", "0.1", "--neighbouring", "zero_out"),
            functools.partial(tradeoff.subsampled_gaussian, 1.0, 0.1, 20, neighbouring="zero_out"),
        ),
        (
            ("--noise-multiplier", "2", "--steps", "4", "--shuffled", "--neighbouring", "replace_one"),
            functools.partial(tradeoff.Gaussian, 2.0),
        ),
    ],
)
def test_every_mechanism(capsys, options, make_curve):
    curve = make_curve()
    found = result(capsys, "tradeoff", *options, "--alpha", "0.001", "0.2")
    np.testing.assert_array_equal([row["detections"] for row in found["rows"]], curve.power([0.001, 0.2]))


def test_every_prior(capsys, tmp_path):
    def kappas(*options):
        return [row["kappa"] for row in result(capsys, "rero", "--mu", "1", *options)["rows"]]

    assert kappas("--kappa", "0.2", "0.3") == [0.2, 0.3]
    assert kappas("--candidates", "8") == [0.125]
    eta = np.sqrt(10 * 0.04)
    ball = kappas("--mse", "0.04", "--dimension", "10", "--radius", "2")
    assert ball == [float(prior.kappa_uniform_ball(eta, 10, radius=2.0))]
    gaussian = kappas("--mse", "0.04", "--dimension", "10", "--sigma", "0.3")
    assert gaussian == [float(prior.kappa_gaussian(eta, 10, 0.3))]
    samples = np.random.default_rng(0).uniform(0, 1, (500, 5, 2))
    np.save(tmp_path / "samples.npy", samples)
    empirical = kappas("--mse", "0.04", "--samples", str(tmp_path / "samples.npy"))
    found = prior.kappa_empirical(samples.reshape(500, 10), eta)
    assert empirical == [found.kappa, found.upper_of_all]


def test_epsilon_and_noise_are_inverse(capsys):
    found = result(
        capsys, "noise", "--neighbouring", "replace_one", "--epsilon", "2", "--delta", "1e-6", "--steps", "30"
    )
    noise = found["rows"][0]["value"]
    back = result(
        capsys,
        *("epsilon", "--noise-multiplier", repr(noise), "--steps", "30", "--neighbouring", "replace_one"),
        *("--deltas", "1e-6"),
    )
    assert back["rows"][0]["epsilon"] == pytest.approx(2.0, rel=1e-6)
    found = result(capsys, "noise", "--neighbouring", "zero_out", "--kappa", "0.01", "--success", "0.05")
    curve = tradeoff.Gaussian(1 / found["rows"][0]["value"])
    assert float(rero.from_tradeoff(0.01, curve)) == pytest.approx(0.05, rel=1e-6)


def test_scales_of_noise_on_one_result(capsys):
    for neighbouring in ("zero_out", "replace_one"):
        options = ("--neighbouring", neighbouring, "--epsilon", "1", "--delta", "1e-5", "--sensitivity", "3")
        values = {row["quantity"]: row["value"] for row in result(capsys, "noise", *options)["rows"]}
        assert values["standard deviation of Gaussian noise"] == pytest.approx(
            accounting.calibrate_gaussian(1.0, 1e-5, 3.0), rel=1e-9
        )
        laplace = next(value for name, value in values.items() if name.startswith("scale of Laplace noise"))
        assert laplace == pytest.approx(3.0)


@pytest.mark.figures
@pytest.mark.parametrize(
    "arguments",
    [
        ("epsilon", "--mu", "1"),
        ("noise", "--neighbouring", "zero_out", "--kappa", "0.01", "--success", "0.05"),
        ("noise", "--neighbouring", "zero_out", "--epsilon", "1"),
        ("tradeoff", "--rho", "0.5"),
    ],
)
def test_every_command_draws(capsys, tmp_path, arguments):
    plot = tmp_path / "plot.png"
    main(["bound", *arguments, "--plot", str(plot)])
    assert capsys.readouterr().out.splitlines()[-1] == f"Written: {plot}"
    with Image.open(plot) as image:
        assert len(image.convert("L").getcolors()) > 10


@pytest.mark.figures
def test_the_figure_of_the_pages_is_what_the_command_draws(tmp_path):
    main(["bound", "rero", "--mu", "1", "--plot", str(tmp_path / "bound.svg")])
    files = tmp_path / "bound.svg", ROOT / "docs" / "images" / "bound-rero.svg"
    drawn, committed = (file.read_text(encoding="utf-8") for file in files)
    words, curves = re.compile(r">([^<>]+)</text>"), re.compile(r'<path d="([^"]*)" clip-path')
    assert words.findall(drawn) == words.findall(committed)
    for now, then in zip(curves.findall(drawn), curves.findall(committed), strict=True):
        points = [np.array(re.findall(r"-?[0-9.]+", path), float) for path in (now, then)]
        # Points; versions of matplotlib lay the axes out a little differently.
        np.testing.assert_allclose(*points, atol=1.0)


def test_the_table(capsys):
    main(["bound", "epsilon", "--epsilon", "1", "--delta", "0.01", "--deltas", "0.5", "0.001"])
    assert capsys.readouterr().out.splitlines() == [
        "(1, 0.01)-DP, neighbours: not said; as claimed: whether the mechanism has this guarantee is not checked.",
        "delta  epsilon",
        "0.5    0",
        "0.001  none",
    ]


def test_a_missing_package_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(SystemExit) as stop:
        main(["bound", "epsilon", "--noise-multiplier", "1", "--rate", "0.5", "--neighbouring", "zero_out"])
    assert stop.value.code == 2
    assert "pip install 'drjax[dp]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rero",), "the mechanism must be one of --noise-multiplier, --mu, --epsilon, --rho, --laplace; got none"),
        (("rero", "--mu", "1", "--rho", "1"), "got mu and rho"),
        (("rero", "--mu", "nan"), "mu must be a finite number >= 0, got nan"),
        (("rero", "--mu", "1", "--kappa", "2"), "kappa must be in [0, 1], got 2.0"),
        (("rero", "--mu", "1", "--targets", "0"), "n_targets must be an integer >= 1, got 0"),
        (("rero", "--mu", "1", "--kappa", "0.1", "--candidates", "5"), "the prior must be one of"),
        (("rero", "--mu", "1", "--dimension", "5"), "mse must be given with --dimension"),
        (("rero", "--mu", "1", "--mse", "0.1", "--dimension", "5"), "mse must come with --samples"),
        (("rero", "--mu", "1", "--mse", "-1", "--dimension", "5", "--sigma", "1"), "mse must be >= 0, got -1"),
        (("rero", "--mu", "1", "--mse", "0.1", "--samples", "nowhere.npy"), "nowhere.npy"),
        (("rero", "--mu", "1", "--delta", "0.1"), "delta must be left out without --epsilon"),
        (("rero", "--mu", "1", "--steps", "3"), "steps, rate and shuffled must be left out with --mu"),
        (("epsilon", "--noise-multiplier", "1"), "neighbouring must be given with --noise-multiplier"),
        (("epsilon", "--noise-multiplier", "0", "--neighbouring", "zero_out"), "noise_multiplier must be"),
        (("epsilon", "--mu", "1", "--deltas", "2"), "deltas must be in [0, 1], got 2.0"),
        (("noise", "--neighbouring", "zero_out"), "the goal must be"),
        (
            ("noise", "--neighbouring", "zero_out", "--kappa", "0.1", "--success", "0.1"),
            "success must be in (kappa, 1)",
        ),
        (("noise", "--neighbouring", "zero_out", "--epsilon", "0"), "epsilon must be a finite number > 0, got 0"),
        (
            ("noise", "--neighbouring", "zero_out", "--epsilon", "1", "--sensitivity", "0"),
            "sensitivity must be a finite number > 0, got 0",
        ),
        (("tradeoff", "--mu", "1", "--alpha", "-1"), "alpha must be in [0, 1], got -1.0"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main(["bound", *arguments])
    assert stop.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
