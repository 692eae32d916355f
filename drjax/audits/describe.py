"""What an audit says in words: what was released, under which assumptions, how to run it again."""

from __future__ import annotations

import dataclasses
import shlex

from drjax.audits.config import AuditConfig
from drjax.audits.report import release_facts
from drjax.data import Dataset
from drjax.reports.sections import Facts

IMAGE_FIGURE = (
    "Originals and what each attack took back",
    "The first row shows target records, each unknown to the adversary; every row below shows what one attack rebuilt "
    "from the published coordinates. The number under a picture is its mean squared error.",
)
FEATURE_FIGURE = (
    "Error of each feature",
    "How far the strongest attacks are off in each feature, as a multiple of the error of guessing the average record: "
    "1 means that the release gave nothing away about the feature, 0 that it gave away everything.",
)
LADDER_FIGURE = (
    "The attack ladder",
    "Mean squared error of every attack with its 95% interval. The vertical lines are the two yardsticks: an attack "
    "left of the nearest neighbour rebuilds records better than looking up a similar one.",
)
ERROR_FIGURE = (
    "Error by target",
    "Share of the targets whose error is at most the value on the horizontal axis. Averages hide the records that are "
    "hit hardest: they are at the left.",
)
"""Title and caption of each figure; `reports.alt_texts` has what it shows in words."""


def is_image(shape: tuple[int, ...]) -> bool:
    """True for records of shape (h, w) or (h, w, 3)."""
    return len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)


def release(config: AuditConfig, data: Dataset, *, n_records: int) -> Facts:
    """What was released, for the report: so many records of the data."""
    precision = config.dtype if config.decimals is None else f"{config.dtype}, rounded to {config.decimals} decimals"
    settings = ", ".join(f"{name} {value}" for name, value in config.hyperparameters.items())
    method = f"{config.dr_method.title} to {config.n_components} components"
    return release_facts(
        method=f"{method}, {settings}" if settings else method,
        dataset=data.name,
        n_records=n_records,
        n_features=data.x.shape[1],
        n_components=config.n_components,
        precision=precision,
    )


def assumptions(config: AuditConfig, data: Dataset) -> tuple[str, ...]:
    """Who the adversary is, what they know and what was public; whole sentences."""
    sentences = [
        f"The adversary knows {config.n_known:,} of the {config.n_known + 1:,} released records, all but one, and "
        "which row of the release is the unknown record's.",
        "The adversary knows the method and its settings, and sees the published coordinates of all records.",
        f"The adversary holds {config.n_shadow + config.n_validation:,} other records of the same kind, not released.",
        f"{config.n_targets:,} records were attacked, each as the one unknown record of its own release beside the "
        "same known records.",
        "Every feature was scaled to run from 0 to 1, and the adversary knows the scaling.",
    ]
    if not config.dr_method.deterministic:
        known = "knows" if config.seed_known else "does not know"
        sentences.append(f"The method is randomised, and the adversary {known} its random seed.")
    if data.groups is not None:
        sentences.append("No person or group has records on both sides: known, public and attacked ones are apart.")
    if data.provenance.note:
        sentences.append(f"About the data: {data.provenance.note.strip()}")
    return tuple(sentences)


def command(config: AuditConfig) -> str:
    """The shell command that makes this audit: every option that is not the default."""
    words = ["drjax", "audit"]
    default = AuditConfig()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == getattr(default, field.name):
            continue
        option = f"--{field.name.replace('_', '-')}"
        if field.name == "hyperparameters":
            words += [word for name, entry in value.items() for word in (f"--{name.replace('_', '-')}", str(entry))]
        elif isinstance(value, bool) and isinstance(getattr(default, field.name), bool):
            words.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, tuple):
            words += [option, *map(str, value)]
        else:
            words += [option, str(value)]
    return shlex.join(words)
