"""The random streams of a training: one for each use, from the seed, so that taking from one changes no other."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class RandomStream(IntEnum):
    """What each is for. Their numbers are part of what a seed means: none is used again (6 was one). A plug-in's are
    its own from `PLUGIN` on.
    """

    NETS = 0
    NOISE = 1
    SAMPLING = 2
    EXPLORATION = 3
    OTHERS_SAMPLING = 4
    PROBE = 5
    ORDER = 7
    DEMOS_SAMPLING = 8
    GROUP_SAMPLING = 9
    PLUGIN = 100


def seeds_of(seed: int, stream: int, *more: int) -> np.random.SeedSequence:
    """What generators of `stream` are made of; `more` numbers tell several of them apart."""
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *more))


def generator(seed: int, stream: int) -> np.random.Generator:
    """NumPy's generator of `stream`, at its beginning."""
    return np.random.default_rng(seeds_of(seed, stream))
