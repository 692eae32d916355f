"""Figures in the sentences of docs/models, from committed rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench import tables
from bench.part_tables import MODELS
from experiments.cells import Line
from experiments.informed_adversary import pages as informed
from experiments.markdown import Figures
from experiments.pages.models import N_TARGETS
from experiments.pages.models_cells import RELU_RATES, ROUNDINGS
from experiments.pages.report import line_of, lines

figures = Figures()


@figures
def audit_time() -> Sequence[float]:
    """Processor time of the audit of ten networks."""
    return (line_of("models", "digits")["processor_s"],)


@figures
def membership_game(n: str) -> Sequence[float]:
    """Share of games that are won at n records, with its interval."""
    accuracy = line_of("membership-game", n)["accuracy"]
    return accuracy["estimate"], accuracy["low"], accuracy["high"]


@figures
def erm_time() -> Sequence[float]:
    """Processor time a target of searches for records of a network at rest."""
    return (line_of("erm", "0")["processor_s"] / N_TARGETS,)


@figures
def rounding() -> Sequence[float]:
    """Error of the record from weights saved in float32 and float16."""
    return [line_of("rounding", dtype)["mse"] for dtype in ROUNDINGS]


@figures
def glm_ratios() -> Sequence[float]:
    """Quantiles at 0.5, 0.9 and 0.95 of the actual over the expected error of regressions, where OK."""
    ratios = [ratio for (table, _), line in lines().items() if table == "glm-grid" for ratio in line["ratios"]]
    return np.quantile(ratios, (0.5, 0.9, 0.95)).tolist()


@figures
def misfit_of_a_rate() -> Sequence[float]:
    """The largest misfit with a learning rate that is off by 5%."""
    return (max(line_of("mistakes", "rate-5%")["residual_norms"]),)


@figures
def mean_of_mistakes() -> Sequence[float]:
    """Error of the mean record where adversaries are mistaken."""
    return (line_of("mistakes", "right")["mean_error"],)


@figures
def relu() -> Sequence[float]:
    """Of networks with ReLU: their number; the least and largest ratio of actual and expected error; the largest error
    where OK; how many are refused, of how many.
    """
    cells = [line_of("relu", f"{rate:g}") for rate in RELU_RATES]
    errors, expected, is_ok = (np.concatenate([c[name] for c in cells]) for name in ("errors", "expected", "is_ok"))
    is_ok = is_ok.astype(bool)
    ratio = errors / expected
    return len(errors), ratio.min(), ratio.max(), errors[is_ok].max(), np.sum(~is_ok), len(errors)


@figures
def guess() -> Sequence[float]:
    """The radius of success, what guesses reach, what no guess has more than, and the confidence of that."""
    line = line_of("bound", "kappa")
    return tuple(line[name] for name in ("radius", "kappa", "upper_of_all", "confidence"))


@figures
def guess_in_short() -> Sequence[float]:
    """What no guess has more than, what guesses reach, and the former."""
    line = line_of("bound", "kappa")
    return line["upper_of_all"], line["kappa"], line["upper_of_all"]


def _paper_004(factor: str, setting: str, attack: str) -> Line:
    own = [
        line
        for line in informed.committed()[1:]
        if (line["factor"], line["setting"], line["attack"]) == (factor, setting, attack)
    ]
    if len(own) != 1:
        raise LookupError(f"results must hold {factor}/{setting}/{attack} once, got {len(own)} lines")
    return own[0]


def _mse(line: Line) -> dict[str, Any]:
    return line["scores"]["mse"]


@figures
def beside_noise() -> Sequence[float]:
    """Errors under DP-GD of the mean record, of inversion at mu = 30 and of the nearest neighbour; accuracy without."""
    found = [_mse(_paper_004("privacy", "mu 30", attack))["estimate"] for attack in ("mean", "inversion", "nearest")]
    return *found, _paper_004("default", "default", "mean")["accuracy"]


def _seconds(line: Line) -> float:
    return line["scores"]["seconds_per_target"] * line["scores"]["n_targets"]


@figures
def fast_of_5000() -> Sequence[float]:
    """Seconds of the fast recipe with 5,000 shadow models."""
    return (_seconds(_paper_004("shadows", "5000 shadows", "fast")),)


@figures
def fast_of_20000() -> Sequence[float]:
    """Error with its interval of the fast recipe, error of the nearest neighbour, share closer than it, and seconds."""
    line, nearest = (_paper_004("shadows", "20000 shadows", attack) for attack in ("fast", "nearest"))
    error = (_mse(line)[end] for end in ("estimate", "low", "high"))
    return *error, _mse(nearest)["estimate"], line["scores"]["success"]["estimate"], _seconds(line)


@figures
def shadow_cnns() -> Sequence[float]:
    """Errors on CNNs of CIFAR-10 of the fast recipe and of the nearest neighbour, and the share closer than it."""
    line, nearest = (_paper_004("cifar10", "CNN", attack) for attack in ("cifar10-fast", "nearest"))
    return _mse(line)["estimate"], _mse(nearest)["estimate"], line["scores"]["success"]["estimate"]


def _engine(device: str, name: str, n: int) -> tables.Row:
    rows = [r for r in tables.rows_of(MODELS) if (r["device_kind"] == "cpu") == (device == "cpu")]
    return tables.newest(rows, name=name, n=n, data="mnist")


@figures
def limit_of_products() -> Sequence[float]:
    """Active pixels, ms of their products at the GEMM's speed, the loop's ms over that and over ours, and µs a step of
    ours and of the products.
    """
    ours, loop = (_engine("cpu", name, 1000) for name in ("drjax", "loop"))
    active = ours["active_features"]
    ms = ours["ms_per_model"] * ours["gemm_share"] * active / ours["d"]
    steps = ours["epochs"] / 1000
    return (
        active,
        ms,
        loop["ms_per_model"] / ms,
        loop["ms_per_model"] / ours["ms_per_model"],
        ours["ms_per_model"] / steps,
        ms / steps,
    )


@figures
def blocks() -> Sequence[float]:
    """ms a model at 10,000 records without blocks and with them."""
    rows = [r for r in tables.rows_of(MODELS) if (r["name"], r.get("n"), r["device_kind"]) == ("drjax", 10_000, "cpu")]
    first, last = min(rows, key=lambda r: r["utc"]), max(rows, key=lambda r: r["utc"])
    return first["ms_per_model"], last["ms_per_model"]


@figures
def card() -> Sequence[float]:
    """TFLOP/s of products on a card, and seconds of compiling."""
    ours = _engine("card", "drjax", 1000)
    return ours["gflop_per_s"] / ours["gemm_share"] / 1000, ours["compile_s"]


@figures
def models_of_a_card() -> Sequence[float]:
    """Seconds of 10,000 models on a card at both numbers of records, and of those that were trained."""
    both = [_engine("card", "drjax", n) for n in (1000, 10_000)]
    return [10 * row["ms_per_model"] for row in both] + [row["run_s"] for row in both]
