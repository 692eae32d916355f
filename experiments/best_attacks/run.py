"""The strongest attack on each method, on releases of drjax's kernels and of the reference libraries themselves.

    python -m experiments.best_attacks.run                  # MNIST, 199 known, 4,000 public; 1,000 targets, 100 for
                                                            # libraries
    python -m experiments.best_attacks.run --scale smoke    # digits: the same code in a minute
    python -m experiments.best_attacks.run --scale command  # and `drjax attack embedding` on 8 maps of each library

A cell is one kind of release by one maker, and the attacks on it are those that `drjax audit` would run by default (of
PCA and MDS with one Gaussian for a prior, from which a mixture differs little with so many known records), with shadow
releases by drjax's kernels in both cases: the adversary need not have the library. Every attack of a cell is one line
of `results.jsonl`, kept when it is done; the same command goes on with an interrupted run.
"""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
from joblib import Parallel, delayed
from sklearn.decomposition import PCA
from sklearn.manifold import MDS, TSNE, Isomap
from sklearn.random_projection import SparseRandomProjection

from drjax.attacks import metrics
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.attacks.embedding import attack_embedding
from drjax.attacks.registry import ATTACKS, answer
from drjax.attacks.shadow import shadow_embeddings
from drjax.audits import choice
from drjax.audits.config import BOUNDS, AuditConfig
from drjax.core import validate
from drjax.core.types import count_status
from drjax.data import Dataset, Splits, load, split
from drjax.dr import UMAP
from drjax.reports import ladder, records
from experiments import command
from experiments.cells import Cell, Computed, Group, Line, by, cell_of
from experiments.markdown import markdown_table
from experiments.sweep import RESULTS, Asked, Sweep, cell_name

OURS = "drjax"

N_DECOYS = 1000

COMMAND = "drjax attack embedding"
"""The command as it runs by default, as an attack on releases of libraries: nobody tells it the method or a setting."""

DEAR = ("inversion", COMMAND)
"""Attacks that take seconds a target, and get fewer of them."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of release.

    Attributes:
        method: Key of `drjax.dr.METHODS`.
        options: Hyperparameters that are not the defaults, which are the library's.
        dtype: As the library publishes coordinates.
        library: Who else makes it, and how: an estimator for a seed, or None where drjax calls the library.
        n_shadow: Most shadow releases that the attack needs; all of the configuration if None.
        seed_known: Whether the adversary knows the seed.
        n_seeds: Seeds among which the targets are divided; only where the seed is known, else each has its own.
        attacks: Those to run beside the baselines.
        by_drjax: Whether releases of drjax's kernel are attacked too; no where they are those of another row.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float64"
    library: Callable[[int], Any] | None = None
    n_shadow: int | None = None
    seed_known: bool = False
    n_seeds: int = 1
    attacks: tuple[str, ...]
    by_drjax: bool = True


def _sk_mds(**options: Any) -> Callable[[int], Any]:
    return lambda seed: MDS(n_init=1, init="random", random_state=seed, **options)


def _open_tsne(seed: int) -> Any:
    import openTSNE  # of the extra "bench"

    return SimpleNamespace(fit_transform=lambda x: np.asarray(openTSNE.TSNE(random_state=seed).fit(x)))


def _sk_srp(seed: int) -> Any:
    settings: dict[str, Any] = {"n_components": 2}
    return SparseRandomProjection(random_state=seed, **settings)


ROWS = {
    "PCA": Row(
        method="pca",
        library=lambda seed: PCA(n_components=2, random_state=seed),
        n_shadow=50,
        attacks=("closed-form",),
    ),
    "MDS": Row(method="mds", library=_sk_mds(), n_shadow=50, attacks=("stationarity",)),
    "MDS, converged": Row(
        method="mds",
        options={"eps": 1e-12, "max_iter": 100_000},
        library=_sk_mds(eps=1e-12, max_iter=100_000),
        n_shadow=50,
        attacks=("stationarity",),
    ),
    "Isomap": Row(method="isomap", library=lambda _: Isomap(), attacks=("geodesics",)),
    "t-SNE": Row(
        method="tsne",
        dtype="float32",
        library=lambda seed: TSNE(random_state=seed),
        attacks=("affinities", "inversion"),
    ),
    "t-SNE by openTSNE": Row(
        method="tsne", dtype="float64", library=_open_tsne, attacks=("affinities", "inversion"), by_drjax=False
    ),
    "UMAP": Row(method="umap", dtype="float32", attacks=("invariant",)),
    "SRP, seed unknown": Row(
        method="srp",
        library=_sk_srp,
        n_shadow=50,
        attacks=("srp-closed-form",),
    ),
    "SRP, seed known": Row(
        method="srp",
        library=_sk_srp,
        n_shadow=50,
        seed_known=True,
        n_seeds=25,
        attacks=("srp-closed-form",),
    ),
}
"""Kinds of releases by name."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What decides the results.

    Attributes:
        data: Name of a data set or path of a file, as `drjax.data.load` takes it.
        rows: Keys of `ROWS`.
        n_known: Records that the adversary knows.
        n_shadow: Public records that attacks are trained on.
        n_validation: Public records beside them.
        targets: Records attacked in releases of drjax's kernels, each in one of its own.
        library_targets: The first so many of them are attacked in releases of the libraries too.
        dear_targets: Targets of an attack that takes long by the target, the first ones.
        command: Whether `drjax attack embedding` attacks the releases of libraries as well.
        seed: Of the split, the releases, the attacks and the intervals.
    """

    data: str = "mnist"
    rows: tuple[str, ...] = tuple(ROWS)
    n_known: int = 199
    n_shadow: int = 3900
    n_validation: int = 100
    targets: int = 1000
    library_targets: int = 100
    dear_targets: int = 60
    command: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every field that can be checked without the data."""
        for name in self.rows:
            validate.one_of(ROWS, rows=name)
        validate.integer(n_known=self.n_known, targets=self.targets, n_validation=self.n_validation)
        validate.integer(minimum=2, n_shadow=self.n_shadow)
        validate.integer(minimum=0, seed=self.seed, library_targets=self.library_targets)
        validate.at_most(self.targets, "targets", library_targets=self.library_targets)
        validate.integer(dear_targets=self.dear_targets)


SMOKE = Config(
    data="digits",
    rows=("PCA", "MDS", "SRP, seed unknown"),
    n_known=49,
    n_shadow=100,
    n_validation=20,
    targets=8,
    library_targets=4,
)

WITH_COMMAND = Config(
    rows=("PCA", "MDS", "Isomap", "t-SNE", "t-SNE by openTSNE", "UMAP", "SRP, seed unknown"),
    n_shadow=900,
    targets=8,
    library_targets=8,
    dear_targets=8,
    command=True,
)
"""As many shadows for an attack alone as the command makes, and the same maps; up to three minutes a map."""


def groups(asked: Asked[Config]) -> Iterator[Group]:
    """The attacks on each kind of release by each maker, which have the releases and the shadows in common."""
    config = asked.config
    for i, row in enumerate(config.rows):
        for j, maker in enumerate((OURS, "library")):
            count = config.library_targets
            if maker == OURS:
                count = config.targets if ROWS[row].by_drjax else 0
            names = [*_attacks(_audit(config, ROWS[row])), *([COMMAND] if config.command and maker != OURS else [])]
            cells = [
                cell_of(cell_name(i, j, place, row, maker, attack), row=row, maker=maker, attack=attack)
                for place, attack in enumerate(names)
            ]
            if count:
                yield Group(cells=tuple(cells), compute=functools.partial(_compute, config, row, maker, count))


def _said(line: Line) -> str:
    label = COMMAND if line["attack"] == COMMAND else ATTACKS["embedding"][line["attack"]].label
    return f"{line['row']}, by {line['maker']}: {label}, MSE {line['scores']['mse']['estimate']:.3g}"


def to_markdown(found: Iterable[Mapping[str, Any]]) -> str:
    """The records of attacks as a Markdown table, one row each; errors in units of the records squared."""
    heads = (
        "release",
        "made by",
        "attack",
        "targets",
        "MSE, mean (95% interval)",
        "MSE, median",
        "closer than nearest neighbour",
        "identified",
        "s per target",
        "excluded",
    )
    rows = []
    for record in found:
        scores = record["scores"]
        mse = scores["mse"]
        interval = " to ".join(ladder.number(mse[end]) for end in ("low", "high"))
        cells = (
            record["row"],
            record["maker"],
            record["attack"],
            str(scores["n_targets"]),
            f"{ladder.number(mse['estimate'])} ({interval})",
            ladder.number(scores["mse_median"]["estimate"]),
            ladder.percent(scores["success"]["estimate"]),
            ladder.percent(scores["identification"]["estimate"]),
            ladder.number(scores["seconds_per_target"]),
            str(scores["n_excluded"]),
        )
        rows.append(cells)
    return markdown_table(heads, rows)


@functools.lru_cache(maxsize=1)
def _given(config: Config) -> tuple[Dataset, Splits]:
    """The data set, and who knows which record."""
    data = load(config.data)
    return data, split(
        jax.random.fold_in(jax.random.key(config.seed), 0),
        data,
        n_known=config.n_known,
        n_shadow=config.n_shadow,
        n_validation=config.n_validation,
        n_targets=config.targets,
    )


def _audit(config: Config, row: Row) -> AuditConfig:
    return AuditConfig(
        data=config.data,
        method=row.method,
        hyperparameters=row.options,
        n_known=config.n_known,
        n_shadow=min(config.n_shadow, row.n_shadow or config.n_shadow),
        n_validation=config.n_validation,
        n_targets=config.targets,
        seed_known=row.seed_known,
        attacks=row.attacks,
        dtype="float32" if row.dtype == "float32" else "float64",
        seed=config.seed,
    )


def _attacks(audit: AuditConfig) -> dict[str, EmbeddingAttack]:
    """Baselines and the row's attacks in the order of the ladder."""
    possible = choice.possible(audit.dr_method, seed_known=audit.seed_known)
    return {name: a for name, a in possible.items() if a.is_baseline or name in audit.attacks}


def _compute(config: Config, name: str, maker: str, count: int, missing: Sequence[Cell]) -> Iterator[Computed]:
    """Attacks one kind of release by one maker."""
    row = ROWS[name]
    audit, key = _audit(config, row), jax.random.key(config.seed)
    data, parts = _given(config)
    known, shadow, validation, targets = (
        data.x[rows] for rows in (parts.known, parts.shadow, parts.validation, parts.targets)
    )
    targets = targets[:count]
    own = jax.random.fold_in(key, zlib.crc32(name.encode()))
    shadow_key, release_key, attack_key = jax.random.split(own, 3)
    with jax.enable_x64(row.dtype == "float64"):
        shadow_x = [rows.astype(row.dtype) for rows in (known, shadow[: audit.n_shadow])]
        shadows = shadow_embeddings(shadow_key, audit.dr_method, *shadow_x, randomness=audit.randomness)
        begun = time.perf_counter()
        shares = np.array_split(np.arange(count), min(row.n_seeds, count))
        keys = jax.random.split(release_key, len(shares)) if len(shares) > 1 else [release_key]
        made = [_releases(row, audit, maker, k, known, targets[at]) for k, at in zip(keys, shares, strict=True)]
        coords, status = (np.concatenate(parts) for parts in zip(*made, strict=True))
        release_s = time.perf_counter() - begun
        with tempfile.TemporaryDirectory() as folder:
            learned = Shadows(
                known=known,
                records=shadow[: audit.n_shadow],
                coords=np.asarray(shadows.coords),
                validation=validation[:0],
                validation_coords=np.zeros((0, *coords.shape[1:])),
            )
            # Of the records behind the shadows there are no releases: a prior is fitted on them.
            public = np.concatenate([shadow, validation])
            threat = EmbeddingThreat(
                method=audit.dr_method,
                known=known,
                coords=coords,
                shadows=lambda: learned,
                public=public,
                dtype=audit.dtype,
                bounds=BOUNDS,
                truth=targets,
                checkpoint=Path(folder) / "training.npz",
            )
            decoy_key, score_key = jax.random.split(jax.random.fold_in(key, 1))
            for cell in missing:
                attack = cell.fields["attack"]
                first = slice(config.dear_targets if attack in DEAR else None)
                n_seen = len(targets[first])
                begun = time.perf_counter()
                x, own, facts = [], [], []
                for of_seed, at in zip(keys, shares, strict=True):
                    rows = at[at < n_seen]
                    if not len(rows):
                        continue
                    share = dataclasses.replace(
                        threat,
                        coords=coords[rows],
                        truth=targets[rows],
                        seed_key=of_seed if row.seed_known and maker == OURS else None,
                    )
                    found, flagged, said = _answered(attack, attack_key, share)
                    x.append(found)
                    own.append(flagged)
                    facts.append(said)
                flags = np.concatenate(own) | status[first]
                scores = metrics.evaluate(
                    score_key,
                    np.concatenate(x),
                    targets[first],
                    neighbors=np.concatenate([known, public]),
                    decoys=metrics.sample_decoys(decoy_key, public, min(N_DECOYS, len(public))),
                    status=flags,
                    seconds=time.perf_counter() - begun,
                )
                fields = {
                    "scores": scores,
                    "status_counts": count_status(flags),
                    "release_s": release_s,
                    "facts": facts[0] if len(facts) == 1 else facts,
                }
                yield cell, fields


def _answered(name: str, key: jax.Array, threat: EmbeddingThreat) -> tuple[np.ndarray, np.ndarray, Mapping[str, Any]]:
    """What an attack, or the command on one release after the other, finds: records, status, and facts."""
    if name != COMMAND:
        result = answer(ATTACKS["embedding"][name], key, threat)
        return np.asarray(result.x), np.asarray(result.status, np.uint32), result.facts or {}
    said = [
        attack_embedding(key, None, threat.known, coords, public=threat.public, bounds=threat.bounds)
        for coords in threat.coords
    ]
    facts = {
        "attack": [one.attack.name for one in said],
        "verdict": [one.verdict for one in said],
        "expected_mse": [float(np.asarray(one.found.expected_mse)) for one in said],
    }
    status = np.array([one.found.status for one in said], np.uint32)
    return np.stack([np.asarray(one.found.x) for one in said]), status, facts


def _releases(
    row: Row, audit: AuditConfig, maker: str, key: jax.Array, known: np.ndarray, targets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates (m, n, k) of [target; known] for every target, and their status (m,)."""
    known, targets = known.astype(row.dtype), targets.astype(row.dtype)
    library = row.library
    if maker == OURS or library is None:
        method = audit.dr_method
        if maker != OURS:
            method = UMAP(**row.options, backend="umap-learn")
        found = shadow_embeddings(key, method, known, targets, randomness=audit.randomness)
        return np.asarray(found.coords), np.asarray(found.status)
    seeds = np.asarray(jax.random.randint(key, (len(targets),), 0, 2**31 - 1))
    if row.seed_known:
        seeds = np.full_like(seeds, seeds[0])

    def fit(seed: int, target: np.ndarray) -> np.ndarray:
        return library(seed).fit_transform(np.concatenate([target[None], known]))

    jobs = (delayed(fit)(int(seed), x) for seed, x in zip(seeds, targets, strict=True))
    made: Any = Parallel(n_jobs=-1, prefer="threads")(jobs)
    return np.stack(made), np.zeros(len(targets), np.uint32)


SWEEP = Sweep(
    name="best_attacks",
    about=__doc__,
    scales={"smoke": SMOKE, "cpu": Config(), "command": WITH_COMMAND},
    plain="cpu",
    groups=groups,
    sources=lambda asked, _: _given(asked.config)[0],
    identity=by("row", "maker", "attack"),
    said=_said,
    options=Config(),
    configured=command.overriding(Config()),
    report=lambda out, _: to_markdown(records.read_records(out / RESULTS)[1:]),
)


if __name__ == "__main__":
    command.main(SWEEP)
