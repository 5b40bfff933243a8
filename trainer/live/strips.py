"""Some pictures of one episode, as one batch of its lane."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anchorleg.live.batches import FACTS, MOST_HEADER_BYTES, POSE, POSE_NUMBERS, packed
from anchorleg.live.ring import MAX_PAYLOAD_BYTES
from trainer.envs.shown import Glimpse
from trainer.envs.spaces import F32
from trainer.live.poses import quantised

#: A batch leaves so often: a picture is that much later for it, and a network folder has five openings a second.
BATCH_S = 0.2
#: Facts that name the place to reach (m): whoever draws the poses draws a mark there.
GOAL = ("goal_x", "goal_y", "goal_z")
#: Where nothing can be drawn, what is known is sent so often.
FACTS_S = 1.0


@dataclass
class Strip:
    """Glimpses of episode number `episode` of `task`, oldest first, `fps` of them a second.

    `at`: unix s of the newest. `told`: whether anybody says what success is; else only a success is told.
    """

    task: str
    episode: int
    fps: int
    told: bool
    at: float = 0.0
    glimpses: list[Glimpse] = field(default_factory=list)
    facts: dict[str, str | float | bool] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether one more might not fit into a cell."""
        each = 2 * POSE_NUMBERS * max(len(one.poses) for one in self.glimpses)
        return (len(self.glimpses) + 1) * each > MAX_PAYLOAD_BYTES - MOST_HEADER_BYTES - 2

    def payload(self, scene: str | None, origin: str, attempt: int) -> tuple[int, bytes]:
        """(kind, payload) of its batch: poses of `scene`, or facts alone. Errors: ValueError if it cannot be drawn."""
        header = self._header(origin, attempt)
        if scene is None or not self.glimpses[0].poses.size:
            return FACTS, packed(header)
        poses: F32 = np.stack([one.poses for one in self.glimpses])
        found = quantised(poses)
        measures = {"place": found.place, "unit": found.unit, "dt": self._dt()}
        counts = {"scene": scene, "frames": len(poses), "bodies": poses.shape[1]}
        return POSE, packed({**header, **counts, **measures}, found.body)

    def payload_of_picture(self, jpeg: bytes, origin: str, attempt: int) -> bytes:
        """Of a JPEG batch. Errors: ValueError where it is too large."""
        return packed(self._header(origin, attempt), jpeg)

    def _header(self, origin: str, attempt: int) -> dict[str, Any]:
        first, last = self.glimpses[0], self.glimpses[-1]
        return {
            "at": self.at,
            "task": self.task,
            "episode": self.episode,
            "step": first.step,
            "attempt": attempt,
            "origin": origin,
            "return": last.total,
            "success": last.success if self.told or last.success else None,
            "facts": {**self.facts, **dict(zip(GOAL, last.goal or (), strict=False))},
        }

    def _dt(self) -> float:
        """Simulated seconds from one picture to the next: the usual ones, should one be missing."""
        steps = [after.at_s - before.at_s for before, after in itertools.pairwise(self.glimpses)]
        found = float(np.median(steps)) if steps else 0.0
        return found if 0 < found < 60 else 1 / self.fps
