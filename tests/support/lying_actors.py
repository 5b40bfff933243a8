"""`python lying_actors.py HONEST WORDS...`: `trainer WORDS...`; but after the first HONEST its segments say that every
step paid 10.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import count

import numpy as np

from trainer.cli import main
from trainer.sharing import recorder
from trainer.sharing.segment import Segment, encode


def lie_after(honest: int) -> None:
    number = count()

    def dishonest(segment: Segment) -> bytes:
        if next(number) < honest:
            return encode(segment)
        return encode(replace(segment, reward=np.full_like(segment.reward, 10)))

    recorder.encode = dishonest


if __name__ == "__main__":
    lie_after(int(sys.argv.pop(1)))
    main()
