"""What one audit does: every choice that decides its results, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from drjax.attacks.reconstruction import neural
from drjax.attacks.shadow import RANDOMNESS, Randomness
from drjax.core import validate
from drjax.core.types import DRMethod
from drjax.dr import METHODS

DTYPES = ("float32", "float64")


@dataclass(frozen=True, kw_only=True)
class AuditConfig:
    """An audit of one method on one data set.

    Attributes:
        data: Name of a data set (`drjax data list`) or path of a CSV, Parquet, NPY, NPZ file or an image folder.
        data_dir: Folder of the named data sets; $DRJAX_DATA or the download cache if None.
        categorical: Text columns of a table to encode one-hot.
        drop: Columns of a table to leave out.
        label: Label column of a table; it is not attacked.
        method: Name of the DR method.
        n_components: Coordinates released per record.
        options: Other hyperparameters of the method by name; its defaults where not given.
        n_known: Records that the adversary knows; the release has one more.
        n_shadow: Public records that the adversary trains on.
        n_validation: Public records that training is stopped on.
        n_targets: Records attacked, each in a release of its own.
        seed_known: The adversary knows the seed of a randomised release.
        dtype: What the release is computed in.
        decimals: Decimals that the published coordinates are rounded to; unrounded if None.
        attacks: Attacks to run, in the order of the ladder; all that fit the method if empty.
        network: Recipe of the split network, one of "fast" and "paper000".
        dense_network: Recipe of the dense network, one of "bch22-fast" and "bch22".
        n_decoys: Records in the line-up of the identification test beside the target; fewer if there are not as many.
        seed: Of the split, the shadows, the training and the intervals.
        each_record: Attack every record of the data set in one release of all of them, instead of a sample of targets;
            the sizes of the split do not count then.
        max_records: Attack at most so many records, drawn at random, with `each_record`; all if None.
    """

    data: str = "digits"
    data_dir: str | None = None
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    label: str | None = None
    method: str = "pca"
    n_components: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)
    n_known: int = 199
    n_shadow: int = 1000
    n_validation: int = 150
    n_targets: int = 400
    seed_known: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    decimals: int | None = None
    attacks: tuple[str, ...] = ()
    network: str = "fast"
    dense_network: str = "bch22-fast"
    n_decoys: int = 1000
    seed: int = 0
    each_record: bool = False
    max_records: int | None = None

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        validate.one_of(METHODS, method=self.method)
        validate.one_of(DTYPES, dtype=self.dtype)
        validate.integer(n_components=self.n_components, n_known=self.n_known, n_targets=self.n_targets)
        validate.integer(minimum=2, n_shadow=self.n_shadow)
        validate.integer(n_validation=self.n_validation, n_decoys=self.n_decoys)
        validate.integer(minimum=0, seed=self.seed)
        if self.decimals is not None:
            validate.integer(minimum=0, decimals=self.decimals)
        if self.max_records is not None:
            validate.integer(max_records=self.max_records)
            if not self.each_record:
                raise ValueError(f"max_records must be left out without each_record, got {self.max_records}")
        validate.one_of(neural.RECIPES, network=self.network, dense_network=self.dense_network)
        names = {entry.name for entry in fields(METHODS[self.method])} - {"n_components"}
        if not self.options.keys() <= names:
            raise ValueError(
                f"options must be among {sorted(names)} for method {self.method!r}, got {sorted(self.options)}"
            )
        _ = self.dr_method  # checks their values

    @property
    def dr_method(self) -> DRMethod:
        """The method with its hyperparameters."""
        return METHODS[self.method](n_components=self.n_components, **self.options)

    @property
    def randomness(self) -> Randomness:
        """What the shadows share."""
        return RANDOMNESS[1] if self.seed_known else RANDOMNESS[0]
