"""`drjax attack embedding`: the unknown records of a published embedding."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro

from drjax import data as datasets
from drjax.attacks.answer import Answer
from drjax.attacks.embedding import attack_embedding, attack_rows
from drjax.attacks.recognition.agreement import SEARCHED, Stated
from drjax.attacks.registry import ATTACKS
from drjax.cli.commands import check_new
from drjax.cli.options import MethodOptions, Options, StepOptions, Steps, hinted, typed
from drjax.core import validate
from drjax.data.given_map import read_map
from drjax.dr import METHODS, make_method
from drjax.reports import answer_page, page, records

STRONGEST, RECOGNISED, AUTO = "strongest", "recognised", "auto"


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
    angle: float | None = None,
    release_seed: int | None = None,
    attack: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(_names())}}}")] = STRONGEST,
    public: Path | None = None,
    target_row: tuple[int, ...] = (),
    known_features: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE...")] = (),
    shuffled: bool = False,
    decimals: int | None = None,
    bounds: tuple[float, float] | Literal["none"] = "none",
    schema: Path | None = None,
    seed: int = 0,
    quiet: bool = False,
) -> None:
    """Reconstruct the unknown records of a published embedding from the other records.

    Without --method the release is recognised by the known records: method, steps before it and settings. With it what
    is not stated of that method is recognised, and what is stated is compared with the map. Values are used as they
    are, not scaled. Without --public the known records say what to expect of a record.

    Args:
        known: Known records, in the order of the release unless shuffled (CSV, Excel, Parquet, NPY or NPZ).
        coords: Published coordinates, one row per record, those of unknown ones included (CSV, NPY or NPZ).
        out: NPZ file to write: x (the record), interval (90%), residual_norm, status, expected_mse and feature_mse; one
            row of each for each of several target rows. A JSON file and an HTML page of its name are written beside it.
        method: DR method that made the coordinates; recognised if not given.
        options: Hyperparameters of the method; auto for a perplexity, number of neighbours or metric is as if not
            given.
        steps: Steps before and after the method.
        angle: Opening angle of the Barnes-Hut algorithm that made a map of t-SNE (theta in some libraries), to be
            compared with the map.
        release_seed: Seed that drjax embed was given, where it is known: compared with the map, and of use where the
            method draws and does not descend.
        attack: Attack to run; strongest takes the one that errs least on practice releases of known records.
        public: Other records of the same kind, for what the release does not determine, for shadow releases and to
            check the intervals on.
        target_row: Row of the unknown record in the release, from 0; the first if not given. Several rows are attacked
            one by one, and need --method.
        known_features: Features of the unknown record that the adversary has, by the names of the columns or by their
            numbers from 0; needs --public.
        shuffled: Rows of the release are in another order than the known records: find out which is whose.
        decimals: Decimals that the coordinates are rounded to; found out if not given.
        bounds: Least and greatest value of every feature, as of pixels, which then count in one unit; or none.
        schema: File that says what the columns of known and public are; see `drjax data plan`.
        seed: Random seed of the shadow releases.
        quiet: Show no progress.
    """
    files = [out, *(out.with_suffix(suffix) for suffix in (".json", ".html"))]
    for file in files:
        check_new(file)
    validate.one_of((RECOGNISED, *METHODS), method=method)
    validate.one_of(_names(), attack=attack)
    is_stated = steps != Steps() or any(value is not None for value in (angle, release_seed, *vars(options).values()))
    if method == RECOGNISED and is_stated:
        raise ValueError(
            f"method must be stated with options of it, steps around it or its seed, got {RECOGNISED!r}: pass --method"
        )
    validate.integer(minimum=0, seed=seed)
    published, notes = read_map(coords, argument="coords")
    if not quiet:
        print(*notes, sep="\n", end="\n" if notes else "")
    records_known, others = _records(known, public, schema, quiet=quiet)
    rest = {
        "public": None if others is None else others.x,
        "attack": None if attack == STRONGEST else attack,
        "decimals": decimals,
        "bounds": None if bounds == "none" else bounds,
        "names": records_known.names,
        "progress": not quiet,
    }
    with hinted(method) if method != RECOGNISED else contextlib.nullcontext():
        stated = None
        if method != RECOGNISED:
            stated = _stated(method, published.shape[1], options, steps, angle=angle, seed=release_seed)
        key = jax.random.key(seed)
        if len(target_row) > 1:
            if stated is None or shuffled or known_features:
                raise ValueError(
                    "target_row must be one row without --method, with --shuffled or --known-features, got "
                    f"{len(target_row)}: attack several rows with --method alone"
                )
            answers = attack_rows(key, stated, records_known.x, published, target_rows=target_row, **rest)
        else:
            one = attack_embedding(
                key,
                stated,
                records_known.x,
                published,
                target_row=target_row[0] if target_row else None,
                shuffled=shuffled,
                known_features=_features(known_features, records_known) if known_features else None,
                **rest,
            )
            answers = (one,)
    _write(files, answers, records_known)
    for answer in answers:
        if len(answers) > 1:
            print(f"Row {answer.row}")
        print("\n".join(answer.in_words()))
    print(f"Written: {', '.join(str(file) for file in files)}")


def _records(
    known: Path, public: Path | None, schema: Path | None, *, quiet: bool
) -> tuple[datasets.Values, datasets.Values | None]:
    """The known and the public records, read by one plan, which is printed."""
    (records_known, *more), plan = datasets.records_of(known, *([] if public is None else [public]), schema=schema)
    others = more[0] if more else None
    if plan is not None and not quiet:
        print(plan.in_words(known))
    if others is not None and others.names != records_known.names:
        raise ValueError(
            f"public must have the columns of known in their order, got {_columns(others.names)} in {public} and "
            f"{_columns(records_known.names)} in {known}"
        )
    return records_known, others


def _columns(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "an array without names"


def _stated(method: str, n_components: int, options: Any, steps: Steps, **rest: Any) -> Stated:
    """What the command line says of how the map was made."""
    values = vars(options)
    left_open = {name for name in SEARCHED if values.get(name) == AUTO}
    given = type(options)(**{name: None if name in left_open else text for name, text in values.items()})
    hyperparameters = typed(method, given)
    made = make_method(method, n_components, hyperparameters, **vars(steps))
    return Stated(made, frozenset(hyperparameters), has_steps=steps != Steps(), **rest)


def _features(words: Sequence[str], known: datasets.Values) -> np.ndarray:
    """(d,) values of the words NAME=VALUE, nan for the other features.

    Raises:
        ValueError: a word of another form, or of no feature.
    """
    d = known.x.shape[1]
    features = np.full(d, np.nan)
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            column = known.names.index(name) if name in known.names else int(name)
            value = float(text)
        except ValueError:
            column, value = d, np.nan
        if not (0 <= column < d and np.isfinite(value)):
            raise ValueError(
                f"known_features must be NAME=VALUE with a column ({_columns(known.names)}) or a number from 0 to "
                f"{d - 1}, and a finite value, got {word!r}"
            )
        features[column] = value
    return features


def _write(files: Sequence[Path], answers: Sequence[Answer], known: datasets.Values) -> None:
    out, facts_file, page_file = files
    is_single = len(answers) == 1
    names = ("x", "interval", "residual_norm", "status", "expected_mse", "feature_mse")
    found = {name: [getattr(answer.found, name) for answer in answers] for name in names}
    kept = {name: values for name, values in found.items() if all(one is not None for one in values)}
    arrays = {name: np.asarray(values[0]) if is_single else np.stack(values) for name, values in kept.items()}
    rows = {} if is_single else {"rows": np.array([answer.row for answer in answers])}
    records.save_arrays(out, **arrays, **rows)
    facts = [answer.facts() for answer in answers]
    whole = facts[0] if is_single else {"rows": facts}
    records.atomic_write_text(facts_file, json.dumps(records.to_json(whole), indent=1, ensure_ascii=False) + "\n")
    usual = answers[0].usual
    page.write(
        answer_page.report(facts, usual=usual, range_of=(known.x.min(), known.x.max()), shape=known.shape), page_file
    )
