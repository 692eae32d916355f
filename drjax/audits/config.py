"""What one audit does: every choice that decides its results, and nothing else."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from drjax.attacks import matching
from drjax.attacks.reconstruction import neural
from drjax.attacks.registry import ATTACKS
from drjax.attacks.shadow import RANDOMNESS, Randomness
from drjax.core import validate
from drjax.core.types import DRMethod
from drjax.data.sources import is_named
from drjax.defenses import DEFENSES
from drjax.dr import METHODS, PCA, make_method

DTYPES = ("float32", "float64")

BOUNDS = (0.0, 1.0)
"""Features are scaled to this range when data are loaded, and the range is public."""

SWITCHES = ("n_unknown", "known_fraction", "shuffled", "assumed", "public_data", "known_features")
"""Fields that make another adversary of the informed one."""

SIZES = ("n_known", "n_shadow", "n_held", "n_validation", "n_targets")
"""Fields of the split into known, public and attacked records, which `each_record` does not make."""

RECOGNISED = "recognised"
"""Word in place of a method: how a published map was made is read off the map."""

OF_RELEASES = ("seed_known", "dtype", "n_decoys")
"""Further fields of releases that an audit makes itself: a published map leaves them nothing to decide."""

OF_METHOD = ("hyperparameters", "scale", "first_pca", "whiten")
"""Fields that say more of a method that is stated."""


def value_of(text: str) -> Any:
    """Text as a value: numbers, true, false and none as such, anything else as text."""
    try:
        return ast.literal_eval(text.capitalize() if text.isalpha() else text)
    except (ValueError, SyntaxError):
        return text


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """An audit of one method on one data set.

    Attributes:
        data: Name of a data set (`drjax data list`) or path of a table (CSV, Excel, Parquet), an NPY or NPZ file or an
            image folder.
        data_dir: Folder of the named data sets; $DRJAX_DATA or the download cache if None.
        categorical: Columns of a table that are categories, where it is not seen.
        drop: Columns of a table to leave out.
        label: Label column of a table; it is not attacked.
        schema: File that says what the columns of a table are; see `drjax data plan`. Told by their cells if None.
        id: Column of a table that records are called by; the first that tells them apart if None.
        method: Name of the DR method. If empty: PCA, or with `released` "recognised", by the records and the map.
        n_components: Number of coordinates released per record.
        hyperparameters: Other hyperparameters of the method by name; its defaults where not given.
        scale: Steps on the records before the method, in their order, of `drjax.dr.SCALES`, such as "standard".
        first_pca: Principal components that the method is given in place of the records; None for the records.
        whiten: Whether published coordinates are scaled to unit variance.
        n_known: Number of records that the adversary knows; the release has one more.
        n_shadow: Number of public records that the adversary trains on.
        n_held: Shadow releases, one of each of these records, that are kept. Regressions learn from sums over the
            others, and networks from some that are made for each epoch; other attacks do not see them. If None as many
            as 1 GiB holds the coordinates of.
        n_validation: Number of public records that training is stopped on.
        n_targets: Number of records attacked, each in a release of its own.
        seed_known: Whether the adversary knows the seed of a randomised release.
        dtype: Precision that the release is computed in.
        decimals: Decimals that the published coordinates are rounded to; unrounded if None.
        attacks: Attacks to run, in the order of the ladder. If empty: those with the least error on practice releases,
            whose records the adversary knows, among the attacks within the time that `drjax.audits.choice` allows.
            "all": every one that works on the method.
        network: Recipe of the split network, one of "fast" and "paper000".
        dense_network: Recipe of the dense network, one of "bch22-fast" and "bch22".
        defense: Defence whose cost and gain are measured beside the undefended release, or "none".
        defense_scale: Strengths of the defence, one for each point of the curve: standard deviation of the noise, or
            width of the grid; see each defence in `drjax.defenses` for the unit.
        n_decoys: Number of decoys beside the target in the identification test; fewer if there are not as many.
        seed: Seed of the split, the shadows, the training and the intervals.
        each_record: Attack every record of the data set in one release of all of them, instead of a sample of targets;
            there is no split then: leave out its sizes. One's own data are audited so unless a split, another adversary
            or a defence is asked for, on as many records as three minutes allow.
        max_records: Largest number of records attacked with `each_record`, `released` or own data, drawn at random; if
            None all, or of own data as many as three minutes allow.
        options: Whether to search for something else to publish, and attack that; needs every record attacked. If None
            where one's own records are highly exposed.
        released: Map to attack instead of one that the audit makes: CSV, Parquet, NPY or NPZ file with one row per
            record, in the order of the data. Every record is attacked, as with `each_record`.
        n_unknown: Number of released records that the adversary does not know, the target included.
        known_fraction: Share of the other n_known released records that the adversary knows.
        shuffled: Whether rows are shuffled, so that the adversary does not know which is whose (PCA and classical MDS).
        assumed: Hyperparameters that the adversary wrongly believes in, as NAME=VALUE.
        public_data: Data set or file that the adversary's public records come from; `data` itself if None.
        known_features: Features of the target that the adversary has: names, numbers from 0, or a share such as 0.5.
    """

    data: str = "digits"
    data_dir: str | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    label: str | None = None
    schema: str | None = None
    id: str | None = None
    method: str = ""
    n_components: int = 2
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    scale: tuple[str, ...] = ()
    first_pca: int | None = None
    whiten: bool = False
    n_known: int = 199
    n_shadow: int = 1000
    n_held: int | None = None
    n_validation: int = 150
    n_targets: int = 400
    seed_known: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    decimals: int | None = None
    attacks: tuple[str, ...] = ()
    network: str = "fast"
    dense_network: str = "bch22-fast"
    defense: str = "none"
    defense_scale: tuple[float, ...] = ()
    n_decoys: int = 1000
    seed: int = 0
    each_record: bool = False
    max_records: int | None = None
    options: bool | None = None
    released: str | None = None
    n_unknown: int = 1
    known_fraction: float = 1.0
    shuffled: bool = False
    assumed: tuple[str, ...] = ()
    public_data: str | None = None
    known_features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        is_released = self.released is not None
        if not self.method:
            object.__setattr__(self, "method", RECOGNISED if is_released else PCA.name)
        validate.one_of((*METHODS, RECOGNISED) if is_released else METHODS, method=self.method)
        validate.one_of(DTYPES, dtype=self.dtype)
        validate.integer(n_components=self.n_components, n_known=self.n_known, n_targets=self.n_targets)
        validate.integer(minimum=2, n_shadow=self.n_shadow)
        if self.n_held is not None:
            validate.integer(minimum=2, n_held=self.n_held)
            validate.at_most(self.n_shadow, "n_shadow", n_held=self.n_held)
        validate.integer(n_validation=self.n_validation, n_decoys=self.n_decoys)
        validate.integer(minimum=0, seed=self.seed)
        if self.decimals is not None:
            validate.integer(minimum=0, decimals=self.decimals)
        if self.max_records is not None:
            validate.integer(max_records=self.max_records)
            if not self.attacks_each:
                raise ValueError(
                    f"max_records must be left out without each_record, released or own data, got {self.max_records}"
                )
        validate.one_of(neural.RECIPES, network=self.network, dense_network=self.dense_network)
        self._check_defense()
        if is_released:
            self._check_released()
        if self.options and not self.attacks_each:
            raise ValueError(
                "options must be left out where a sample of targets is attacked, got True: pass each_record, or "
                "defense and its scales"
            )
        if self.method != RECOGNISED:
            _ = self.dr_method  # checks the hyperparameters
            self._check_adversary()

    def _check_released(self) -> None:
        defaults = {entry.name: entry.default for entry in fields(self)}

        def refuse(names: tuple[str, ...], why: str) -> None:
            for name in names:
                value = getattr(self, name)
                if value != ({} if name == "hyperparameters" else defaults[name]):
                    raise ValueError(f"{name} must be left out {why}, got {value}")

        refuse(SIZES, "with released, a map of all records (max_records attacks fewer of them)")
        refuse((*SWITCHES, *OF_RELEASES, "defense", "each_record"), "with released, a map that is already made")
        if self.method == RECOGNISED:
            refuse(OF_METHOD, "where the method is recognised (with released and without method)")

    def _check_adversary(self) -> None:
        validate.integer(n_unknown=self.n_unknown)
        validate.positive(known_fraction=self.known_fraction)
        validate.at_most(1, known_fraction=self.known_fraction)
        if self.n_unknown > 1 and self.known_fraction < 1:
            raise ValueError(f"known_fraction must be left out with n_unknown, got {self.known_fraction}")
        if self.n_held is not None and self.keeps_shadows:
            raise ValueError(
                f"n_held must be left out with a defense, seed_known, n_unknown or known_fraction, got {self.n_held}"
            )
        if self.n_known - self.n_hidden < 2:
            raise ValueError(f"n_unknown and known_fraction must leave 2 known records, got {self.n_hidden} hidden")
        if self.n_hidden and (self.shuffled or self.known_features):
            raise ValueError(f"shuffled and known_features need n_unknown to be 1, got {self.n_hidden + 1} unknown")
        if self.shuffled and not matching.can_match(self.dr_method):
            names = [name for name, kind in METHODS.items() if matching.can_match(kind())]
            raise ValueError(
                f"shuffled must be left out for method {self.method!r}: rows are matched for {' and '.join(names)}"
            )
        names = {entry.name for entry in fields(METHODS[self.method])} - {"n_components"}
        for name in self.assumed_options:
            if name not in names:
                has = ", ".join(sorted(names)) or "none"
                raise ValueError(f"assumed must name hyperparameters of {self.method!r} ({has}), got {name!r}")
        _ = self.believed.dr_method
        defaults = {entry.name: entry.default for entry in fields(self)}
        given = [name for name in SWITCHES if getattr(self, name) != defaults[name]]
        if self.defense != "none" and (given or self.each_record):
            beside = (["each_record"] if self.each_record else given)[0]
            raise ValueError(f"{beside} must be left out with a defense, got {getattr(self, beside)}")
        if self.each_record:
            given += [name for name in SIZES if getattr(self, name) != defaults[name]]
        if self.each_record and given:
            raise ValueError(f"{given[0]} must be left out with each_record, got {getattr(self, given[0])}")

    @property
    def run_name(self) -> str:
        """Name of the folder that a run is written to, unless told otherwise."""
        if self.released is not None:
            return f"{Path(self.data).stem}-released-{Path(self.released).stem}"
        return f"{Path(self.data).stem}-{self.method}-{'each' if self.attacks_each else f'n{self.n_known + 1}'}"

    @property
    def attacks_each(self) -> bool:
        """Whether every record of one release is attacked, not a sample of targets in releases of their own."""
        return self.each_record or self.released is not None or self.is_own_release

    @property
    def is_own_release(self) -> bool:
        """Whether the data are somebody's own and no other setting is asked for: all of them are the release then."""
        others = (*SIZES, *SWITCHES, "seed_known", "n_decoys", "defense", "released")
        defaults = {entry.name: entry.default for entry in fields(self)}
        is_usual = all(getattr(self, name) == defaults[name] for name in others)
        attacks = ATTACKS["embedding"]
        is_each = all(name in attacks and attacks[name].each for name in self.attacks)
        return is_usual and is_each and not is_named(self.data)

    @property
    def keeps_shadows(self) -> bool:
        """Whether all shadow releases are kept: attacks there need every one."""
        return bool(self.n_hidden or self.seed_known or self.defense != "none")

    @property
    def n_hidden(self) -> int:
        """Released records, the target aside, that the adversary does not know."""
        return self.n_unknown - 1 + self.n_known - round(self.known_fraction * self.n_known)

    @property
    def assumed_options(self) -> dict[str, Any]:
        """`assumed` as values: numbers, true, false and none as such, anything else as text."""
        found = {}
        for text in self.assumed:
            name, is_given, value = text.partition("=")
            if not (name and is_given and value):
                raise ValueError(f"assumed must be NAME=VALUE, got {text!r}")
            found[name.replace("-", "_")] = value_of(value)
        return found

    @property
    def believed(self) -> AuditConfig:
        """The configuration as the adversary believes it to be."""
        if not self.assumed:
            return self
        return replace(self, hyperparameters={**self.hyperparameters, **self.assumed_options}, assumed=())

    def _check_defense(self) -> None:
        validate.one_of(("none", *DEFENSES), defense=self.defense)
        if self.defense == "none":
            if self.defense_scale:
                raise ValueError(f"defense_scale must be left out without a defense, got {self.defense_scale}")
            return
        scales = self.defense_scale
        if not scales or len(set(scales)) < len(scales) or not all(0 < scale < math.inf for scale in scales):
            raise ValueError(
                f"defense_scale must be one or more different finite numbers > 0 with defense {self.defense!r} "
                f"(0 is always included), got {scales}"
            )
        # Half of these choose the attack, the others stay with it.
        validate.integer(minimum=4, **{"n_validation with a defense": self.n_validation})

    @property
    def dr_method(self) -> DRMethod:
        """The method with its hyperparameters.

        Raises:
            ValueError: it is not stated, but to be recognised.
        """
        steps: Any = {"scale": self.scale, "first_pca": self.first_pca, "whiten": self.whiten}
        return make_method(self.method, self.n_components, self.hyperparameters, **steps)

    @property
    def randomness(self) -> Randomness:
        """What the shadows share."""
        return RANDOMNESS[1] if self.seed_known else RANDOMNESS[0]
