"""What the ranks of a training do together: rank 0 says what comes next, the others do it with their shards.

Rank 0 alone decides, saves, evaluates, publishes and talks. Between two words a rank asks nobody but those that compute
the same; so all do the same, in the same order, whatever a clock says. On-policy, the others `follow`: they play, too.
Off-policy, they `assist`: they have the learner alone, as rank 0 hands it out, and make its updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from typing import Any

from trainer.algorithms.base import Algorithm
from trainer.algorithms.common.adoption import learned_of
from trainer.algorithms.common.sharding import Sample
from trainer.machine.group import Group, must_be_the_same, packed, unpacked
from trainer.training.run import TrainingRun, advance, capture, learn_the_rest, row

_LEARNER = "algorithm"


class Order(IntEnum):
    """What rank 0 says."""

    ADVANCE = auto()
    ROW = auto()
    CAPTURE = auto()
    LOAD = auto()
    WAIT = auto()
    END = auto()


def hand_out(run: TrainingRun) -> None:
    """Give the learner of rank 0 to those that assist: at the begin, and where it was replaced."""
    if run.experience is not None and run.group.size > 1:
        run.group.tell(Order.LOAD)
        run.group.share(packed({_LEARNER: run.algorithm.state()}))


def assist(algorithm: Algorithm, group: Group) -> None:
    """All that a rank but the first does of an off-policy training, until rank 0 ends it.

    Errors: RanksError where the learners differ, or rank 0 is gone; ElsewhereError with what it said.
    """
    while True:
        word = group.tell()
        if word == Order.ADVANCE:
            for _ in range(group.tell()):
                algorithm.learn(Sample.unpacked(group.share()))
        elif word == Order.LOAD:
            algorithm.load(unpacked(group.share())[_LEARNER])
        elif word == Order.CAPTURE:
            must_be_the_same(group, {_LEARNER: learned_of(algorithm.state())})
        elif word == Order.END:
            return


def follow(run: TrainingRun, numeric: Mapping[str, Any]) -> None:
    """All that a rank but the first does of an on-policy training, until rank 0 ends it.

    Errors: as `advance`, `row` and `capture`.
    """
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
