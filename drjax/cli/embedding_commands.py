"""`drjax attack embedding`: the one unknown record of a published embedding."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Literal

import jax
import numpy as np
import tyro

from drjax import data as datasets
from drjax.attacks.embedding import Answer, attack_embedding
from drjax.attacks.registry import ATTACKS
from drjax.cli.commands import check_new
from drjax.cli.options import MethodOptions, Options, StepOptions, Steps, hinted, typed
from drjax.core import validate
from drjax.core.types import Status, count_status
from drjax.dr import METHODS, make_method
from drjax.reports import records

STRONGEST, RECOGNISED = "strongest", "recognised"

SHOWN = 0.1
"""Share of a feature's variance below which its error is said to show it."""


def _names() -> tuple[str, ...]:
    return (STRONGEST, *(name for name, attack in ATTACKS["embedding"].items() if not attack.is_baseline))


def embedding(
    known: Path,
    coords: Path,
    out: Path,
    *,
    method: Annotated[str, tyro.conf.arg(metavar=f"{{{RECOGNISED},{','.join(METHODS)}}}")] = RECOGNISED,
    options: MethodOptions = Options(),  # noqa: B008 (frozen)
    steps: StepOptions = Steps(),  # noqa: B008 (frozen)
    attack: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(_names())}}}")] = STRONGEST,
    public: Path | None = None,
    target_row: int | None = None,
    shuffled: bool = False,
    decimals: int | None = None,
    bounds: tuple[float, float] | Literal["none"] = "none",
    seed: int = 0,
    quiet: bool = False,
) -> None:
    """Reconstruct the one unknown record of a published embedding from the other records.

    Without --method the release is recognised by the known records: method, steps before it and settings. With it
    what is not stated is taken to be scikit-learn's default. Values are used as they are, not scaled.

    Args:
        known: Known records, in the order of the release unless shuffled (CSV, Parquet, NPY or NPZ).
        coords: Published coordinates, one row per record, the unknown one's included (CSV, NPY or NPZ).
        out: NPZ file to write: x (the record), residual_norm, status and, where the attack predicts them, expected_mse
            and feature_mse.
        method: DR method that made the coordinates; recognised if not given.
        options: Hyperparameters of the method.
        steps: Steps before and after the method.
        attack: Attack to run; strongest takes the one that errs least on practice releases of known records.
        public: Other records of the same kind, for what the release does not determine and for shadow releases.
        target_row: Row of the unknown record in the release, from 0; the first if not given.
        shuffled: Rows of the release are in another order than the known records: find out which is whose.
        decimals: Decimals that the coordinates are rounded to; found out if not given.
        bounds: Least and greatest value of a feature, or none.
        seed: Random seed of the shadow releases.
        quiet: Show no progress.
    """
    check_new(out)
    validate.one_of((RECOGNISED, *METHODS), method=method)
    validate.one_of(_names(), attack=attack)
    if method == RECOGNISED and (steps != Steps() or any(text is not None for text in vars(options).values())):
        raise ValueError(
            f"method must be stated with options of it and steps around it, got {RECOGNISED!r}: pass --method"
        )
    validate.integer(minimum=0, seed=seed)
    records_known, published = datasets.load_values(known), datasets.load_values(coords)
    others = None if public is None else datasets.load_values(public)
    dr_method = None
    if method != RECOGNISED:
        with hinted(method):
            dr_method = make_method(method, published.shape[1], typed(method, options), **vars(steps))
    with hinted(method) if method != RECOGNISED else contextlib.nullcontext():
        answer = attack_embedding(
            jax.random.key(seed),
            dr_method,
            records_known,
            published,
            public=others,
            target_row=target_row,
            shuffled=shuffled,
            attack=None if attack == STRONGEST else attack,
            decimals=decimals,
            bounds=None if bounds == "none" else bounds,
            progress=not quiet,
        )
    found = answer.found
    predicted = {"expected_mse": found.expected_mse, "feature_mse": found.feature_mse}
    further = {name: value for name, value in predicted.items() if value is not None}
    records.save_arrays(out, x=found.x, residual_norm=found.residual_norm, status=found.status, **further)
    print("\n".join(in_words(answer, records_known.var(axis=0))))
    print(f"Written: {out}")


def in_words(answer: Answer, variance: np.ndarray) -> list[str]:
    """What was found, and how far to rely on it.

    Args:
        answer: Answer from `attack_embedding`.
        variance: (d,), of the known records' features, which guessing their mean errs by.
    """
    found, status = answer.found, int(answer.found.status)
    unit = max(float(variance.mean()), np.finfo(np.float64).tiny)
    lines = [] if answer.belief is None else [f"Release: {line}" for line in answer.belief.in_words().splitlines()]
    if answer.order is not None and answer.belief is None:
        lines.append(f"Row of the unknown record: {answer.order[0]}, found by matching the others with known records.")
    lines.append(f"Attack: {answer.attack.label}.")
    if answer.errors:
        tried = {name: float(error.mean()) / unit for name, error in answer.errors.items()}
        shown = ", ".join(f"{ATTACKS['embedding'][name].label} {share:.2g}" for name, share in tried.items())
        n = len(next(iter(answer.errors.values())))
        lines.append(f"Mean squared error on {n} releases of known answer, in units of the records' variance: {shown}.")
    lines.append(f"Reconstructed {found.x.size} features: {', '.join(f'{v:.4g}' for v in found.x[:8])}, ...")
    is_answer = status & Status.MISFIT == 0
    if not is_answer:
        lines.append("Refused: these are not the coordinates of the known records and one more; the record is what one")
        lines.append("would guess without them. What does not fit:")
        lines += [f"  {reason}" for reason in answer.misfit]
        if answer.belief is not None and answer.belief.order is not None:
            lines.append("Pass --shuffled to have rows matched.")
        if answer.belief is None:
            lines.append("Leave out --method to have the release recognised.")
    lines.append(f"Undetermined part: norm {float(found.residual_norm):.3g}; status {count_status(found.status)}")
    if status & Status.UNCERTIFIED:
        lines.append("Nothing in the release checks this answer: it is right if the release was made just as stated.")
    if is_answer and found.feature_mse is not None:
        n_shown = int(np.sum(found.feature_mse < SHOWN * variance))
        lines.append(f"Features whose squared error is expected below {SHOWN:.0%} of their variance: {n_shown}.")
    if status & Status.PARTIAL:
        lines.append("Most of what features vary by is left open: in those the record is about what one would guess.")
    if is_answer and found.expected_mse is not None:
        share = float(found.expected_mse) / unit
        lines.append(f"Error to expect: {min(share, 1):.3g} of the records' own mean variance")
    return lines
