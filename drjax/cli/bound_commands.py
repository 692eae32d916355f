"""Commands about guarantees, `drjax bound rero|epsilon|noise|tradeoff`: a table, `--json` for scripts, `--plot`."""

from __future__ import annotations

import json as json_text
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from drjax.bounds import accounting, rero, tradeoff
from drjax.bounds.accounting import Guarantee
from drjax.bounds.curve import TradeOff
from drjax.bounds.gdp import SENSITIVITY, check_positive, mu_of
from drjax.bounds.statement import Mechanism, Relation
from drjax.cli.bound_options import Prior
from drjax.core import validate
from drjax.reports import bound_plots, plots, records

DELTAS = (1e-3, 1e-5, 1e-7, 1e-9)
LEVELS = (1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.5)

_Mechanism = Annotated[Mechanism, tyro.conf.arg(name="")]
_Prior = Annotated[Prior, tyro.conf.arg(name="")]
_NONE, _USUAL = Mechanism(), Prior()


def bound_rero(
    *,
    mechanism: _Mechanism = _NONE,
    prior: _Prior = _USUAL,
    targets: int = 1,
    json: bool = False,
    plot: Path | None = None,
) -> None:
    """Bound the probability that an adversary who knows all other records reconstructs the target.

    Args:
        mechanism: What is released.
        prior: What the adversary knows of the target.
        targets: Number of unknown records to reconstruct together; kappa is then that of all of them.
        json: Print JSON instead of a table.
        plot: PNG file to write: the bound over all baselines.
    """
    found = mechanism.guarantee()
    baselines = prior.baselines()
    kappa = np.array([value for _, value in baselines])
    tight = rero.from_tradeoff(kappa, found.target_curve, n_targets=targets)
    older = _older(found.target_curve, kappa, targets)
    rows = [
        {"prior": of, "kappa": float(k), "success": float(g)} | {name: float(v[i]) for name, v in older.items()}
        for i, ((of, k), g) in enumerate(zip(baselines, tight, strict=True))
    ]
    _print(rows, _facts(found) | {"targets": targets}, is_json=json)
    if plot is not None:
        grid = np.geomspace(min(1e-6, *(float(k) for k in kappa if k > 0)), 1, 300)
        figure = bound_plots.success_over_baseline(
            {"tight bound": found.target_curve},
            marks=[float(k) for k in kappa],
            looser=_older(found.target_curve, grid, targets),
            kappa=grid,
            n_targets=targets,
        )
        _save(figure, plot, is_json=json)


def bound_epsilon(
    *,
    mechanism: _Mechanism = _NONE,
    deltas: tuple[float, ...] = DELTAS,
    json: bool = False,
    plot: Path | None = None,
) -> None:
    """Compute the epsilon of a mechanism at each delta.

    Args:
        mechanism: What is released.
        deltas: Deltas at which epsilon is computed.
        json: Print JSON instead of a table.
        plot: PNG file to write: epsilon over delta.
    """
    found = mechanism.guarantee()
    validate.probability(deltas=np.array(deltas))
    rows = [{"delta": delta, "epsilon": found.epsilon(delta)} for delta in deltas]
    _print(rows, _facts(found), is_json=json)
    if plot is not None:
        grid = np.geomspace(min(1e-12, *(d for d in deltas if d > 0)), 0.1, 60)
        _save(bound_plots.epsilon_over_delta(grid, np.array([found.epsilon(d) for d in grid])), plot, is_json=json)


def bound_noise(
    *,
    neighbouring: Relation,
    kappa: float | None = None,
    success: float | None = None,
    epsilon: float | None = None,
    delta: float = 1e-5,
    steps: int = 1,
    rate: float = 1.0,
    sensitivity: float | None = None,
    json: bool = False,
    plot: Path | None = None,
) -> None:
    """Compute the least noise that keeps reconstructions below a success rate, or reaches an epsilon.

    Args:
        neighbouring: Neighbouring relation of the guarantee: zero_out for reconstructions.
        kappa: Success probability of the best guess without the release, with --success.
        success: Success probability that is allowed, > kappa.
        epsilon: Epsilon to reach, instead of --kappa and --success.
        delta: Delta of --epsilon.
        steps: Number of training steps.
        rate: Probability that a record is in a batch; 1 for full batches.
        sensitivity: Sensitivity of a result that is released once, to print the scale of the noise on it.
        json: Print JSON instead of a table.
        plot: PNG file to write: the success rate, or epsilon, over the noise multiplier.
    """
    if (epsilon is None) == (kappa is None) or (kappa is None) != (success is None):
        raise ValueError("the goal must be --kappa with --success, or --epsilon with --delta")
    if epsilon is not None:
        noise = accounting.calibrate_dp_sgd(epsilon, delta, rate, steps, neighbouring=neighbouring)
    else:
        assert kappa is not None
        assert success is not None
        validate.probability(kappa=kappa, success=success)
        if not kappa < success < 1:
            raise ValueError(f"success must be in (kappa, 1) = ({kappa:g}, 1), got {success:g}")
        noise = rero.smallest_noise_multiplier(kappa, success, steps, neighbouring=neighbouring, rate=rate)
    rows: list[dict[str, Any]] = [{"quantity": "noise multiplier, over the clipping norm", "value": noise}]
    found = Mechanism(noise_multiplier=noise, steps=steps, rate=rate, neighbouring=neighbouring).guarantee()
    if rate == 1:
        rows.append({"quantity": "mu", "value": mu_of(noise, steps, neighbouring)})
    if sensitivity is not None:
        check_positive(sensitivity=sensitivity)
        if steps != 1 or rate != 1:
            raise ValueError("sensitivity must be left out with --steps or --rate: it is of one release")
        # The relation is in the sensitivity already, where a clipping norm leaves it to be counted.
        scale = sensitivity * noise / SENSITIVITY[neighbouring]
        rows.append({"quantity": "standard deviation of Gaussian noise", "value": scale})
        pure = epsilon if kappa is None else float(rero.largest_epsilon(kappa, success or 1.0))
        if pure:
            laplace = accounting.calibrate_laplace(pure, sensitivity)
            rows.append({"quantity": "scale of Laplace noise, if the sensitivity is in the sum norm", "value": laplace})
    for at in (delta,) if epsilon is not None else DELTAS[:2]:
        rows.append({"quantity": f"epsilon at delta {at:g}", "value": found.epsilon(at)})
    _print(rows, _facts(found), is_json=json)
    if plot is not None:
        label = f"epsilon at delta {delta:g}" if kappa is None else f"success of any reconstruction, kappa {kappa:g}"

        def value(guarantee: Guarantee) -> float:
            if kappa is None:
                return guarantee.epsilon(delta)
            return float(rero.from_tradeoff(kappa, guarantee.target_curve))

        grid = noise * np.geomspace(0.25, 4, 33)
        same = {"steps": steps, "rate": rate, "neighbouring": neighbouring}
        values = np.array([value(Mechanism(noise_multiplier=float(z), **same).guarantee()) for z in grid])
        _save(bound_plots.over_noise(grid, values, found=(noise, value(found)), label=label), plot, is_json=json)


def bound_tradeoff(
    *,
    mechanism: _Mechanism = _NONE,
    alpha: tuple[float, ...] = LEVELS,
    json: bool = False,
    plot: Path | None = None,
) -> None:
    """Bound the power of a test for the target in the data, at each false-positive rate.

    Args:
        mechanism: What is released.
        alpha: False-positive rates.
        json: Print JSON instead of a table.
        plot: PNG file to write: the curve on linear and logarithmic axes.
    """
    found = mechanism.guarantee()
    powers = found.target_curve.power(np.array(alpha))
    rows = [{"false alarms": a, "detections": float(p)} for a, p in zip(alpha, powers, strict=True)]
    _print(rows, _facts(found), is_json=json)
    if plot is not None:
        _save(bound_plots.power_over_level({"any test": found.target_curve}), plot, is_json=json)


def _older(curve: TradeOff, kappa: np.ndarray, targets: int) -> dict[str, np.ndarray]:
    """The paper's own bound, where there is one for this kind of guarantee."""
    match curve:
        case tradeoff.Gaussian():
            return {"corollary 4": rero.from_zcdp(kappa, targets**2 * curve.mu**2 / 2)}
        case tradeoff.ZCDP():
            return {"corollary 4": rero.from_zcdp(kappa, targets**2 * curve.rho)}
        case tradeoff.Laplace():
            return {"corollary 3": rero.from_pure_dp(kappa, targets * curve.mu)}
        case tradeoff.EpsilonDelta(delta=0.0):
            return {"corollary 3": rero.from_pure_dp(kappa, targets * curve.epsilon)}
    return {}


def _facts(found: Guarantee) -> dict[str, Any]:
    curve = found.target_curve
    said: dict[type, Callable[[Any], str]] = {
        tradeoff.Gaussian: lambda c: f"{c.mu:.6g}-GDP",
        tradeoff.EpsilonDelta: lambda c: f"({c.epsilon:g}, {c.delta:g})-DP" if c.delta else f"{c.epsilon:g}-DP",
        tradeoff.ZCDP: lambda c: f"{c.rho:g}-zCDP",
        tradeoff.Laplace: lambda c: f"Laplace noise of scale sensitivity / {c.mu:g}",
    }
    name = said.get(type(curve), lambda _: "a sampled Gaussian mechanism, composed")(curve)
    return {"guarantee": name, "neighbouring": curve.neighbouring or "not said", "proven": found.proven}


def _print(rows: Sequence[dict[str, Any]], facts: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print(json_text.dumps(records.to_json(facts | {"rows": list(rows)}), allow_nan=False))
        return
    print(f"{facts['guarantee']}, neighbours: {facts['neighbouring']}; {facts['proven']}.")
    heads = list(rows[0])
    cells = [heads, *([_text(row[head]) for head in heads] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "none" if math.isinf(value) else f"{value:.4g}"


def _save(figure: Any, path: Path, *, is_json: bool) -> None:
    plots.save_figure(figure, path)
    if not is_json:
        print(f"Written: {path}")
