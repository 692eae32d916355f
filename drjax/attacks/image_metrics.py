"""How alike a reconstruction and its target are as images, and what the nearest-neighbour oracle would have reached.

Beside `metrics.mean_squared_errors`, these are the measures of Balle, Cherubin & Hayes, "Reconstructing training data
with informed adversaries" (2022), called BCH22. All run on the host, on flattened images; a reconstruction with an
entry that is not finite, which an attack may leave where it failed, scores nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax
from skimage.metrics import structural_similarity

from drjax.attacks import metrics
from drjax.core import validate
from drjax.core.types import Array

SSIM_WINDOW, SSIM_SIGMA = 11, 1.5
"""Pixels of the window of Wang et al. (2004), and the standard deviation of its Gaussian weights in pixels."""

LPIPS_MIN_SIDE = {"alex": 31, "vgg": 16}
"""Least pixels of a side by backbone: with fewer, nothing is left after its poolings."""

LPIPS_CHUNK = 64
"""Pairs of images compared at once."""

LOG_SUM_TOLERANCE = 1e-3
"""How far the sum of given probabilities may be from 1: some roundings of float32, and no missing class."""


class OracleDistances(NamedTuple):
    """Mean squared errors per coordinate of the records that an adversary holds, averaged over targets.

    Attributes:
        nearest: Error of the record nearest to a target: below it, a reconstruction beats the nearest-neighbour oracle.
        percentiles: (p,), of the percentiles asked for among all records.
    """

    nearest: float
    percentiles: np.ndarray


def ssim(
    reconstructions: Array, targets: Array, *, image_shape: tuple[int, ...], data_range: float = 1.0
) -> np.ndarray:
    """Mean structural similarity of each pair of images, (m,) float64 in [-1, 1]; 1 for equal images.

    The window is 11 x 11 with Gaussian weights of 1.5 pixels and population covariances, centred wherever it lies
    wholly in the image. An image with a shorter side gets the largest odd window that fits, its weights narrowed in
    proportion (8 x 8 digits: 7 x 7 and 0.95 pixels): such scores compare with one another, not with those of larger
    images. Colour images score the mean over channels. Costs 0.3 ms a pair of 28 x 28 and 0.8 ms of 32 x 32 x 3.

    Args:
        reconstructions: (m, d), units of the targets; rows may hold nan.
        targets: (m, d) flattened images.
        image_shape: (h, w) or (h, w, c), of product d, sides of at least 3 pixels.
        data_range: Difference of the largest and the smallest value that a pixel can take, > 0 and finite.

    Raises:
        ValueError: shapes that do not match, targets not finite, or a value out of range.

    Source: Wang, Bovik, Sheikh & Simoncelli (2004), as scikit-image computes it.
    """
    validate.positive(data_range=data_range)
    validate.finite(data_range=data_range)
    recon, truth, shape = _images(reconstructions, targets, image_shape, min_side=3)
    shorter = min(shape[:2])
    window = min(SSIM_WINDOW, shorter - (shorter + 1) % 2)
    # scikit-image takes the filter's radius from sigma alone, 3.5 of it rounded: exactly (window - 1) / 2 here.
    options = {"sigma": SSIM_SIGMA * window / SSIM_WINDOW, "gaussian_weights": True, "use_sample_covariance": False}
    scores = np.full(len(truth), np.nan)
    for i in np.flatnonzero(np.isfinite(recon).all(axis=(1, 2, 3))):
        scores[i] = structural_similarity(truth[i], recon[i], data_range=data_range, channel_axis=2, **options)
    return scores


def prediction_kl(target_log_probabilities: Array, reconstruction_log_probabilities: Array) -> np.ndarray:
    """KL divergence from a judge's prediction for each target to that for its reconstruction, (m,) nats.

    sum over classes of p_target (log p_target - log p_reconstruction), in float64 and from logarithms, so that a class
    that float32 calls impossible costs no precision. Infinite where the reconstruction excludes a class that the
    target has; small where the judge reads the same in both, which two quite different images may give.

    Args:
        target_log_probabilities: (m, C) natural logarithms of probabilities, e.g. of
            `drjax.nets.judge.Judge.log_probabilities`; -inf is the logarithm of 0.
        reconstruction_log_probabilities: The same of the reconstructions; rows may hold nan, which scores nan.

    Raises:
        ValueError: not two numeric arrays of one shape, nan in the targets', or rows whose probabilities do not sum
            to 1.

    Source: BCH22, section V-B.
    """
    p = _log_probabilities(target_log_probabilities, "target_log_probabilities")
    q = _log_probabilities(reconstruction_log_probabilities, "reconstruction_log_probabilities")
    if p.shape != q.shape:
        raise ValueError(f"reconstruction_log_probabilities must have the targets' shape {p.shape}, got {q.shape}")
    if np.isnan(p).any():
        raise ValueError(
            f"target_log_probabilities must not be nan, got {int(np.isnan(p).any(axis=1).sum())} such rows"
        )
    probability = np.exp(p)
    # A class of probability 0 adds nothing, though the other prediction may exclude it too: 0 log(0 / 0) = 0.
    possible = probability > 0
    kl = np.sum(probability * (np.where(possible, p, 0.0) - np.where(possible, q, 0.0)), axis=1)
    # Rounding may leave a divergence of 0 at -1e-17.
    return np.where(np.isnan(q).any(axis=1), np.nan, np.maximum(kl, 0.0))


def lpips(
    reconstructions: Array,
    targets: Array,
    *,
    image_shape: tuple[int, ...],
    weights: str | Path | None,
    net: str = "alex",
) -> np.ndarray:
    """Learned perceptual distance of each pair of images, (m,) float64, >= 0; 0 for equal images.

    By the package lpips, which is not installed with drjax (`pip install 'drjax[lpips]'`), and from a file of weights
    that the user brings: nothing is downloaded, and torch reads tensors only. Where the weights may be had,
    `torch.save(lpips.LPIPS(net="alex").state_dict(), path)` makes one. Grey images are repeated to three channels.

    Args:
        reconstructions: (m, d), cut to [0, 1], the range that the networks know; rows may hold nan.
        targets: (m, d) flattened images in [0, 1].
        image_shape: (h, w), (h, w, 1) or (h, w, 3), of product d; sides of at least `LPIPS_MIN_SIDE` pixels.
        weights: State dictionary of the whole LPIPS network: backbone and linear layers.
        net: Backbone of the weights: "alex" or "vgg", the only one of the two for images of 28 x 28.

    Raises:
        ImportError: lpips or torch is not installed.
        ValueError: weights is None, no file or not of this network; shapes that do not match, or a value out of range.

    Source: Zhang, Isola, Efros, Shechtman & Wang (2018), version 0.1 of their weights.
    """
    validate.one_of(LPIPS_MIN_SIDE, net=net)
    recon, truth, shape = _images(reconstructions, targets, image_shape, min_side=LPIPS_MIN_SIDE[net])
    validate.one_of((1, 3), channels=shape[2])
    validate.probability(targets=truth)
    if weights is None or not Path(weights).is_file():
        raise ValueError(f"weights must be the file of an LPIPS state dictionary, got {weights!r}")
    distance, torch = _lpips_network(Path(weights), net)
    scores = np.full(len(truth), np.nan)
    used = np.flatnonzero(np.isfinite(recon).all(axis=(1, 2, 3)))
    with torch.no_grad():
        for start in range(0, used.size, LPIPS_CHUNK):
            rows = used[start : start + LPIPS_CHUNK]
            pair = (torch.from_numpy(_for_lpips(images[rows])) for images in (recon, truth))
            scores[rows] = np.asarray(distance(*pair)).reshape(-1)
    return scores


def oracle_percentiles(
    targets: Array, records: Array, *, percentiles: Sequence[float] = (1, 10, 50)
) -> OracleDistances:
    """Mean squared errors that an adversary reaches who answers with a record it already holds.

    The nearest record's distance is exact (`metrics.nearest`, 0 for a copy of the target). Those behind the
    percentiles come from matrix products in float64 and are good to about 1e-14 of the squared norms. Percentiles are
    interpolated linearly between records. Costs 4 m N d FLOP, in chunks of `metrics.CHUNK_ENTRIES` distances.

    Args:
        targets: (m, d), the records attacked.
        records: (N, d), all records that the adversary holds; the targets are not among them.
        percentiles: p numbers in [0, 100].

    Raises:
        ValueError: not finite numeric arrays with the same number of columns, or a percentile out of range.

    Source: BCH22, section V-B and figure 3.
    """
    truth = validate.matrix(targets, "targets").astype(np.float64)
    m, d = truth.shape
    held = validate.matrix(records, "records", columns=d)
    wanted = np.asarray(percentiles, np.float64)
    if wanted.ndim != 1 or not wanted.size or not ((wanted >= 0) & (wanted <= 100)).all():
        raise ValueError(f"percentiles must be numbers in [0, 100], got {percentiles}")
    nearest = metrics.nearest(truth, held)[1]
    # Centred, because what the squared norms exceed the squared distances by is lost in digits.
    center = held.mean(axis=0, dtype=np.float64)
    centered = held - center
    squared_norms = np.einsum("ij,ij->i", centered, centered)
    step = max(1, metrics.CHUNK_ENTRIES // len(held))
    total = np.zeros(wanted.size)
    for start in range(0, m, step):
        q = truth[start : start + step] - center
        squared = np.einsum("ij,ij->i", q, q)[:, None] + squared_norms - 2 * (q @ centered.T)
        total += np.percentile(np.maximum(squared, 0.0), wanted, axis=1, overwrite_input=True).sum(axis=1)
    return OracleDistances(float(nearest.mean()) / d, total / (m * d))


def _images(
    reconstructions: Array, targets: Array, image_shape: tuple[int, ...], *, min_side: int
) -> tuple[np.ndarray, np.ndarray, tuple[int, int, int]]:
    """Both as (m, h, w, c) float64, and (h, w, c)."""
    if len(image_shape) not in (2, 3):
        raise ValueError(f"image_shape must be (h, w) or (h, w, c), got {image_shape}")
    height, width, channels = (*image_shape, 1)[:3]
    validate.integer(minimum=min_side, **{"image_shape[0]": height, "image_shape[1]": width})
    validate.integer(**{"image_shape[2]": channels})
    recon, truth = metrics.pairs(reconstructions, targets)
    validate.matrix(truth, "targets", columns=math.prod(image_shape))
    shape = (height, width, channels)
    return recon.reshape(-1, *shape), truth.reshape(-1, *shape), shape


def _log_probabilities(values: Array, name: str) -> np.ndarray:
    """(m, C) float64, each row normalised or with a nan."""
    validate.shape_2d(**{name: values})
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be numeric, got dtype {array.dtype}")
    array = array.astype(np.float64)
    with np.errstate(over="ignore"):
        total = np.exp(array).sum(axis=1)
    wrong = ~np.isnan(total) & ~(np.abs(total - 1) <= LOG_SUM_TOLERANCE)
    if wrong.any():
        raise ValueError(
            f"{name} must be logarithms of probabilities that sum to 1, got {int(wrong.sum())} rows that do not, the "
            f"first of sum {total[wrong][0]:g}"
        )
    return log_softmax(array, axis=1)


def _lpips_network(weights: Path, net: str) -> tuple[Any, Any]:
    """The network with the user's weights, and the module torch."""
    try:
        import lpips as package
        import torch
    except ImportError as error:
        raise ImportError("LPIPS needs the packages lpips and torch: run `pip install lpips torch`") from error
    # Random layers everywhere: what the package would load or download by itself is replaced at once.
    network = package.LPIPS(net=net, pretrained=False, pnet_rand=True, verbose=False)
    try:
        network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    except (RuntimeError, UnpicklingError, EOFError, AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"weights must be a state dictionary of LPIPS with backbone {net}, got {weights}") from error
    return network, torch


def _for_lpips(images: np.ndarray) -> np.ndarray:
    """(b, h, w, c) in [0, 1] to (b, 3, h, w) float32 in [-1, 1]."""
    channels_first = (2 * np.clip(images, 0, 1) - 1).astype(np.float32).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(np.broadcast_to(channels_first, (len(images), 3, *images.shape[1:3])))
