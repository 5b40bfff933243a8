"""A picture of another size is the mean of what lies under each pixel, to the last bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.envs.suites.gymnasium.sight import resized

pytestmark = pytest.mark.trainer
sides = st.integers(1, 9)


def by_hand(picture, height, width):
    """The mean of each pixel's area in whole fractions, halves up."""
    had = picture.shape[:2]

    def overlap(new, old, had, wanted):
        low, high = Fraction(new * had, wanted), Fraction((new + 1) * had, wanted)
        return max(Fraction(0), min(high, Fraction(old + 1)) - max(low, Fraction(old)))

    out = np.zeros((height, width, picture.shape[2]), np.uint8)
    for i, j, c in np.ndindex(out.shape):
        total = sum(
            overlap(i, y, had[0], height) * overlap(j, x, had[1], width) * int(picture[y, x, c])
            for y in range(had[0])
            for x in range(had[1])
        )
        mean = total * Fraction(height, had[0]) * Fraction(width, had[1])
        out[i, j, c] = (2 * mean + 1) // 2
    return out


@settings(max_examples=40, deadline=None)
@given(sides, sides, sides, sides, st.integers(0, 9))
def test_every_pixel_is_the_mean_of_its_area(had_height, had_width, height, width, seed):
    picture = np.random.default_rng(seed).integers(0, 256, (had_height, had_width, 2)).astype(np.uint8)
    assert (resized(picture, height, width) == by_hand(picture, height, width)).all()


def test_a_large_picture_is_exact_too_and_one_of_the_size_is_copied():
    picture = np.random.default_rng(0).integers(0, 256, (480, 640, 3)).astype(np.uint8)
    blocks = picture.reshape(60, 8, 80, 8, 3).astype(np.int64).sum((1, 3))
    assert (resized(picture, 60, 80) == (2 * blocks + 64) // 128).all()
    same = resized(picture, 480, 640)
    assert (same == picture).all()
    assert not np.shares_memory(same, picture)
