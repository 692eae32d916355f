"""The privacy-utility curve: at every scale of a defence, what two adversaries take back and what the release is worth.

Both adversaries choose among the same attacks by their error on releases of public records that are held out, and then
draw their answers towards the mean public record by the factor that fits those best. The adaptive one does so on
releases that are defended as the attacked ones are. The non-adaptive one does so on undefended releases and goes on
with what it found. At scale 0 they are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from drjax.attacks import metrics
from drjax.attacks.attack import EmbeddingAttack, EmbeddingThreat, Shadows
from drjax.audits import quality
from drjax.audits.attempts import answer_in
from drjax.audits.choice import learned
from drjax.audits.config import AuditConfig
from drjax.audits.folder import RunFolder
from drjax.core.statistics import UNKNOWN
from drjax.core.types import Array, DRMethod, Status, count_status, is_usable
from drjax.defenses import DEFENSES, defend
from drjax.reports import plots
from drjax.reports.curve import CurvePoint, DefenseCurve, figure
from drjax.reports.ladder import LadderRow

FIGURE = "defense"

DEAR_SECONDS = 30.0
"""Attacks that take longer are tried at no scale if there are others."""

MIN_SHADOWS = 2
"""Usable shadow releases below which an attack that learns from them has no answer."""

Embed = Callable[[str, DRMethod], dict[str, np.ndarray]]
"""Function of a folder and a method that makes, there, the embeddings of every public record and then every target."""


class _Releases(NamedTuple):
    """Embeddings at one scale, of public records to train on and of the targets: coords, objective, n_iter, status."""

    public: dict[str, np.ndarray]
    attacked: dict[str, np.ndarray]


class _Answers(NamedTuple):
    """Answers of one attack: on held-out public releases and on the attacked ones, with flags and seconds."""

    held: np.ndarray
    targets: np.ndarray
    status: np.ndarray
    seconds: float


class _Adversary(NamedTuple):
    """What an adversary settled on: the attack by name, how far its answers count, and the error that promised."""

    name: str
    factor: float
    error: float


def candidates(threat: EmbeddingThreat, attacks: Mapping[str, EmbeddingAttack]) -> dict[str, EmbeddingAttack]:
    """The attacks that the adversaries choose among, which every scale runs anew.

    Those of the ladder, without baselines and with expensive ones only if it has nothing else; beside them those that
    learn from releases alone, whatever was asked for: an attack that suits the undefended release may be lost under a
    defence, and one trained on defended releases is not.

    Args:
        threat: Threat with the undefended releases.
        attacks: Attacks of the ladder.
    """
    real = {name: attack for name, attack in attacks.items() if not attack.is_baseline}
    cheap = {name: attack for name, attack in real.items() if attack.cost(threat).seconds <= DEAR_SECONDS}
    return (cheap or real) | learned(threat, most_seconds=DEAR_SECONDS)


def left_out(threat: EmbeddingThreat, attacks: Mapping[str, EmbeddingAttack]) -> tuple[str, ...]:
    """Labels of the attacks of the ladder that the adversaries do not choose among."""
    shown = candidates(threat, attacks)
    return tuple(a.label for name, a in attacks.items() if not a.is_baseline and name not in shown)


def measure(
    folder: RunFolder,
    config: AuditConfig,
    threat: EmbeddingThreat,
    key: Array,
    attacks: Mapping[str, EmbeddingAttack],
    undefended: tuple[dict[str, np.ndarray], dict[str, np.ndarray]],
    embed: Embed,
    *,
    baselines: tuple[LadderRow, ...],
    score: Callable[..., metrics.AttackScores],
    labels: tuple[Array, Array] | None,
    say: Callable[[str], Any],
) -> DefenseCurve:
    """Releases, attacks and utility at every scale, scale 0 among them.

    Everything lies in `curve/SCALE/` of the run folder as soon as it is computed, and is read back by a resumed run.
    One scale costs the releases of the undefended audit (see `InputNoise` for what noise on the records adds) and every
    candidate attack once.

    Args:
        folder: The run folder.
        config: Configuration with a defence and its scales.
        threat: Threat with the undefended releases; half of the validation records are held out to choose attacks by.
        key: PRNG key of all attacks.
        attacks: Attacks of the ladder; see `candidates` for those that run.
        undefended: Embeddings of the public records and of the targets at scale 0.
        embed: Makes those of a defended method. One call for both, so that none of the attacked releases has the noise
            of a public one even where both have the same seed.
        baselines: Rows of the ladder for the figure.
        score: Function from reconstructions (m, d), and status= and seconds=, to scores.
        labels: Labels of the known records (n-1,) and the targets (m,), if there are any.
        say: Told what runs.
    """
    shown, inputs = candidates(threat, attacks), _Inputs(threat, key)
    scales = (0.0, *sorted(config.defense_scale))
    releases = {0.0: _Releases(*undefended)}
    answers: dict[float, dict[str, _Answers]] = {}
    for scale in scales:
        say(f"Defence {config.defense} at scale {scale:g}")
        if scale:
            both = embed(f"curve/{scale!r}/releases", defend(config.defense, config.dr_method, scale))
            n_public = len(inputs.records) + len(inputs.validation)
            releases[scale] = _Releases(
                {name: values[:n_public] for name, values in both.items()},
                {name: values[n_public:] for name, values in both.items()},
            )
        own = inputs.at(releases[scale].public)
        answers[scale] = {
            name: _answers(folder, f"curve/{scale!r}/{name}", attack, own, inputs, releases[scale])
            for name, attack in shown.items()
        }
    held, mean = inputs.validation[inputs.n_kept :], inputs.mean
    adversaries = {scale: _best(found, held, mean) for scale, found in answers.items()}
    ignorant = _ignorant_answers(folder, inputs, shown, adversaries[0.0], releases, answers)
    points = []
    for scale in scales:
        attacked, adaptive = releases[scale].attacked, adversaries[scale]
        found = answers[scale][adaptive.name]
        point = CurvePoint(
            scale=scale,
            **_utility(config, threat, attacked, labels),
            adaptive=score(
                _drawn(found.targets, mean, adaptive.factor),
                status=found.status | attacked["status"],
                seconds=found.seconds,
            ),
            adaptive_label=shown[adaptive.name].label,
            non_adaptive=score(
                _drawn(ignorant[scale].targets, mean, adversaries[0.0].factor),
                status=ignorant[scale].status | attacked["status"],
                seconds=ignorant[scale].seconds,
            ),
            status_counts=count_status(attacked["status"]),
        )
        points.append(point)
        folder.record(
            "curve",
            f"{scale!r}",
            place=scales.index(scale),
            defense=config.defense,
            point=point,
            adaptive_choice=adaptive._asdict(),
            non_adaptive_choice=adversaries[0.0]._asdict(),
        )
    kind = DEFENSES[config.defense]
    return DefenseCurve(
        defense=kind.action,
        unit=kind.scale_unit,
        points=tuple(points),
        non_adaptive_label=shown[adversaries[0.0].name].label,
        baselines=baselines,
        left_out=left_out(threat, attacks),
        majority=None if labels is None else float(np.unique(labels[0], return_counts=True)[1].max() / len(labels[0])),
    )


def draw(folder: RunFolder, curve: DefenseCurve) -> Any:
    """Writes the figure into the folder; its path."""
    file = folder.path / "figures" / f"{FIGURE}.svg"
    file.parent.mkdir(exist_ok=True)
    plots.save_figure(figure(curve), file)
    return file


class _Inputs:
    """What the attacks of all scales share.

    Attributes:
        threat: Threat with the undefended releases.
        key: PRNG key of all attacks.
        records: (s, d), public records to train on.
        validation: (v, d), further ones; the first `n_kept` stay with the attacks, those behind them are held out.
        n_kept: Number of records of `validation` that stay with the attacks.
        mean: (d,) of both.
        truth: (m, d) the targets.
    """

    def __init__(self, threat: EmbeddingThreat, key: Array) -> None:
        shadows = threat.shadows()
        assert threat.truth is not None
        self.threat, self.key, self.truth = threat, key, threat.truth
        self.records, self.validation = shadows.records, shadows.validation
        self.n_kept = len(self.validation) // 2
        self.mean = np.concatenate([self.records, self.validation]).mean(axis=0)

    def at(self, public: dict[str, np.ndarray]) -> Shadows:
        """Training releases of one scale from those of public records: usable ones, without those held out."""
        n, end = len(self.records), len(self.records) + self.n_kept
        usable = is_usable(public["status"]) & np.isfinite(public["coords"]).all(axis=(1, 2))
        shadow, kept = usable[:n], usable[n:end]
        return Shadows(
            known=self.threat.known,
            records=self.records[shadow],
            coords=public["coords"][:n][shadow],
            validation=self.validation[: self.n_kept][kept],
            validation_coords=public["coords"][n:end][kept],
        )


def _answers(
    folder: RunFolder,
    file: str,
    attack: EmbeddingAttack,
    training: Shadows,
    inputs: _Inputs,
    releases: _Releases,
) -> _Answers:
    """One attack, trained once, on the held-out releases and on the attacked ones."""
    held = slice(len(inputs.records) + inputs.n_kept, None)
    coords = np.concatenate([releases.public["coords"][held], releases.attacked["coords"]])
    truth = np.concatenate([inputs.validation[inputs.n_kept :], inputs.truth])
    return _run(folder, file, attack, training, coords, truth, inputs.n_kept, inputs)


def _run(
    folder: RunFolder,
    file: str,
    attack: EmbeddingAttack,
    training: Shadows,
    coords: np.ndarray,
    truth: np.ndarray,
    n_kept: int,
    inputs: _Inputs,
) -> _Answers:
    n_held = len(inputs.validation) - n_kept
    if attack.needs_shadows and len(training.records) < MIN_SHADOWS:
        nothing = np.full((len(coords), inputs.truth.shape[1]), np.nan)
        flags = np.full(len(nothing) - n_held, np.uint32(Status.NON_FINITE))
        return _Answers(nothing[:n_held], nothing[n_held:], flags, 0.0)
    public = np.concatenate([training.records, training.validation])
    threat = dataclasses.replace(inputs.threat, coords=coords, truth=truth, shadows=lambda: training, public=public)
    # What the targets cost, had they alone been attacked, is at most this.
    found, seconds = answer_in(folder, file, attack, inputs.key, threat, stage=file)
    held = np.where(is_usable(found["status"][:n_held])[:, None], found["x"][:n_held], np.nan)
    return _Answers(held, found["x"][n_held:], found["status"][n_held:], seconds)


def _ignorant_answers(
    folder: RunFolder,
    inputs: _Inputs,
    attacks: Mapping[str, EmbeddingAttack],
    adversary: _Adversary,
    releases: dict[float, _Releases],
    answers: dict[float, dict[str, _Answers]],
) -> dict[float, _Answers]:
    """The undefended release's best attack, trained on undefended shadows, on the releases of every scale."""
    name, attack = adversary.name, attacks[adversary.name]
    if not attack.needs_shadows:
        # Nothing was trained, so the adaptive adversary's answers before correction are these.
        return {scale: found[name] for scale, found in answers.items()}
    coords = np.concatenate([at.attacked["coords"] for at in releases.values()])
    truth = np.concatenate([inputs.truth] * len(releases))
    n, training = len(inputs.truth), inputs.at(releases[0.0].public)
    file = f"curve/non-adaptive-{name}"
    whole = _run(folder, file, attack, training, coords, truth, len(inputs.validation), inputs)
    return {
        scale: whole._replace(
            targets=whole.targets[i * n : (i + 1) * n],
            status=whole.status[i * n : (i + 1) * n],
            seconds=whole.seconds / len(releases),
        )
        for i, scale in enumerate(releases)
    }


def _best(found: dict[str, _Answers], held: np.ndarray, mean: np.ndarray) -> _Adversary:
    """The attack of the least error on the held-out records, after correction; a failed one loses."""
    tried = [_Adversary(name, *_correction(answers.held, held, mean)) for name, answers in found.items()]
    return min(tried, key=lambda adversary: adversary.error)


def _correction(answers: np.ndarray, truth: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    """Factor in [0, 1] on the answers' distance from the mean record that fits the truth best; the error it leaves.

    Noise lengthens reconstructions in directions that say nothing; one factor is all that some dozens of held-out
    records can fit without chance getting in.
    """
    finite = np.isfinite(answers).all(axis=1)
    if not finite.any():
        return 1.0, np.inf
    offset, wanted = answers[finite] - mean, truth[finite] - mean
    square = float(np.sum(offset**2))
    factor = float(np.clip(np.sum(offset * wanted) / square, 0, 1)) if square > 0 else 1.0
    return factor, float(np.mean((factor * offset - wanted) ** 2))


def _drawn(x: np.ndarray, mean: np.ndarray, factor: float) -> np.ndarray:
    # An answer that counts in full stays as it is to the last digit: where exact, 1e-16 is 1e9 times its error.
    return x if factor == 1 else mean + factor * (x - mean)


def _utility(
    config: AuditConfig, threat: EmbeddingThreat, attacked: dict[str, np.ndarray], labels: tuple[Array, Array] | None
) -> dict[str, Any]:
    coords, status = attacked["coords"], attacked["status"]
    assert threat.truth is not None
    found = quality.measure(config.dr_method, threat.known, threat.truth, coords, attacked["objective"], status)
    return {
        "trustworthiness": UNKNOWN if found is None else found.trustworthiness,
        "knn_preservation": UNKNOWN if found is None else found.knn_preservation,
        "knn_accuracy": None if labels is None else quality.knn_accuracy(*labels, coords, status),
    }
