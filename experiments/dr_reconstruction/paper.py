"""Figures that paper 000 prints, to be read beside ours.

Source: Lumbut & Ponnoprat, "Investigating Privacy Leakage in Dimensionality Reduction Methods via Reconstruction
Attack", Table 4: mean squared error on MNIST with 199 known records, mean and standard deviation over five repeats.
"""

from __future__ import annotations

SIZES = (9, 99, 199, 499, 999)
"""Of the known set, on both data sets."""

N_SHADOW, N_TARGETS, N_REPEATS, RECIPE = 4000, 500, 5, "paper000"
"""Shadow releases that a network is trained on, releases attacked, repeats, and the training of section 4 by name."""

NOISE_DATA, NOISE_KNOWN, NOISE_SIGMA = "mnist", 99, 32
"""Section 6, and its largest noise on pixels from 0 to 255."""

TABLE_4_DATA, TABLE_4_KNOWN = "mnist", 199

TABLE_4 = {
    "dense-network": {
        "pca": (0.056, 0.004),
        "srp": (0.079, 0.008),
        "mds": (0.075, 0.006),
        "isomap": (0.068, 0.003),
        "tsne": (0.077, 0.001),
        "umap": (0.079, 0.001),
    },
    "network": {
        "pca": (0.037, 0.004),
        "srp": (0.082, 0.003),
        "mds": (0.074, 0.001),
        "isomap": (0.055, 0.004),
        "tsne": (0.074, 0.004),
        "umap": (0.079, 0.017),
    },
}
"""Attack -> method -> mean and standard deviation."""

METHOD_NAMES = {
    "pca": "PCA",
    "srp": "SRP",
    "mds": "MDS",
    "isomap": "Isomap",
    "tsne": "t-SNE",
    "umap": "UMAP",
}

DATA_NAMES = {
    "mnist": "MNIST",
    "nih_chest_xray": "NIH chest X-ray",
    "cxr_mednist": "chest X-ray (MedNIST)",
    "digits": "digits (8x8)",
}

X_RAYS = ("nih_chest_xray", "cxr_mednist")
"""Sets that the paper's claims on chest X-rays are put to, each by itself. The paper drew 5,000 images of the NIH's
112,120; the first set has 1,000 of them with patients, the second 2,000 without, and they may share images."""

DETERMINISTIC = ("pca", "isomap")
RANDOMISED = ("srp", "mds", "tsne", "umap")
"""As the paper divides them, section 2.1."""
