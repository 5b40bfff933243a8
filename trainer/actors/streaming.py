"""What `trainer actors --stream` lets others see: its agents, while somebody watches them; `syncd` carries it.

It takes nothing from what is played or recorded: the recorder only reads. What goes wrong with the files ends the
showing, for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from anchorleg.output import Notices
from syncd.streamed import StreamedSlot
from trainer.actors.follower import Followed
from trainer.envs.collector import Collector
from trainer.envs.vector import VectorEnv
from trainer.live.recorder import AGAIN_AFTER_S, FrameRecorder, RecorderInputs, tells_success

#: The other side writes the contributor's name in its place.
ORIGIN = "actors"


class Streaming:
    """Shows what is played in the mirror `folder`. For the loop's thread; its methods return at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._notices = Notices()
        self._shown: object = None  # the environments, the slot and the attempt
        self._slot: StreamedSlot | None = None
        self._recorder: FrameRecorder | None = None
        self._again_at = float("-inf")

    def after(self, collector: Collector, current: Followed, steps: int) -> None:
        """After each vector step with this policy; `steps`: made so far. Errors: EnvError, as `FrameRecorder.after`."""
        if time.monotonic() < self._again_at:
            return
        try:
            if self._shown != (shown := (collector.envs, current.key, current.manifest.attempt)):
                self.close()
                if isinstance(collector.envs, VectorEnv):
                    self._begin(collector.envs, current)
                self._shown = shown
            if self._slot is not None:
                self._slot.beat()
        except OSError as error:
            self._again_at = time.monotonic() + AGAIN_AFTER_S
            words = f"{error.filename}: {error.strerror}"
            self._notices.trouble(f"agents are not shown: {words}; all else goes on, and this tries again", "folder")
            self.close()
            return
        if self._recorder is not None:
            self._recorder.after(steps, collector.task)

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)
        if self._recorder is not None:
            self._recorder.tell(say)

    def close(self) -> None:
        """Nobody plays any more, or somebody else."""
        slot, recorder = self._slot, self._recorder
        self._slot, self._recorder, self._shown = None, None, None
        if recorder is not None:
            recorder.close()
            recorder.tell(self._notices.note)
        if slot is not None:
            try:
                slot.close()
            except OSError as error:
                self._notices.trouble(f"what is shown cannot be withdrawn: {error.filename}: {error.strerror}")

    def _begin(self, envs: VectorEnv, current: Followed) -> None:
        manifest = current.manifest
        self._slot = StreamedSlot(self._folder, manifest.run_id, manifest.slot)
        self._slot.beat()
        given = RecorderInputs(
            live_file=self._slot.live_file,
            folder=self._slot.folder,
            slot=manifest.slot,
            attempt=manifest.attempt,
            tasks=manifest.tasks,
            tells_success=tells_success(envs),
            origin=ORIGIN,
            pace_of="steps of these actors",
        )
        self._recorder = FrameRecorder(envs, given)
