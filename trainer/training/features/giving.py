"""One in so many finished episodes of a training on its way to the other slots of its group.

Which ones is decided by their numbers alone, so a resume gives the same again. An episode that was under way when the
attempt began is not given: its first steps were another attempt's. Nothing here changes a number of the run, and no
step waits for the disk.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anchorleg.job import Job
from anchorleg.output import Notices
from trainer.config.training import Training, group_identity
from trainer.envs.collector import Transition
from trainer.envs.spaces import Spaces
from trainer.envs.suite import suite_of
from trainer.sharing.judge import why_none
from trainer.sharing.peers import Giving
from trainer.sharing.recorder import Dispatch, Recorder, SegmentOrigin
from trainer.sharing.segment import Segment
from trainer.training.features.base import EndReason, Feature, RunningAttempt

#: Episodes that wait for the disk, or as many as there are environments, which may all end at once. What comes beyond
#: is not given: toys end hundreds a second.
WAITING = 64
#: What a row says of its policy before any was published; no judge knows it.
_NONE_YET = (-1, -1)


class EpisodeGiver(Feature):
    """For the loop's thread, but for `on_version`. It counts the episodes that have ended, which decide what is given,
    also where nothing can be given.
    """

    def __init__(self, job: Job, training: Training, finished: int = 0) -> None:
        self._job, self._training = job, training
        self._finished = finished
        self._version = _NONE_YET
        self._recorder: Recorder | None = None
        self._giving = Giving(job, group_identity(training))
        self._dispatch = Dispatch(self._write, max(WAITING, training.num_envs))
        self._notices = Notices()

    def begin(self, run: RunningAttempt) -> None:
        if why_none(run.training, suite_of(run.training).open()) is None:
            self.open(run.state.collector.envs.spaces, is_fresh=run.start is None)

    def open(self, spaces: Spaces, *, is_fresh: bool) -> None:
        """Give what ends from now on. `is_fresh`: all environments are at the beginning of their episodes."""
        job, count = self._job, self._training.num_envs
        self._whole = np.full(count, is_fresh)
        self._recorder = Recorder(SegmentOrigin(job.run_id, job.slot, spaces, actor=f"{job.attempt:08x}"), count)

    def after_step(self, run: RunningAttempt, transition: Transition | None) -> None:
        if transition is not None:
            self.add(transition)

    def add(self, transition: Transition) -> None:
        """One vector step."""
        if self._recorder is None:
            self._finished += int(transition.step.finished.sum())
            return
        for segment in self._recorder.add(transition.obs, transition.action, transition.step, self._version):
            self._finished += 1
            is_whole, self._whole[segment.env] = self._whole[segment.env], True
            if is_whole and is_given(self._finished, self._training.group.every) and segment.version.min() >= 0:
                self._give(replace(segment, episode=self._finished))

    def state(self) -> Mapping[str, Any]:
        return {"episodes": self._finished}

    def load(self, numbers: Mapping[str, Any]) -> None:
        self._finished = numbers.get("episodes", 0)

    def on_version(self, attempt: int, seq: int, step: int) -> None:
        self._version = (attempt, seq)

    def tell(self, say: Callable[[str], None]) -> None:
        if self._dispatch.trouble is not None:
            sentence = f"this slot gives no episodes now ({self._dispatch.trouble}); the training continues"
            self._notices.trouble(sentence, cause="disk")
        else:
            self._notices.over("this slot gives episodes again")
        self._notices.tell(say)

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        """Write what waits, for a moment."""
        self._dispatch.close()

    def _give(self, segment: Segment) -> None:
        try:
            self._dispatch.put([segment])
        except Exception as error:  # noqa: BLE001 - whatever giving dies of, the training does not
            self._recorder = None
            self._notices.note(f"this slot gives no more episodes ({type(error).__name__}: {error})")

    def _write(self, segment: Segment, data: bytes) -> bool:
        """In the thread of `Dispatch`."""
        self._giving.give(segment.episode, data)
        return True


def is_given(number: int, every: int) -> bool:
    """Whether finished episode `number` is given: of each `every` in a row one, as if drawn. Pure.

    Environments of equal horizons end in turn, so every `every`-th would be of the same few tasks for ever.
    """
    block, place = divmod(number, every)
    return zlib.crc32(block.to_bytes(8, "little")) % every == place
