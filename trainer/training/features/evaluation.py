"""The evaluations of one attempt: one at a time, oldest first, while the training goes on.

Nothing is skipped: a history that has some evaluations or others, depending on how busy the machine was, can be
compared with no other. Where evaluations take longer than training from one to the next, the loop waits once more than
`MAX_PENDING` are open: that takes as long in all as letting them pile up would, and bounds the nets that are kept.

An evaluation that ends badly is made once more, then left out. One that several jobs began and none ended is left out
too, for it does not fit into a job, or is what ends them. While the slot's folder cannot be read it waits, at the end
for the slot's next job. Neither ever ends the training.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from anchorleg.job import CheckpointRef, Job, candidates_before
from trainer.config.training import Training
from trainer.evaluation.process import (
    EVALUATING,
    Begin,
    EvaluationRequest,
    EvaluatorError,
    Running,
    read_past,
    spare_workers,
)
from trainer.evaluation.protocol import MIN_LANES
from trainer.history.read import EVALUATIONS, Journal, mean_return, success_of
from trainer.machine.host import read_host
from trainer.training.features.base import EndReason, Feature, RunningAttempt
from trainer.training.run import crossed

#: One under way and one waiting. With more the loop waits.
MAX_PENDING = 2
#: The training comes first where both want the same core: it gets three quarters of it. With 10 it would get nine
#: tenths, and where others' programs run too nothing would be left (4 % of a core, beside five of them on two cores).
NICE = 5
#: One evaluation in so many plays the moving average too, on the same goals, and the last one does: each costs half as
#: much again (its unseen goals are not played), so a quarter in all.
AVERAGED_EVERY = 2
#: Times that an evaluation is tried in one job: a second one overcomes what was chance, a third seldom the rest.
MAX_TRIES = 2
#: The first of these jobs may have had only its last minutes for it, the second may have been killed.
MAX_JOBS = 3
#: While the training waits for an evaluation it looks this often whether it should hand over.
LOOK_S = 0.1


class Evaluations(Feature):
    """`workers`: processes that step the environments of the training, or of each rank."""

    def __init__(self, job: Job, training: Training, evaluator: Begin, workers: int) -> None:
        self._job, self._training, self._evaluator, self._workers = job, training, evaluator, workers
        self._chosen: list[int] = []
        self._kept: frozenset[int] = frozenset()
        self._results = Journal(job.attempt_dir / EVALUATIONS)
        self._journal = Journal(job.attempt_dir / EVALUATING)
        self._running: Running | None = None
        self._tries = 0
        self._unread = False

    def begin(self, run: RunningAttempt) -> None:
        self._run, here = run, run.state.group.here
        # Each rank here has threads, and workers unless it only assists.
        workers = self._workers * (1 if self._training.uses_experience else here)
        self._busy = here * self._training.threads + workers
        past = read_past(self._job.slot_dir)
        self._last: Mapping[str, Any] | None = past.evaluations[-1] if past.evaluations else None
        self._unfinished = past.unfinished
        #: The steps whose evaluation is still to be made, oldest first; the first one may be under way.
        self._open = deque(past.pending(self._chosen) if self._training.evaluation_goals else ())

    def is_due(self, run: RunningAttempt) -> bool:
        if not run.training.evaluation_goals or not run.is_at(run.training.checkpoint_interval):
            return False
        last = self._chosen[-1] if self._chosen else 0
        return run.is_trained or crossed(last, run.state.step, run.training.evaluation_interval)

    def act(self, run: RunningAttempt) -> None:
        """Evaluate the checkpoint of this step, as soon as it is published."""
        self._chosen.append(run.state.step)
        self._open.append(run.state.step)

    def state(self) -> Mapping[str, Any]:
        return {"wanted": list(self._chosen)}

    def load(self, numbers: Mapping[str, Any]) -> None:
        self._chosen = list(numbers["wanted"])

    def before_save(self, run: RunningAttempt) -> None:
        if run.is_ending:
            self._end()
        self._results.flush()
        self._journal.flush()
        self._kept = frozenset(self._open)

    def kept_steps(self) -> frozenset[int]:
        return self._kept

    def look(self, run: RunningAttempt) -> None:
        """Count in what has come, and begin what is next."""
        if run.is_ending:
            return
        if self._running is not None:
            self._collect_result(self._running)
        published = run.saver.published_step
        while self._running is None and self._open and published is not None and self._open[0] <= published:
            if not self._begin_evaluation(self._open[0], alone=published >= self._training.total_steps):
                break

    def waits(self, run: RunningAttempt) -> bool:
        """For one that is under way, or about to be: what cannot be written must not stop the training."""
        if len(self._open) <= (0 if run.is_trained else MAX_PENDING):
            return False
        if self._running is None:
            return False
        more = f" ({self._running.words})" if self._running.words else ""
        run.doing = f"evaluating step {self._open[0]:,}{more}"
        self._running.wait(LOOK_S)
        return True

    def is_complete(self, run: RunningAttempt) -> bool:
        return not self._open

    def facts(self, run: RunningAttempt) -> Mapping[str, Any]:
        if (last := self._last) is None:
            return {}
        told = {"success": success_of(last), "return": mean_return(last), "evaluation_goals": last["goals_per_task"]}
        return {name: value for name, value in told.items() if value is not None}

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        self._end()

    def _end(self) -> None:
        """Take the result if there is one, else stop the evaluation that is under way: the next attempt makes it."""
        if self._running is not None:
            self._collect_result(self._running)
        if self._running is not None:
            self._running.end()
            self._running = None

    def _collect_result(self, running: Running) -> None:
        step = self._open[0]
        try:
            result = running.poll()
        except EvaluatorError as error:
            self._failed(step, error)
            return
        if result is None:
            return
        self._close()
        row = {"step": step, **result.as_json()}
        self._results.add(row)
        self._last = row
        for feature in self._run.features:
            feature.on_evaluation(self._run, row)
        self._run.say(f"evaluated step {step:,}: {result.summary()}")

    def _begin_evaluation(self, step: int, *, alone: bool) -> bool:
        """Begin the evaluation of `step`, or leave it out. `alone`: the training is over and waits for it. False:
        neither, for where its checkpoint lies cannot be read now.
        """
        if self._unfinished.get(step, 0) >= MAX_JOBS:
            self._leave_out(step, f"{MAX_JOBS} jobs began it, and none finished it")
            return True
        try:
            ref = self._checkpoint_of(step)
        except (OSError, ValueError) as error:
            if not self._unread:
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                self._run.say(f"the evaluation of step {step:,} waits ({why}); the training continues")
            self._unread = True
            return False
        self._unread = False
        if ref is None:
            self._leave_out(step, "its checkpoint was not written, or is gone")
            return True
        if self._tries == 0:
            self._journal.add({"step": step, "begun": True})
        lanes = max(len(self._training.env.tasks), MIN_LANES)
        request = EvaluationRequest(
            checkpoint=ref.path,
            goals=self._training.evaluation_goals,
            unseen_goals=self._training.evaluation_unseen_goals,
            averaged=self._plays_average(step),
            goals_dir=self._job.run_dir / "goals",
            workers=spare_workers(read_host().cores, 0 if alone else self._busy, lanes),
            nice=0 if alone else NICE,
        )
        try:
            self._running = self._evaluator(request)
        except EvaluatorError as error:
            self._failed(step, error)
        return True

    def _checkpoint_of(self, step: int) -> CheckpointRef | None:
        """The line's, None where it has none. Errors: OSError, ValueError where that cannot be read."""
        line = candidates_before(self._job.slot_dir, self._job.attempt + 1)
        return next((ref for ref in line if ref.step == step), None)

    def _plays_average(self, step: int) -> bool:
        """Whether the moving average is played beside it: by its place among all that were chosen, and not by time."""
        place = self._chosen.index(step) + 1
        return bool(self._training.averaging) and (place % AVERAGED_EVERY == 0 or step >= self._training.total_steps)

    def _failed(self, step: int, error: EvaluatorError) -> None:
        self._running = None
        self._tries += 1
        if self._tries < MAX_TRIES:
            self._run.say(f"the evaluation of step {step:,} failed ({error}); it is repeated once")
        else:
            self._leave_out(step, f"it failed {MAX_TRIES} times ({error})")

    def _leave_out(self, step: int, why: str) -> None:
        self._close()
        self._journal.add({"step": step, "left_out": why})
        self._run.say(f"the evaluation of step {step:,} is skipped: {why}; the training continues")

    def _close(self) -> None:
        self._open.popleft()
        self._running, self._tries = None, 0
