"""Discs and circles of the search for markers, by scikit-image's discs and by circles that are known."""

import numpy as np
import pytest
from skimage.draw import disk

from drjax.attacks.property import circles


@pytest.mark.parametrize("dtype", [bool, float])
def test_discs_are_those_of_scikit_image(dtype):
    rng = np.random.default_rng(0)
    image = rng.uniform(size=(31, 24)).round().astype(dtype)
    # Some on whole and half pixels, where middles lie on the circle; some over the edges, some beyond.
    places = np.concatenate([rng.uniform(-6, 36, (150, 2)), rng.integers(-12, 72, (150, 2)) / 2])
    for at, radius in zip(places, rng.choice([0.8, 1.0, 2.5, 4.3, 7.0], 300), strict=True):
        within = disk((at[1] - 0.5, at[0] - 0.5), radius, shape=image.shape)
        expected = image[within].mean() if len(within[0]) else 0
        assert circles.mean_in_disc(image, at, radius) == pytest.approx(expected, abs=1e-15)
        left, cleared = image > 0, image > 0
        left[within] = False
        circles.clear_discs(cleared, at[None], radius)
        np.testing.assert_array_equal(cleared, left)


def test_a_circle_goes_through_the_arc_next_to_it():
    angles = np.linspace(0.3, 2.8, 60)
    outward = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points, lengths = np.array([7.3, 5.1]) + 4 * outward, np.full(60, 4 * np.diff(angles)[0])
    # Two strangers: one that looks the other way, one that lies elsewhere.
    points = np.concatenate([points, points[:1], [[7.3, 6.0]]])
    inward, lengths = np.concatenate([-outward, outward[:1], [[0.0, -1.0]]]), np.append(lengths, [0.2, 0.2])
    start = np.array([7.5, 4.8])
    centre, is_on = circles.circle_through(points, inward, lengths, np.arange(62), start, 4.0, 0.7)
    # The thousandth that keeps a step from growing without bound slows the last ones down.
    np.testing.assert_allclose(centre, [7.3, 5.1], atol=1e-8)
    np.testing.assert_array_equal(is_on, np.arange(62) < 60)
    alone, _ = circles.circle_through(points, inward, lengths, np.arange(1), start, 4.0, 0.7)
    np.testing.assert_array_equal(alone, start)
