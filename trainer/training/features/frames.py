"""Agents in training shown to who watches (`trainer.live.recorder`)."""

from __future__ import annotations

from collections.abc import Callable

from anchorleg.job import Job
from anchorleg.live.wanted import FILE
from syncd import store
from trainer.config.training import Training
from trainer.envs.collector import Transition
from trainer.envs.sharded import first_of
from trainer.envs.vector import VectorEnv
from trainer.live.recorder import LIVE, FrameRecorder, RecorderInputs, tells_success
from trainer.training.features.base import EndReason, Feature, RunningAttempt


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
