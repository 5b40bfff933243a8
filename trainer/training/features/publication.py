"""What other machines see while the training goes on: its policies (`trainer.sharing.publisher`), and its agents, shown
to who watches (`trainer.live.recorder`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from anchorleg.job import Job
from anchorleg.live.wanted import FILE
from syncd import store
from trainer.config.training import Training
from trainer.envs.collector import Transition, first_of
from trainer.envs.vector import VectorEnv
from trainer.history.read import read_evaluations
from trainer.live.recorder import LIVE, FrameRecorder, RecorderInputs, tells_success
from trainer.sharing.publisher import Publisher, Snapshot, snapshot
from trainer.training.features.base import EndReason, Feature, RunningAttempt
from trainer.training.run import crossed


class Publication(Feature):
    """The first policy at once, then one each `publish_interval` updates, and those of checkpoints."""

    def begin(self, run: RunningAttempt) -> None:
        def on_version(attempt: int, seq: int, step: int) -> None:
            for feature in run.features:
                feature.on_version(attempt, seq, step)

        past = read_evaluations(run.job.slot_dir)
        self._publisher = Publisher(
            run.job,
            run.training,
            evaluation=past[-1] if past else None,
            evaluation_averaged=next((row for row in reversed(past) if "averaged" in row), None),
            on_version=on_version,
        )
        self._evaluated_step = past[-1]["step"] if past else None
        self._updates = run.state.updates
        self._publisher.offer(_policy(run))  # so that nobody waits for the first interval

    def is_due(self, run: RunningAttempt) -> bool:
        return crossed(self._updates, run.state.updates, run.training.publish_interval)

    def act(self, run: RunningAttempt) -> None:
        self._updates = run.state.updates
        self._publisher.offer(_policy(run))

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        self._evaluated_step = row["step"]
        self._publisher.evaluated(row)

    def before_save(self, run: RunningAttempt) -> None:
        self._publisher.hold(_policy(run))

    def on_checkpoint(self, step: int) -> None:
        self._publisher.release(step)

    def tell(self, say: Callable[[str], None]) -> None:
        self._publisher.tell(say)

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        if reason is EndReason.FINISHED:
            if self._evaluated_step == run.state.step:  # now with its score
                is_own = run.start is None or run.start.ref.step < run.state.step
                self._publisher.offer(replace(_policy(run), checkpoint_step=run.state.step if is_own else None))
            self._publisher.complete()
        self._publisher.close()


def _policy(run: RunningAttempt) -> Snapshot:
    state = run.state
    return snapshot(state.step, state.updates, state.algorithm.policy, state.average)


class ShownFrames(Feature):
    """Looks at the environments of this process after each step, while somebody watches."""

    def __init__(self) -> None:
        self._recorder: FrameRecorder | None = None

    def begin(self, run: RunningAttempt) -> None:
        shown = first_of(run.state.collector.envs)
        self._recorder, self._shown = frame_recorder_of(run.job, run.training, shown), shown.num_envs

    def after_step(self, run: RunningAttempt, transition: Transition | None) -> None:
        if self._recorder is not None:
            self._recorder.after(run.state.step, run.state.collector.task[: self._shown])

    def tell(self, say: Callable[[str], None]) -> None:
        if self._recorder is not None:
            self._recorder.tell(say)

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        if self._recorder is not None:
            self._recorder.close()


def frame_recorder_of(job: Job, training: Training, envs: object) -> FrameRecorder | None:
    """The recorder of a training; None: it may not be watched, or its environments cannot."""
    if not training.stream or not isinstance(envs, VectorEnv):
        return None
    place = store.Shared(job.shared_dir).slot(job.run_id, job.slot)
    given = RecorderInputs(
        live_file=place.path.parent / FILE,
        folder=place.path / LIVE,
        slot=job.slot,
        attempt=job.attempt,
        tasks=training.env.tasks,
        tells_success=tells_success(envs),
    )
    return FrameRecorder(envs, given)
