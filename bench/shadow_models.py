"""Thousands of shadow models: drjax against a loop over models and against plain vmap, on the same cores.

    python -m bench.shadow_models

The models are those of Balle, Cherubin & Hayes (2022): on MNIST, one hidden layer of 10, 100 epochs of full batches.
README.md beside this file says what is compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from bench import harness
from drjax.core import validate
from drjax.core.linalg import HIGHEST
from drjax.nets.classifier_training import Training, prepare, train_many
from drjax.nets.classifiers import Classifier

D, CLASSES = 784, 10

ZERO_SHARE, SILENT_FEATURES = 0.81, 67
"""Of MNIST: the share of pixels that are 0, and the pixels that are 0 in all of its training images."""

NAIVE_BYTES = 256 * 2**20
"""Data sets that a chunk of the plain vmap may hold; it copies the known records for each model."""

WIDTHS = (64, 256, 1024)
"""Models in a chunk, for the product that every step consists of."""


@dataclass
class Config:
    """What to run.

    Attributes:
        n: Records that a model is trained on, the target included.
        models: Shadow models at n = 1000; proportionally fewer for more records, at least 64.
        width: Of the hidden layer.
        epochs: Steps of full batches.
        loop_models: Models that the loop trains, at most.
        data_dir: Where the files of MNIST lie; the loader's default if None.
        repeats: Timed runs, at most.
        budget_s: Seconds after which a run is not repeated again.
        out: JSON-lines file that the rows are added to.
        quick: A small case in seconds, to see that everything runs; its figures mean nothing.
    """

    n: list[int] = field(default_factory=lambda: [1000, 10_000])
    models: int = 1024
    width: int = 10
    epochs: int = 100
    loop_models: int = 16
    data_dir: Path | None = None
    repeats: int = 5
    budget_s: float = 60.0
    out: Path = harness.RESULTS / "shadow_models.jsonl"
    quick: bool = False

    def __post_init__(self) -> None:
        if self.quick:
            self.n, self.models, self.epochs, self.loop_models, self.repeats = [200], 64, 10, 4, 2
        validate.integer(models=self.models, width=self.width, epochs=self.epochs, loop_models=self.loop_models)
        for n in self.n:
            validate.integer(minimum=2, n=n)


def main(config: Config) -> None:
    """Runs every size, adds its rows to the results as soon as they are there, and prints the table."""
    # Where files lie on this machine is not what was measured.
    run = {"config": {name: value for name, value in vars(config).items() if name not in ("data_dir", "out")}}
    counts = {n: max(64, config.models * 1000 // max(n, 1000)) for n in config.n}
    x, y, source = _records(config, max(n - 1 + counts[n] for n in config.n))
    table = []
    for n in config.n:
        print(f"n = {n}, {counts[n]} models on {source}", file=sys.stderr, flush=True)
        peaks = _peaks(config, n)
        data = x[: n - 1], y[: n - 1], x[len(x) - counts[n] :], y[len(y) - counts[n] :]
        rows = [measured(config, *data) for measured in (_drjax, _vmap, _loop)]
        peak = max(row["gflop_per_s"] for row in peaks)
        ours = rows[0]["ms_per_model"]
        for row in rows:
            row |= {"gemm_share": row["gflop_per_s"] / peak, "speedup": row["ms_per_model"] / ours, "data": source}
        for row in (*peaks, *rows):
            harness.append_row(config.out, row | run)
        table += [_line(row, peak) for row in rows]
    print("\n".join([_markdown(COLUMNS), _markdown(["---"] * len(COLUMNS)), *table]))


def _records(config: Config, count: int) -> tuple[np.ndarray, np.ndarray, str]:
    rng = np.random.default_rng(0)
    try:
        from drjax.data import load

        mnist = load("mnist", data_dir=config.data_dir)
    except FileNotFoundError as missing:
        print(f"generated records in the place of MNIST: {missing}", file=sys.stderr)
        x = rng.uniform(size=(count, D)).astype(np.float32)
        active = np.arange(D) >= SILENT_FEATURES
        x *= active & (rng.uniform(size=x.shape) < (1 - ZERO_SHARE) / active.mean())
        return x, rng.integers(0, CLASSES, count), "generated"
    chosen = rng.choice(len(mnist.x), size=count, replace=False)
    return mnist.x[chosen], np.asarray(mnist.y)[chosen], "mnist"


def _training(config: Config) -> Training:
    return Training(model=Classifier(hidden=(config.width,), n_classes=CLASSES), epochs=config.epochs)


def _start(config: Config) -> Any:
    return _training(config).model.init(jax.random.key(0), D)


def _measure(
    name: str, config: Config, fn: Callable[[], Any], n: int, models: int, shadows: int, **labels: Any
) -> dict[str, Any]:
    """A row for a function that trains that many of the cell's shadows."""
    flops = 4.0 * n * D * config.width * config.epochs * models
    labels |= {"n": n, "d": D, "width": config.width, "epochs": config.epochs, "shadows": shadows, "models": models}
    row = harness.measure(name, fn, repeats=config.repeats, budget_s=config.budget_s, flops=flops, **labels)
    return row | {"ms_per_model": 1e3 * row["run_s"] / models, "models_per_s": models / row["run_s"]}


def _drjax(config: Config, known_x: Any, known_y: Any, targets_x: Any, targets_y: Any) -> dict[str, Any]:
    training, init = _training(config), _start(config)
    split, _ = prepare(training, known_x, known_y, init=init)
    m = len(targets_x)

    def train() -> Any:
        return train_many(training, known_x, known_y, targets_x, targets_y, init=init)

    return _measure("drjax", config, train, len(known_x) + 1, m, m, active_features=split.n_active)


def _one_model(training: Training, init: Any) -> Callable[..., Any]:
    """Trains a single model on [target; known] as anybody would write it."""
    model = training.model

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(model.logits(params, x))
        return -jnp.mean(jnp.take_along_axis(log_p, y[:, None], axis=1))

    def train(known_x: jax.Array, known_y: jax.Array, target_x: jax.Array, target_y: jax.Array) -> Any:
        x, y = jnp.concatenate([target_x[None], known_x]), jnp.concatenate([target_y[None], known_y])

        def step(carry: Any, _: None) -> tuple[Any, None]:
            params, velocity = carry
            gradient = jax.grad(loss)(params, x, y)
            velocity = jax.tree.map(lambda v, g: training.momentum * v + g, velocity, gradient)
            return (jax.tree.map(lambda p, v: p - training.learning_rate * v, params, velocity), velocity), None

        zeros = jax.tree.map(jnp.zeros_like, init)
        return jax.lax.scan(step, (init, zeros), length=training.epochs)[0][0]

    return train


def _loop(config: Config, *data: Any) -> dict[str, Any]:
    known_x, known_y, targets_x, targets_y = map(jnp.asarray, data)
    train = jax.jit(_one_model(_training(config), _start(config)))
    lanes = min(config.loop_models, len(targets_x))

    def trained() -> Any:
        return [train(known_x, known_y, targets_x[i], targets_y[i]) for i in range(lanes)]

    return _measure("loop", config, trained, len(known_x) + 1, lanes, len(targets_x))


def _vmap(config: Config, *data: Any) -> dict[str, Any]:
    known_x, known_y, targets_x, targets_y = map(jnp.asarray, data)
    train = jax.jit(jax.vmap(_one_model(_training(config), _start(config)), in_axes=(None, None, 0, 0)))
    n, m = len(known_x) + 1, len(targets_x)
    chunk = max(1, min(m, NAIVE_BYTES // (4 * n * D)))
    # All chunks are alike, and the loop over them costs next to nothing: two are timed.
    lanes = min(m // chunk, 2) * chunk

    def trained() -> Any:
        starts = range(0, lanes, chunk)
        return [train(known_x, known_y, targets_x[i : i + chunk], targets_y[i : i + chunk]) for i in starts]

    return _measure("vmap", config, trained, n, lanes, m, chunk=chunk)


def _peaks(config: Config, n: int) -> list[dict[str, Any]]:
    """Products of matrices in float32: of squares, and of the shape of a step with some numbers of models."""
    squares = (512,) if config.quick else (1024, 2048, 4096)
    shapes = [(size, size, size) for size in squares]
    shapes += [(config.width * models, D, n) for models in WIDTHS if models <= max(config.models, WIDTHS[0])]
    rng = np.random.default_rng(0)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision=HIGHEST))
    rows = []
    for rows_a, inner, columns in shapes:
        a, b = (jnp.asarray(rng.standard_normal(s, dtype=np.float32)) for s in ((rows_a, inner), (inner, columns)))
        row = harness.measure("peak/gemm", product, a, b, repeats=7, shape=[rows_a, inner, columns], dtype="float32")
        rows.append(row | {"gflop_per_s": 2 * rows_a * inner * columns / row["run_min_s"] / 1e9})
    return rows


COLUMNS = ["engine", "data", "n", "models", "ms/model", "models/s", "GFLOP/s", "peak", "share", "compile s", "ratio"]


def _line(row: dict[str, Any], peak: float) -> str:
    cells = [row["name"], row["data"], row["n"], row["models"], f"{row['ms_per_model']:.3g}"]
    cells += [f"{row['models_per_s']:.3g}", f"{row['gflop_per_s']:.3g}", f"{peak:.3g}", f"{row['gemm_share']:.0%}"]
    return _markdown([*cells, f"{row['compile_s']:.2f}", f"{row['speedup']:.3g}"])


def _markdown(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
