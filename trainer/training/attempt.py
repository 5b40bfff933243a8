"""One attempt of one slot: train, save, evaluate, hand over or finish. `trainer.training.begin` begins it.

Order within a vector step: act, learn while the environments step, remember; then the row of metrics and the checkpoint
that are due at this step. Only the steps decide what is due, so an interrupted run does the same at the same places. A
hand-over saves wherever it is, and changes nothing. Some checkpoints are evaluated, in a process of its own, while the
training goes on (`trainer.evaluation`).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anchorleg.job import HANDED_OVER, Job
from anchorleg.rollback import rollbacks
from trainer.checkpoints.resume import Start
from trainer.checkpoints.saver import Saver, failure
from trainer.config.training import Training
from trainer.envs.sharded import first_of
from trainer.errors import NotFiniteError, SaveError, SupersededError
from trainer.evaluation.process import Begin
from trainer.evaluation.queue import MAX_PENDING, Evaluations
from trainer.exporting.final import leave_final
from trainer.history.read import mean_return, success_of
from trainer.live.recorder import frame_recorder_of
from trainer.machine import device as machine
from trainer.sharing.giver import EpisodeGiver
from trainer.sharing.publisher import Publisher, Snapshot, snapshot
from trainer.sharing.spotcheck import Redo
from trainer.sharing.takings import say_over
from trainer.training.crash_report import leave_behind
from trainer.training.features.base import Feature
from trainer.training.intake import Intake
from trainer.training.progress import Reporter, TrainingProgress
from trainer.training.ranks import Order
from trainer.training.run import TrainingRun, advance, capture, crossed, learn_the_rest, row

#: `progress.json` (two fsyncs) and the display are renewed this often: the orchestrator looks every 1-30 s.
REPORT_S = 3.0
#: Rates are taken over this long: shorter jumps with every checkpoint, longer hides a stall.
RATE_WINDOW_S = 30.0
#: While the training waits for an evaluation it looks this often whether it should hand over.
LOOK_S = 0.1


@dataclass
class TrainingAttempt:
    """The loop and what it holds on to."""

    job: Job
    training: Training
    show: Reporter
    state: TrainingRun
    start: Start | None
    numeric: dict[str, Any]
    evaluator: Begin
    resimulate: Callable[[], Redo | None]
    features: Sequence[Feature]

    def __post_init__(self) -> None:
        self.saver = Saver.after(self.job, self.training, self.start)
        self.gpu = machine.GpuMeter(self.state.algorithm.device)
        self.evaluations = Evaluations(
            self.job,
            self.training,
            self.state.wanted,
            begin=self.evaluator,
            busy=self._busy_cores(),
            say=self.show.say,
            on_result=self.evaluated,
        )
        waits = partial(self._wait_for, "waiting for the files of what entered before")
        self.intake = Intake(self.job, self.training, self.start, self.resimulate, waits)
        self.publisher = Publisher(
            self.job,
            self.training,
            evaluation=self.evaluations.last,
            evaluation_averaged=self.evaluations.last_averaged,
            on_version=self._on_version,
        )
        self.giver = self._giver() if self.intake.peers is not None else None
        shown = first_of(self.state.collector.envs)
        self.recorder, self._shown = frame_recorder_of(self.job, self.training, shown), shown.num_envs
        self.doing = "training"
        self._published_updates = self.state.updates
        self._marks: deque[tuple[float, int, int]] = deque()
        self._reported_at = float("-inf")

    def _busy_cores(self) -> int:
        """Of this machine: each of its ranks has threads, and workers unless it only assists."""
        here, workers = self.state.group.here, int(self.numeric["workers"])
        return here * self.training.threads + (workers if self.training.uses_experience else here * workers)

    def _giver(self) -> EpisodeGiver:
        """What gives the other slots of the group episodes of this one."""
        state, is_fresh = self.state, self.start is None
        spaces = state.collector.envs.spaces
        return EpisodeGiver(self.job, self.training, spaces, finished=state.episodes, is_fresh=is_fresh)

    def _wait_for(self, what: str) -> None:
        """The training stands still for that long."""
        before, self.doing = self.doing, what
        self.state.group.tell(Order.WAIT)
        self.report()
        self.doing = before

    def _on_version(self, attempt: int, seq: int, step: int) -> None:
        """A policy of this attempt is about to be seen. In the publisher's thread."""
        for one in (self.intake.ingester, self.giver):
            if one is not None:
                one.know(attempt, seq, step)

    def run(self) -> int:
        """To the end, or to the hand-over. Returns the exit code."""
        try:
            for feature in self.features:
                feature.begin()
            return self._run()
        finally:
            for feature in self.features:
                feature.end()
                feature.tell(self.show.say)

    def _run(self) -> int:
        try:
            self.intake.begin()
            self.publisher.offer(self.policy())  # so that nobody waits for the first interval
            while self.state.step < self.training.total_steps and self.job.hand_over_reason() is None:
                before = self.state.step
                self.state.group.tell(Order.ADVANCE)
                transition = advance(self.state)
                if self.giver is not None and transition is not None:
                    self.giver.add(transition)
                self.intake.take(self.state)
                if self.recorder is not None:
                    self.recorder.after(self.state.step, self.state.collector.task[: self._shown])
                if self.intake.ends_unsaved:
                    self.count_published()
                    return HANDED_OVER
                self.after(before)
            if self.state.step >= self.training.total_steps and self.nothing_is_left():
                return self.finish()
            return self.hand_over()
        except SupersededError as stop:
            self.show.say(str(stop))
            return HANDED_OVER
        except NotFiniteError as error:
            with contextlib.suppress(SupersededError):
                self.count_published()  # so that the newest checkpoint is known
            raise leave_behind(self.job, self.state, error, self.saver.published_step) from error
        finally:
            self.evaluations.end()
            self.gpu.close()
            self.saver.close()
            self.publisher.close(beat=self.report)
            self.publisher.tell(self.show.say)
            for helper in (self.giver, self.intake, self.recorder):
                if helper is not None:
                    helper.close()
                    helper.tell(self.show.say)

    def after(self, before: int) -> None:
        """What is due after the vector step that began at `before`: a row, a checkpoint, an evaluation, a report."""
        state, training = self.state, self.training
        is_last = state.step >= training.total_steps
        if is_last:
            learn_the_rest(state, self.look_around)
        if crossed(self._published_updates, state.updates, training.publish_interval):
            self.publisher.offer(self.policy())
        self._published_updates = state.updates
        if is_last or crossed(before, state.step, training.metrics_interval):
            self.write_row()
        if is_last or crossed(before, state.step, training.checkpoint_interval):
            wanted = crossed(state.wanted[-1] if state.wanted else 0, state.step, training.evaluation_interval)
            if training.evaluation_goals and (is_last or wanted):
                state.wanted.append(state.step)
                self.evaluations.want(state.step)
            self.save()
            self.wait_for_evaluations(MAX_PENDING)
        self.look_around()

    def policy(self) -> Snapshot:
        """The policy as it is now."""
        state = self.state
        return snapshot(state.step, state.updates, state.algorithm.policy, state.average)

    def write_row(self) -> None:
        """Close the row of metrics."""
        self.state.group.tell(Order.ROW)
        value = row(self.state)
        for feature in self.features:
            feature.on_row(value)

    def save(self) -> bool:
        """Begin to publish the present state. False: it failed at once, and the user was told."""
        self.count_published()
        self.state.group.tell(Order.CAPTURE)
        contents = capture(self.state, self.numeric)
        try:
            rows = self.saver.unsaved(self.state.experience, partial(self._wait_for, "writing what had no room before"))
            # What the checkpoint has left behind must be on disk before the checkpoint is: nobody writes it again.
            self.flush()
        except OSError as error:
            self.show.say(failure(self.state.step, self.job, error))
            return False
        self.saver.start(contents, rows, self.evaluations.pending)
        self.publisher.hold(self.policy())
        return True

    def count_published(self) -> bool:
        """Count in the publication under way. False: it failed, and the user was told."""
        try:
            self._count_in()
        except SaveError as error:
            self.show.say(str(error))
            return False
        return True

    def _count_in(self) -> None:
        before = self.saver.published_step
        self.saver.finish(self.show.say)
        step = self.saver.published_step
        if step is not None and step != before:
            self.publisher.release(step)
            self.intake.counted(step)

    def look_around(self) -> None:
        """Count in what the helpers have done meanwhile, and report."""
        if self.saver.is_done:
            self.count_published()
        self.evaluations.poll(self.saver.published_step)
        self.report()

    def evaluated(self, evaluation: Mapping[str, Any]) -> None:
        """A row of `evaluations.jsonl` was made."""
        self.publisher.evaluated(evaluation)
        if self.intake.adoptions is not None:
            self.intake.adoptions.evaluated(evaluation, self.state.step)
        for feature in self.features:
            feature.on_evaluation(evaluation)

    def nothing_is_left(self) -> bool:
        """Wait for the last evaluations. False: the job must hand over before their end. Errors: SaveError."""
        self.secure()
        return self.wait_for_evaluations(0)

    def wait_for_evaluations(self, left: int) -> bool:
        """Wait until at most `left` are still to be made. False: the job must hand over before that.

        It waits for one that is under way, or about to be: what cannot be written must not stop the training.
        """
        self.look_around()
        while len(self.evaluations.pending) > left and self.evaluations.is_worth_waiting:
            if self.job.hand_over_reason() is not None:
                return False
            self.doing = self.evaluations.words
            self.evaluations.wait(LOOK_S)
            self.state.group.tell(Order.WAIT)  # so that no rank takes this one for lost
            self.look_around()
        self.doing = "training"
        return len(self.evaluations.pending) <= left

    def finish(self) -> int:
        """The run is complete: 0; or 75 where somebody decided meanwhile that it goes back. Errors: SaveError where its
        last checkpoint cannot be written.
        """
        self.secure()
        if self._goes_back():
            self.report(now=True)
            self.show.say("it does not end here: the next job goes back to an older checkpoint, as was asked")
            return HANDED_OVER
        if self.evaluations.last is not None and self.evaluations.last["step"] == self.state.step:
            self.publisher.offer(replace(self.policy(), checkpoint_step=self._own_checkpoint()))  # now with its score
        self.publisher.complete()
        leave_final(self.job, self.show.say)
        self.intake.complete(self.state.step)  # first: it says again and again that experience is taken
        say_over(self.job, self.state.step, self.show.say)
        self.doing = "clearing away old policies"
        self.report(now=True)
        self.show.say(
            f"complete: {self.state.step:,} steps, {self.state.updates:,} updates; files in {self.job.slot_dir}"
        )
        return 0

    def _goes_back(self) -> bool:
        with contextlib.suppress(OSError, ValueError):  # the next one that reads it says so
            return any(back.hides(self.job.attempt, self.state.step) for back in rollbacks(self.job.slot_dir))
        return False

    def _own_checkpoint(self) -> int | None:
        """The present step, where this attempt published its checkpoint itself."""
        return self.state.step if self.start is None or self.start.ref.step < self.state.step else None

    def hand_over(self) -> int:
        """Save where it stands and say so. Errors: SaveError."""
        is_trained = self.state.step >= self.training.total_steps
        reason = self.job.hand_over_reason() or ("its last evaluation is left" if is_trained else "asked to")
        self.doing = f"handing over ({reason})"
        self.evaluations.end()
        self.secure()
        self.report(now=True)
        self.show.say(f"handed over at step {self.state.step:,} ({reason})")
        return HANDED_OVER

    def secure(self) -> None:
        """The present step is published when this returns; one that failed is tried once more. Errors: SaveError."""
        self.count_published()
        if self.saver.published_step != self.state.step:
            if self.save():
                self._count_in()
            else:
                raise SaveError("nothing newer could be saved; free some space and start again")
        try:
            self.flush()
        except OSError as error:
            raise SaveError(failure(self.state.step, self.job, error)) from error

    def flush(self) -> None:
        """Have on the disk what the present step's checkpoint leaves behind. Errors: OSError."""
        for feature in self.features:
            feature.before_save()
        self.evaluations.flush()

    def report(self, *, now: bool = False) -> None:
        """`progress.json` and the display, every few seconds."""
        at = time.monotonic()
        if at - self._reported_at < REPORT_S and not now:
            return
        self._reported_at = at
        last = self.evaluations.last
        success = success_of(last)
        earned = mean_return(last) if last is not None else None
        progress = TrainingProgress(
            step=self.state.step,
            total=self.training.total_steps,
            checkpoint_step=self.saver.published_step or 0,
            **self._rates(at),
            gpu_percent=self.gpu.percent,
            success=success,
            mean_return=earned if success is None else None,
            doing=self.doing,
            contributed_rows=self.state.ring_rows,
            **self.intake.summary(),
        )
        more = {
            "save_s": self.saver.save_s,
            "doing": self.doing,
            "success": success,
            "return": earned,
            "evaluation_goals": last["goals_per_task"] if last is not None else None,
        }
        more |= {name: getattr(progress, name) for name in ("steps_per_s", "updates_per_s", "gpu_percent")}
        if self.job.accepts_contributions or progress.contributed_rows:
            more |= {name: getattr(progress, name) for name in ("contributed_rows", "accepted", "refused")}
            more["contributors"] = self.intake.contributors
        if self.training.group.rows:
            more["group"] = self.intake.group_of(self.state)
        with contextlib.suppress(OSError):  # a full disk is told by the checkpoints
            self.job.report(
                step=progress.step,
                total=progress.total,
                checkpoint_step=progress.checkpoint_step,
                **{name: value for name, value in more.items() if value is not None},
            )
        for helper in (*self.features, self.publisher, self.giver, self.intake, self.recorder):
            if helper is not None:
                helper.tell(self.show.say)
        self.show.progress(progress)

    def _rates(self, at: float) -> dict[str, Any]:
        self._marks.append((at, self.state.step, self.state.updates))
        while len(self._marks) > 2 and at - self._marks[1][0] >= RATE_WINDOW_S:
            self._marks.popleft()
        then, step, updates = self._marks[0]
        if at <= then:
            return {}
        seconds = at - then
        return {
            "steps_per_s": round((self.state.step - step) / seconds, 2),
            "updates_per_s": round((self.state.updates - updates) / seconds, 2),
        }
