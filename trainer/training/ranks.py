"""What the ranks of a training do together: rank 0 says what comes next, the others do it with their shards.

Rank 0 alone decides, saves, evaluates, publishes and talks. Between two words a rank asks nobody but those that compute
the same; so all do the same, in the same order, whatever a clock says.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Any

from trainer.training.run import TrainingRun, advance, capture, learn_the_rest, row


class Order(IntEnum):
    """What rank 0 says."""

    ADVANCE = auto()
    ROW = auto()
    CAPTURE = auto()
    WAIT = auto()
    END = auto()


def follow(run: TrainingRun, numeric: Mapping[str, Any]) -> None:
    """All that a rank but the first does, until rank 0 ends the training. Errors: as `advance`, `row` and `capture`."""
    while True:
        word = run.group.tell()
        if word == Order.ADVANCE:
            advance(run)
            if run.step >= run.training.total_steps:
                learn_the_rest(run)
        elif word == Order.ROW:
            row(run)
        elif word == Order.CAPTURE:
            capture(run, numeric)
        elif word == Order.END:
            return
