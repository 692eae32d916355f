"""The classifiers that read targets and reconstructions, one for each data set that one can be trained on."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from drjax.data import Dataset
from drjax.nets.judge import Judge, JudgeConfig, train_judge

CONFIGS = {"mnist": JudgeConfig(), "digits": JudgeConfig(epochs=40, batch_size=32)}
"""By data set. None for CIFAR-10: no classifier trained on the subset of 11,000 images says much of an image."""


def judge_of(file: Path, key: jax.Array, data: Dataset, targets: np.ndarray, name: str) -> Judge | None:
    """The judge of a data set, from `file` if it is there, else trained without the targets and written to it.

    Args:
        file: An npz file.
        key: Of the training.
        data: Images and labels.
        targets: Rows that the judge will be asked about.
        name: Of the data set; None is returned for one that is not in `CONFIGS`.
    """
    if name not in CONFIGS:
        return None
    if file.is_file():
        return Judge.load(file)
    rows = np.setdiff1d(np.arange(len(data.x)), targets)
    assert data.y is not None
    y = np.asarray(data.y)
    judge = train_judge(
        key, data.x[rows], y[rows], image_shape=data.shape, n_classes=int(y.max()) + 1, config=CONFIGS[name]
    )
    judge.save(file)
    return judge
