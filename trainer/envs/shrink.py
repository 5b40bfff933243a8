"""Pictures brought to another size: every pixel is the mean of the area that it covers, exactly, on any machine."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import F64


def resized(picture: npt.NDArray[Any], height: int, width: int) -> npt.NDArray[np.uint8]:
    """[H, W, C] uint8 as [height, width, C], rounded; halves up. The sums are whole numbers that float64 holds, so the
    order in which they are added does not matter.
    """
    had = picture.shape[:2]
    if had == (height, width):
        return np.array(picture, np.uint8)
    rows = np.tensordot(_covered(had[0], height), picture.astype(np.float64), 1)
    sums = np.tensordot(rows, _covered(had[1], width), (1, 1)).swapaxes(1, 2)
    area = had[0] * had[1]
    small: npt.NDArray[np.uint8] = ((2 * sums + area) // (2 * area)).astype(np.uint8)
    return small


@lru_cache(maxsize=16)
def _covered(pixels: int, wanted: int) -> F64:
    """[wanted, pixels] how much of each old pixel a new one covers, in parts of 1/wanted of an old one: whole numbers,
    `pixels` together.
    """
    begins, ends = np.arange(wanted) * pixels, np.arange(1, wanted + 1) * pixels
    old = np.arange(pixels) * wanted
    covered: F64 = np.minimum(ends[:, None], old + wanted) - np.maximum(begins[:, None], old)
    return np.maximum(covered, 0).astype(np.float64)
