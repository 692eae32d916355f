"""Private releases, and what their guarantees bound."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drjax.bounds import rero
from drjax.bounds.statement import Mechanism
from drjax.core import validate
from drjax.core.types import Array
from drjax.data.sheets import sheet_of
from drjax.releases import PCAReleaseConfig, release_pca
from drjax.releases.map import map_config, release_map
from drjax.releases.synthetic import SyntheticReleaseConfig, release_synthetic


def release(
    data: Any, *, epsilon: float, out: str | Path, kind: Literal["pca", "synthetic", "map"] = "pca", **options: Any
) -> Any:
    """Publishes components, synthetic records, or a map of these, of private records with differential privacy.

    Args:
        data: Private records: path of a file, array (n, d) of numbers, or DataFrame. What is in memory is written into
            a folder that nobody else can read, while the release is made.
        epsilon: Epsilon of the guarantee, > 0.
        out: Folder to write, a new one.
        kind: Kind of release: principal components, a synthetic table, or a map of one.
        **options: Further fields of `PCAReleaseConfig`, `SyntheticReleaseConfig` or `MapReleaseConfig`: delta, ledger,
            ..., and of a map hyperparameters of its method; `public` as `data`, `bounds` as a path or as what such a
            file holds.

    Returns:
        `PCAReleaseResult`, `SyntheticReleaseResult` or `MapReleaseResult`: the folder, the manifest, and what to expect
        of it.

    Raises:
        ValueError: as of `drjax.releases`.

    Example:
        >>> import drjax, numpy as np, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     x = np.random.default_rng(0).random((500, 3))
        ...     ranges = {"lower": [0, 0, 0], "upper": [1, 1, 1]}
        ...     result = drjax.release(x, epsilon=1, out=f"{folder}/out", bounds=ranges, trials=0)
        >>> result.manifest["guarantee"]["holds"]
        True
    """
    validate.one_of(_RELEASES, kind=kind)
    config, make = _RELEASES[kind]
    with tempfile.TemporaryDirectory(prefix="drjax-") as name:
        folder = Path(name)
        paths = {"data": _written(data, folder, "records")}
        if options.get("public") is not None:
            paths["public"] = _written(options["public"], folder, "public")
        if options.get("bounds") is not None:
            paths["bounds"] = _bounds_file(options["bounds"], folder)
        if options.get("ledger") is not None:
            paths["ledger"] = Path(options["ledger"])
        return make(config(epsilon=epsilon, **{**options, **paths}), Path(out), progress=False)


def bound(kappa: Any, *, targets: int = 1, **mechanism: Any) -> np.ndarray:
    """Success of any reconstruction, at most, in view of a guarantee of differential privacy.

    Args:
        kappa: Success of the best guess without the release, in [0, 1]; of any shape.
        targets: Unknown records that are to be rebuilt together.
        **mechanism: Fields of `drjax.bounds.statement.Mechanism`: epsilon and delta, mu, rho, or noise_multiplier with
            steps, rate and neighbouring.

    Returns:
        The bound, of the shape of kappa; never below the truth.

    Raises:
        ValueError: a number out of its range, or none or several mechanisms.

    Example:
        >>> import drjax
        >>> round(float(drjax.bound(0.01, epsilon=1.0)), 4)
        0.0272
    """
    found = Mechanism(**mechanism).guarantee()
    return rero.from_tradeoff(np.asarray(kappa, np.float64), found.target_curve, n_targets=targets)


_RELEASES: dict[str, tuple[Any, Any]] = {
    "pca": (PCAReleaseConfig, release_pca),
    "synthetic": (SyntheticReleaseConfig, release_synthetic),
    "map": (map_config, release_map),
}


def _written(records: Any, folder: Path, name: str) -> Path:
    """Path of records; what is in memory is written into a folder that is private."""
    if isinstance(records, str | Path):
        return Path(records)
    if isinstance(records, Array):
        path = folder / f"{name}.npy"
        np.save(path, np.asarray(records), allow_pickle=False)
    else:
        path = folder / f"{name}.parquet"
        # Cells of mixed types become text: one odd cell must not refuse a release.
        pq.write_table(pa.table(dict(sheet_of(records).columns)), path)
    return path


def _bounds_file(bounds: Any, folder: Path) -> Path:
    if not isinstance(bounds, Mapping):
        return Path(bounds)
    path = folder / "bounds.json"
    path.write_text(json.dumps({name: np.asarray(ends).tolist() for name, ends in bounds.items()}))
    return path
