"""What outlasts the clearing away of checkpoints: the nets of the one that was evaluated best, and the policy of a
complete training as one file, `final.safetensors`, in the folder of the attempt that completed it.

The file is made of the last checkpoint, so it can be made again at any time, and a job that was killed before it came
to it leaves that to the next one. Of a slot there is one: the one before goes when a longer training has left its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anchorleg.job import Job, attempt_numbers, candidates_before
from trainer.errors import ConfigError, TrainerError
from trainer.evaluation.playable import of_checkpoint
from trainer.exporting.export import export
from trainer.history.read import best_evaluation, best_left, read_evaluations
from trainer.training.features.base import EndReason, Feature, RunningAttempt

FINAL = "final.safetensors"


class BestCheckpoint(Feature):
    """Of all evaluations of the slot; also the best without what a decision to go back passes over."""

    def __init__(self, job: Job) -> None:
        self._slot_dir = job.slot_dir

    def kept_steps(self) -> frozenset[int]:
        rows = read_evaluations(self._slot_dir)
        bests = best_evaluation(rows), best_left(self._slot_dir, rows)
        return frozenset(best["step"] for best in bests if best is not None)


class FinalExport(Feature):
    """Writes it where the training is complete."""

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        if reason is EndReason.FINISHED:
            leave_final(run.job, run.say)


def leave_final(job: Job, say: Callable[[str], None]) -> None:
    """Write the final policy, and say where it is. For a complete training only.

    What goes wrong is said: the training is complete all the same.
    """
    try:
        if job.superseded_by() is not None:
            return  # it does so itself
        last = next(candidates_before(job.slot_dir, job.attempt + 1))
        path = job.attempt_dir / FINAL
        export(of_checkpoint(last.path, "cpu"), path)
        for older in finals(job):
            if older != path:
                older.unlink(missing_ok=True)
    except ConfigError as error:  # it never can be
        say(f"no final policy is written: {error}; the training is complete, and its checkpoints contain the policy")
    except Exception as error:  # noqa: BLE001 - whatever an export dies of, the training is complete
        why = str(error) if isinstance(error, TrainerError) else f"{type(error).__name__}: {error}"
        say(f"the final policy is missing ({why}); the training is complete: write it with `trainer export`")
    else:
        say(f"the final policy: {path}")


def finals(job: Job) -> list[Path]:
    """The final policies of the job's slot, of its own attempt and older ones."""
    numbers = [number for number in attempt_numbers(job.slot_dir) if number <= job.attempt]
    paths = [job.slot_dir / "attempts" / str(number) / FINAL for number in numbers]
    return [path for path in paths if path.exists()]
