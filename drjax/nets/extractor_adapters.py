"""Feature extractors that others trained: a Flax `nnx` model, or any network as an ONNX file.

Both take what a pretrained network was trained to see: pictures of one size, in three channels, standardised.
A ResNet-18 of torchvision, for one:

    torch.onnx.export(model, torch.zeros(1, 3, 224, 224), "resnet18.onnx", input_names=["x"], output_names=["y"],
                      dynamic_axes={"x": {0: "n"}})                  # after model.fc = torch.nn.Identity()
    from_onnx("resnet18.onnx", sees=Input(size=(224, 224), channels=3, mean=IMAGENET_MEAN, std=IMAGENET_STD))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from drjax.core import validate
from drjax.core.types import Array
from drjax.nets.extractors import pictures
from drjax.nets.plot_networks import IMAGENET_MEAN, IMAGENET_STD

__all__ = ["BATCH", "IMAGENET_MEAN", "IMAGENET_STD", "Input", "ModelFeatures", "from_nnx", "from_onnx"]

BATCH = 64
"""Pictures that a model is given at once."""


@dataclass(frozen=True, kw_only=True)
class Input:
    """What a model wants to see.

    Attributes:
        size: (h, w) that pictures are resized to, bilinearly and with antialiasing when they shrink; None leaves them.
        channels: Channels, 1 or 3: grey pictures are copied to three, of coloured ones the channels are averaged
            (BT.601 weights) to one; None leaves them.
        mean, std: Mean and standard deviation of each channel; pictures in [0, 1] become (x - mean) / std. One value is
            for all channels.
        channels_first: Give the model (n, c, h, w), as PyTorch does, instead of (n, h, w, c).

    Example:
        >>> import numpy as np
        >>> from drjax.nets.extractor_adapters import Input
        >>> Input(size=(16, 16), channels=3, channels_first=True).prepared(np.zeros((2, 8, 8, 1), np.float32)).shape
        (2, 3, 16, 16)
    """

    size: tuple[int, int] | None = None
    channels: int | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    channels_first: bool = False

    def __post_init__(self) -> None:
        """Checks every field."""
        if self.size is not None:
            if len(self.size) != 2:
                raise ValueError(f"size must be (h, w) or None, got {self.size}")
            validate.integer(**{"size[0]": self.size[0], "size[1]": self.size[1]})
        if self.channels is not None:
            validate.one_of((1, 3), channels=self.channels)
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) not in {1, self.channels or len(values)} or not np.isfinite(values).all():
                raise ValueError(f"{name} must be one number, or one for each channel, got {values}")
        validate.positive(**{f"std[{i}]": value for i, value in enumerate(self.std)})

    def prepared(self, images: np.ndarray) -> np.ndarray:
        """Pictures (n, h, w, c) in [0, 1] as the model wants them, float32.

        Raises:
            ValueError: neither 1 nor 3 channels where a number is wanted, or another number than mean and std have.
        """
        x = np.asarray(images, np.float32)
        if self.channels is not None and x.shape[3] != self.channels:
            if {x.shape[3], self.channels} != {1, 3}:
                raise ValueError(f"images must have 1 or 3 channels, got {x.shape[3]}")
            weights = np.array([0.299, 0.587, 0.114], np.float32)
            x = np.repeat(x, 3, axis=3) if self.channels == 3 else x @ weights[:, None]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, x.shape[3]):
                raise ValueError(f"{name} must have one number or one for each of {x.shape[3]} channels, got {values}")
        if self.size is not None and x.shape[1:3] != self.size:
            x = np.asarray(jax.image.resize(x, (len(x), *self.size, x.shape[3]), "bilinear"))
        x = (x - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2) if self.channels_first else x)


@dataclass(frozen=True)
class ModelFeatures:
    """Values inside a model that somebody else trained.

    Attributes:
        run: Prepared pictures to an array with one row each.
        sees: What it wants to see.

    Example:
        >>> import numpy as np
        >>> from drjax.nets.extractor_adapters import Input, ModelFeatures
        >>> means = ModelFeatures(run=lambda pictures: pictures.mean(axis=(1, 2)), sees=Input(channels=3))
        >>> means.features(np.zeros((2, 8, 8, 1), np.float32)).shape
        (2, 3)
    """

    run: Callable[[np.ndarray], Any]
    sees: Input

    def features(self, images: Array) -> np.ndarray:
        """(n, f) float32 of pictures (n, h, w) or (n, h, w, c) in [0, 1]; feature maps are flattened.

        Raises:
            ValueError: another shape, values that are not in [0, 1], or a model that does not answer with a row of
                finite numbers for each picture.
        """
        x = pictures(images)
        x = x[..., None] if x.ndim == 3 else x
        parts = []
        for low in range(0, len(x), BATCH):
            part = x[low : low + BATCH]
            # Always batches of one size: a model is compiled, or planned, for it once.
            filled = np.concatenate([part, np.repeat(part[-1:], BATCH - len(part), axis=0)])
            found = np.asarray(self.run(self.sees.prepared(filled)), np.float32)
            if found.ndim < 2 or len(found) != BATCH:
                raise ValueError(f"the model must answer with {BATCH} rows for {BATCH} pictures, got {found.shape}")
            parts.append(found.reshape(BATCH, -1)[: len(part)])
        out = np.concatenate(parts)
        validate.finite(**{"features of the model": out})
        return out


def from_nnx(model: nnx.Module, *, layer: str | None = None, sees: Input = Input()) -> ModelFeatures:
    """What a Flax `nnx` model computes of a picture, in evaluation mode.

    Args:
        model: Called as model(pictures (n, h, w, c)). It is copied: later training does not change the extractor.
        layer: Path of a submodule whose output is taken, such as "head" or "blocks.3"; None for the model's own
            output. The second-to-last layer is the paper's choice. It must be called once for each pass.
        sees: What the model wants to see.

    Raises:
        ValueError: the model has no such submodule; when used, if it is not called once.

    Example:
        >>> import jax, numpy as np
        >>> from flax import nnx
        >>> from drjax.nets.extractor_adapters import from_nnx
        >>> class Net(nnx.Module):
        ...     def __init__(self, rngs):
        ...         self.head = nnx.Linear(64, 5, rngs=rngs)
        ...     def __call__(self, pictures):
        ...         return self.head(pictures.reshape(len(pictures), 64))
        >>> from_nnx(Net(nnx.Rngs(0)), layer="head").features(np.zeros((2, 8, 8, 1), np.float32)).shape
        (2, 5)
    """
    graph, state = nnx.split(model)
    own = nnx.merge(graph, jax.tree.map(jnp.copy, state))
    own.eval()
    if layer is not None:
        _submodule(own, layer)
    graph, state = nnx.split(own)

    @jax.jit
    def run(state: Any, x: jax.Array) -> Any:
        net = nnx.merge(graph, state)
        if layer is None:
            return net(x)
        seen: list[Any] = []
        _listen(net, layer, seen)
        net(x)
        if len(seen) != 1:
            raise ValueError(f"layer {layer!r} must be called once for each pass of the model, got {len(seen)} calls")
        return seen[0]

    return ModelFeatures(lambda x: run(state, jnp.asarray(x)), sees)


def from_onnx(
    path: str | Path, *, output: str | None = None, sees: Input = Input(channels_first=True)
) -> ModelFeatures:
    """What a network in an ONNX file computes of a picture; its first axis must be free or `BATCH`.

    Args:
        path: The file; computes on the CPU, with as many threads as onnxruntime takes.
        output: Name of one of the graph's outputs, which the exporter lists: export the second-to-last layer as one.
            None for the first.
        sees: What the network wants to see.

    Raises:
        ImportError: onnxruntime is not installed.
        FileNotFoundError: nothing at `path`.
        ValueError: no ONNX network, one with several inputs, or without that output.

    Example:
        >>> import tempfile, numpy as np, onnx
        >>> from onnx import TensorProto, helper
        >>> from drjax.nets.extractor_adapters import from_onnx
        >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
        >>> y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])
        >>> graph = helper.make_graph([helper.make_node("Flatten", ["x"], ["y"])], "net", [x], [y])
        >>> net = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     onnx.save(net, f"{folder}/net.onnx")
        ...     from_onnx(f"{folder}/net.onnx").features(np.zeros((2, 8, 8, 1), np.float32)).shape
        (2, 64)
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: check the path")
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError("from_onnx needs onnxruntime: pip install onnxruntime") from error
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class of its own for each kind of damage, in a private module
        raise ValueError(f"{path} must be an ONNX network, got {error}") from error
    inputs, outputs = ([entry.name for entry in part()] for part in (session.get_inputs, session.get_outputs))
    if len(inputs) != 1:
        raise ValueError(f"{path} must have one input, got {', '.join(inputs)}")
    if output is not None:
        validate.one_of(outputs, output=output)
    wanted = output or outputs[0]
    return ModelFeatures(lambda x: session.run([wanted], {inputs[0]: x})[0], sees)


def _submodule(model: Any, layer: str) -> Any:
    found = model
    for name in layer.split("."):
        try:
            found = found[int(name)] if name.isdigit() else getattr(found, name)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"layer must be a submodule of the model, got {layer!r}: there is no {name!r}") from error
    if not callable(found):
        raise ValueError(f"layer must be a submodule that is called, got {layer!r}, a {type(found).__name__}")
    return found


def _listen(model: Any, layer: str, seen: list[Any]) -> None:
    """Makes one submodule of this copy of the model write down what it returns."""
    found = _submodule(model, layer)
    kind = type(found)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = kind.__call__(self, *args, **kwargs)
        seen.append(result)
        return result

    found.__class__ = type(kind.__name__, (kind,), {"__call__": call})
