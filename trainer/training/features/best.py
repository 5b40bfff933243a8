"""The nets of the checkpoint that was evaluated best stay, whatever else is cleared away."""

from __future__ import annotations

from anchorleg.job import Job
from trainer.history.read import best_evaluation, best_left, read_evaluations
from trainer.training.features.base import Feature


class BestCheckpoint(Feature):
    """Of all evaluations of the slot; also the best without what a decision to go back passes over."""

    def __init__(self, job: Job) -> None:
        self._slot_dir = job.slot_dir

    def kept_steps(self) -> frozenset[int]:
        rows = read_evaluations(self._slot_dir)
        bests = best_evaluation(rows), best_left(self._slot_dir, rows)
        return frozenset(best["step"] for best in bests if best is not None)
