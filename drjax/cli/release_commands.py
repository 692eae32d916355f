"""Commands that publish with a guarantee: `drjax release pca|synthetic|map|schema`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.text import Text

from drjax.audits.folder import run_folder
from drjax.cli.commands import Positional
from drjax.cli.options import MethodOptions, Options, StepOptions, Steps, hinted, typed
from drjax.releases import PCAReleaseConfig, PCAReleaseResult, release_pca
from drjax.releases.manifest import NOT_PRIVATE
from drjax.releases.map import MapReleaseConfig, release_map
from drjax.releases.map_picture import NO_BETTER as NO_BETTER_MAP
from drjax.releases.pca_report import NO_BETTER
from drjax.releases.schema_form import write_schema
from drjax.releases.synthetic import SyntheticReleaseConfig, SyntheticReleaseResult, release_synthetic


def pca(
    config: Annotated[PCAReleaseConfig, tyro.conf.arg(name="")],
    *,
    out: Path | None = None,
    quiet: bool = False,
) -> None:
    """Publish principal components of private records with differential privacy.

    Args:
        config: What to release.
        out: Folder to write, a new one; runs/release-pca-NAME if not given, with a number behind it if that exists.
        quiet: Print errors only.
    """
    folder = out or run_folder(f"release-pca-{config.data.stem}", resume=False)
    result = release_pca(config, folder, command=_command(), progress=not quiet)
    if quiet:
        return
    for line in in_words(result):
        if line.startswith(NO_BETTER):
            _print_red(line)
        else:
            print(line)


def in_words(result: PCAReleaseResult) -> list[str]:
    """What was released, in a few lines."""
    entry = result.manifest["guarantee"]
    lines = [f"Released: {result.manifest['released']}."]
    if entry["holds"]:
        lines.append(_guarantee(entry))
    else:
        lines.insert(0, f"{NOT_PRIVATE}.")
    lines.append(f"Bounds: {'; '.join(f'{name}: {text}' for name, text in result.manifest['bounds'].items())}.")
    if result.outside:
        lines.append(f"Cells cut to their range, or no number: {result.outside:,}. Private.")
    if result.expected is None:
        lines.append(f"Expected utility and attacks: not measured, {result.not_expected}.")
    else:
        utility, membership = result.expected
        kept, attacks = utility.chosen, membership.attacks
        if utility.is_no_better_than_random:
            lines.append(f"{NO_BETTER}. Private.")
        lines.append(
            f"Expected to keep {kept.estimate:.0%} of the variance that as many components can ({kept.low:.0%} to "
            f"{kept.high:.0%}); random directions keep {utility.random:.0%}. Private."
        )
        plain, noisy = (max(a.auc for a in attacks if a.is_private == flag) for flag in (False, True))
        ceiling = "" if result.ceiling is None else f"; the guarantee allows {result.ceiling:.3f}"
        lines.append(
            f"Expected AUC of membership: {plain.estimate:.3f} without noise, {noisy.estimate:.3f} [{noisy.low:.3f}, "
            f"{noisy.high:.3f}] with it{ceiling}. Private."
        )
    return lines + _where(result.folder, result.private_folder, result.manifest)


def synthetic(
    config: Annotated[SyntheticReleaseConfig, tyro.conf.arg(name="")],
    *,
    out: Path | None = None,
    quiet: bool = False,
) -> None:
    """Publish synthetic records in the place of private ones, with differential privacy.

    Args:
        config: What to release.
        out: Folder to write, a new one; runs/release-synthetic-NAME if not given, with a number behind it if that
            exists.
        quiet: Print errors only.
    """
    folder = out or run_folder(f"release-synthetic-{config.data.stem}", resume=False)
    result = release_synthetic(config, folder, command=_command(), progress=not quiet)
    if not quiet:
        _print_table(result)
        print("\n".join(_where(result.folder, result.private_folder, result.manifest)))


def release_a_map(
    config: Annotated[MapReleaseConfig, tyro.conf.arg(name="")],
    *,
    options: MethodOptions = Options(),  # noqa: B008 (frozen)
    steps: StepOptions = Steps(),  # noqa: B008 (frozen)
    out: Path | None = None,
    quiet: bool = False,
) -> None:
    """Publish a map of synthetic records in the place of private ones, with differential privacy.

    Args:
        config: What to release.
        options: Hyperparameters of the DR method.
        steps: Steps before and after the DR method; standard before it unless given.
        out: Folder to write, a new one; runs/release-map-NAME if not given, with a number behind it if that exists.
        quiet: Print errors only.
    """
    with hinted(config.method):
        fields: dict[str, Any] = {**vars(steps), "scale": steps.scale or None}
        config = dataclasses.replace(config, options=typed(config.method, options), **fields)
    folder = out or run_folder(f"release-map-{config.data.stem}", resume=False)
    result = release_map(config, folder, command=_command(), progress=not quiet)
    if quiet:
        return
    _print_table(result.table)
    if result.coords is None:
        _print_red(f"There is no map: {result.failure}. The synthetic records are published without one.")
    elif result.picture is not None:
        print(f"{result.picture.sentence} Private.")
        if result.picture.is_no_better_than_nothing:
            _print_red(f"{NO_BETTER_MAP}. Private.")
    else:
        print(f"How good a picture of the real records the map is: not measured, {result.not_pictured}.")
    print("\n".join(_where(result.folder, result.private_folder, result.manifest)))


def _print_table(result: SyntheticReleaseResult) -> None:
    entry, rehearsed = result.manifest["guarantee"], result.rehearsed
    if not entry["holds"]:
        print(f"{NOT_PRIVATE}.")
    print(f"Released: {result.manifest['released']}.")
    for column in result.schema.columns:
        print(f"  {column}{'' if column.is_public else ' (READ OFF THE RECORDS)'}")
    for name, counts in result.outside.items():
        print(f"Cells outside what {name} may hold: {', '.join(f'{n:,} {why}' for why, n in counts.items())}. Private.")
    if entry["holds"]:
        print(_guarantee(entry))
    if rehearsed is None:
        print(f"Expected utility and attacks: not measured, {result.not_rehearsed}.")
    else:
        chosen = rehearsed.chosen
        print(
            f"Expected {rehearsed.measure}: {chosen.estimate:.3f} ({chosen.low:.3f} to {chosen.high:.3f}); real "
            f"records {rehearsed.real:.3f}, knowing nothing {rehearsed.ignorant:.3f}. Private."
        )
        print(f"{rehearsed.spread_sentence} Private.")
        if rehearsed.worse_than_nothing is not None:
            _print_red(f"{rehearsed.worse_than_nothing} Private.")
        auc = max((attack.auc for attack in rehearsed.attacks), key=lambda found: found.estimate)
        print(f"Expected AUC of membership: {auc.estimate:.3f} [{auc.low:.3f}, {auc.high:.3f}]. Private.")


def schema(
    data: Positional[Path],
    out: Path,
    *,
    schema: Path | None = None,
    target: str | None = None,
    task: Literal["classification", "regression"] | None = None,
    drop: tuple[str, ...] = (),
    public: Path | None = None,
) -> None:
    """Write a bounds file to fill in: what each column of a table may hold, as an audit reads it, for a draft.

    Args:
        data: Private records: CSV or Parquet.
        out: JSON file to write, a new one.
        schema: File that says what the columns are, which shapes the draft; see `drjax data plan`.
        target: Column to predict from the others.
        task: Kind of prediction; if not given, by what is stated of the target.
        drop: Columns to leave out.
        public: Records of the same kind that are no secret: their ranges and categories need no filling in.
    """
    found, rest = write_schema(data, out, schema=schema, target=target, task=task, drop=drop, public=public)
    for column in found.columns:
        print(column)
    print(f"Written: {out}")
    if rest:
        some = ", ".join(rest[:6]) + (f" and {len(rest) - 6} more" if len(rest) > 6 else "")
        print(
            f'To fill in: {some}. Behind "stated" write what stands behind "draft", with what is known without the '
            'records in the place of every null. "draft" and "seen" come from the records: they count for nothing and '
            "make the file private. Until every entry is stated a release refuses."
        )


def _print_red(line: str) -> None:
    Console(soft_wrap=True).print(Text(line, style="bold red"))


def _command() -> str | None:
    return shlex.join(["drjax", *sys.argv[1:]]) if Path(sys.argv[0]).stem == "drjax" else None


def _guarantee(entry: Mapping[str, Any]) -> str:
    return (
        f"Guarantee: epsilon {entry['epsilon']:.4g} at delta {entry['delta']:g}; {entry['neighbouring']}: "
        f"{entry['neighbours']}."
    )


def _where(folder: Path, private: Path, manifest: Mapping[str, Any]) -> list[str]:
    what = "Publish" if manifest["guarantee"]["holds"] else "Not private"
    names = [*manifest["files"], "manifest.json"]
    return [
        f"{what}: {', '.join(str(folder / name) for name in names)}",
        f"Keep:    {private / 'report.html'}",
    ]
