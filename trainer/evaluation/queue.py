"""The evaluations of one attempt: one at a time, oldest first, while the training goes on.

Nothing is skipped: a history that has some evaluations or others, depending on how busy the machine was, can be
compared with no other. Where evaluations take longer than training from one to the next, the loop waits once more than
`MAX_PENDING` are open (`TrainingAttempt.wait_for_evaluations`). That takes as long in all as letting them pile up until
the end would, and bounds the nets that are kept for them.

An evaluation that ends badly is made once more, then left out. One that several jobs began and none ended is left out
too, for it does not fit into a job, or is what ends them. While the slot's folder cannot be read it waits. Neither
ever ends the training.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anchorleg.job import CheckpointRef, Job, candidates_before
from trainer.config.training import Training
from trainer.evaluation.past import EVALUATING, read_past
from trainer.evaluation.process import Begin, EvaluationRequest, EvaluatorError, Running, spare_workers
from trainer.evaluation.protocol import MIN_LANES
from trainer.history.journal import EVALUATIONS, Journal
from trainer.machine.host import read_host

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
#: While the slot's folder cannot be read it is looked at again after so long.
LOOK_AGAIN_S = 1.0
#: For so long a training that is over waits for it; then the slot's next job evaluates.
UNREAD_WAIT_S = 60.0

OnResult = Callable[[Mapping[str, Any]], None]


class Evaluations:
    """All methods are for the loop's thread and return at once, but `wait`.

    `wanted`: all steps that the run has chosen so far. `busy`: the cores that the training has here.
    `on_result` gets each new row of `evaluations.jsonl`, `say` the sentences for the user.
    """

    def __init__(
        self,
        job: Job,
        training: Training,
        wanted: Sequence[int],
        *,
        begin: Begin,
        busy: int,
        say: Callable[[str], None],
        on_result: OnResult,
    ) -> None:
        past = read_past(job.slot_dir)
        self.last: Mapping[str, Any] | None = past.evaluations[-1] if past.evaluations else None
        self.last_averaged = next((row for row in reversed(past.evaluations) if "averaged" in row), None)
        self._chosen = list(wanted)
        self._job = job
        self._training = training
        self._begin = begin
        self._busy = busy
        self._say = say
        self._on_result = on_result
        self._results = Journal(job.attempt_dir / EVALUATIONS)
        self._journal = Journal(job.attempt_dir / EVALUATING)
        self._unfinished = past.unfinished
        self._open = deque(past.pending(wanted) if training.evaluation_goals else ())
        self._running: Running | None = None
        self._tries = 0
        self._look_at: float | None = None
        self._unread_since = 0.0

    @property
    def pending(self) -> tuple[int, ...]:
        """The steps whose evaluation is still to be made, oldest first; the first one may be under way."""
        return tuple(self._open)

    @property
    def is_worth_waiting(self) -> bool:
        """Whether one is under way, or tries again in a moment to begin."""
        tries = self._look_at is not None and time.monotonic() - self._unread_since < UNREAD_WAIT_S
        return self._running is not None or tries

    @property
    def words(self) -> str:
        """What is being done."""
        if not self._open:
            return ""
        more = f" ({self._running.words})" if self._running is not None and self._running.words else ""
        return f"evaluating step {self._open[0]:,}{more}"

    def want(self, step: int) -> None:
        """Evaluate the checkpoint of `step`, as soon as it is published."""
        self._chosen.append(step)
        self._open.append(step)

    def poll(self, published_step: int | None) -> None:
        """Count in what has come, and begin what is next. `published_step`: the newest checkpoint's."""
        if self._running is not None:
            self._take(self._running)
        while self._running is None and self._open and published_step is not None and self._open[0] <= published_step:
            if not self._next(self._open[0], alone=published_step >= self._training.total_steps):
                break

    def wait(self, seconds: float) -> None:
        """Until the one under way has ended, and no longer than that."""
        if self._running is not None:
            self._running.wait(seconds)
        else:
            time.sleep(seconds)

    def flush(self) -> None:
        """Write what waits in memory. Errors: OSError."""
        self._results.flush()
        self._journal.flush()

    def end(self) -> None:
        """Take the result if there is one, else stop the evaluation that is under way: the next attempt makes it."""
        if self._running is not None:
            self._take(self._running)
        if self._running is not None:
            self._running.end()
            self._running = None

    def _take(self, running: Running) -> None:
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
        self.last = row
        self._on_result(row)
        self._say(f"evaluated step {step:,}: {result.summary()}")

    def _next(self, step: int, *, alone: bool) -> bool:
        """Begin the evaluation of `step`, or leave it out. `alone`: the training is over and waits for it. False:
        neither, for where its checkpoint lies cannot be read now.
        """
        if self._unfinished.get(step, 0) >= MAX_JOBS:
            self._leave_out(step, f"{MAX_JOBS} jobs began it and none came to its end")
            return True
        if self._look_at is not None and time.monotonic() < self._look_at:
            return False
        try:
            ref = self._checkpoint_of(step)
        except (OSError, ValueError) as error:
            if self._look_at is None:
                self._unread_since = time.monotonic()
                why = (error.strerror if isinstance(error, OSError) else None) or str(error)
                self._say(f"the evaluation of step {step:,} waits ({why}); trying again, the training goes on")
            self._look_at = time.monotonic() + LOOK_AGAIN_S
            return False
        self._look_at = None
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
            self._running = self._begin(request)
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
            self._say(f"the evaluation of step {step:,} failed ({error}); it is made once more")
        else:
            self._leave_out(step, f"it failed {MAX_TRIES} times ({error})")

    def _leave_out(self, step: int, why: str) -> None:
        self._close()
        self._journal.add({"step": step, "left_out": why})
        self._say(f"the evaluation of step {step:,} is left out: {why}; the training goes on")

    def _close(self) -> None:
        self._open.popleft()
        self._running, self._tries = None, 0
