"""What the loop asks of a feature of a training, and what it shows to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from anchorleg.job import Job
from trainer.checkpoints.resume import Start
from trainer.checkpoints.saver import Saver
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.training.run import TrainingRun, crossed

TRAINING = "training"


class EndReason(Enum):
    """Why an attempt ends."""

    FINISHED = "finished"
    HANDED_OVER = "handed over"
    FAILED = "failed"


@dataclass
class RunningAttempt:
    """One attempt of one slot, as features see it. `start`: the checkpoint that it goes on from; `before`: the step
    before the newest vector step; `doing`: what it is busy with, for people.

    For features to set: `ends_unsaved`: the attempt ends at this barrier and saves nothing more.
    """

    job: Job
    training: Training
    state: TrainingRun
    start: Start | None
    saver: Saver
    say: Callable[[str], None]
    features: Sequence[Feature]
    before: int = 0
    doing: str = TRAINING
    is_ending: bool = False
    ends_unsaved: bool = False

    @property
    def is_trained(self) -> bool:
        """Whether all steps are made."""
        return self.state.step >= self.training.total_steps

    def is_at(self, interval: int) -> bool:
        """Whether what is due each `interval` steps is due now. The last step is a multiple of all."""
        return self.is_trained or crossed(self.before, self.state.step, interval)

    def kept_steps(self) -> frozenset[int]:
        """The steps of the checkpoints whose nets features need. Errors: as `Feature.kept_steps`."""
        return frozenset(step for feature in self.features for step in feature.kept_steps())

    def look(self) -> None:
        """Have all features count in what came meanwhile."""
        for feature in self.features:
            feature.look(self)


class Feature:
    """Something that a training does beside learning. The loop calls it between two vector steps, on rank 0 alone, in
    the order of the list that `begin.py` makes, and knows nothing else of it. None waits for the world outside. What is
    due depends on the steps alone, never on a clock.
    """

    def begin(self, run: RunningAttempt) -> None:
        """Once, after `load`, before the first step."""

    def after_step(self, run: RunningAttempt, transition: Transition | None) -> None:
        """At each barrier; `transition`: the vector step before it, None where there was only an update."""

    def is_due(self, run: RunningAttempt) -> bool:
        """Whether `act` must be called before the next step."""
        return False

    def act(self, run: RunningAttempt) -> None:
        """Before the row and the checkpoint of this step are made."""

    def state(self) -> Mapping[str, Any]:
        """Its numbers in a checkpoint, which are in one dict with those of the others."""
        return {}

    def load(self, numbers: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's numbers."""

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        """A row of metrics ends: add to it, or write it down."""

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        """A row of evaluations was made; its step may be older than that of the newest row of metrics."""

    def on_version(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this attempt is about to be seen. Not in the loop's thread."""

    def before_save(self, run: RunningAttempt) -> None:
        """Write what must be on the disk before the present step's checkpoint is. Errors: OSError: none is saved."""

    def kept_steps(self) -> frozenset[int]:
        """The steps of the checkpoints whose nets must be kept. Asked after each publication, in the saver's thread.
        Errors: OSError, ValueError where it cannot tell: nothing is cleared away then.
        """
        return frozenset()

    def on_checkpoint(self, step: int) -> None:
        """The checkpoint of `step` is published."""

    def look(self, run: RunningAttempt) -> None:
        """Count in what came meanwhile: after each step, and now and then while the training stands still."""

    def waits(self, run: RunningAttempt) -> bool:
        """Wait for a moment, where the training must not go on yet; False: it may."""
        return False

    def is_complete(self, run: RunningAttempt) -> bool:
        """Whether nothing of it is left to do, where all steps are made."""
        return True

    def facts(self, run: RunningAttempt) -> Mapping[str, Any]:
        """What it adds to a report."""
        return {}

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out the sentences that wait for the user."""

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        """The attempt ends. Bounded in time, and never raises."""


@cache
def silence(*threads: str) -> None:
    """Threads of a library, by their names or classes, print no traceback: what went wrong there is said elsewhere."""
    told = threading.excepthook

    def tell(args: threading.ExceptHookArgs) -> None:
        if not {args.thread.name if args.thread else "", type(args.thread).__name__} & {*threads}:
            told(args)

    threading.excepthook = tell
