"""Publishes one policy after the other until it is killed: `publish_often.py SHARED ATTEMPT WIDE`."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

from policies import publish_one

from syncd.store import Shared

#: Faster than any learner; slow enough that a reader on the same two cores gets a word in.
GAP_S = 0.02


def main(shared: Path, attempt: int, wide: int) -> None:
    """Until the end."""
    for seq in itertools.count(1):
        publish_one(Shared(shared), attempt, seq, wide=wide)
        time.sleep(GAP_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
