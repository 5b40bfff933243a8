"""A job that was queued behind another one: whether it may begin. Standard library only.

That Slurm has started it proves nothing of the job before it: an administrator may have taken the dependency off, and
a job that Slurm has given up may live on. So while that one has claimed its attempt and not said how it ended, its
heart is watched, for as long as the controller would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none
from anchorleg.job import HANDED_OVER

#: As `orchestrator.decisions.sightings.HEARTBEAT_SILENT_S` has it.
SILENT_S = 120.0
LOOK_S = 1.0
#: A network folder may show one beat late, of a job that has ended since.
BEATS_OF_LIFE = 2


class Predecessor:
    """The attempt `number` of a slot, as a job sees it that is to follow it."""

    def __init__(self, slot_dir: Path, number: int) -> None:
        self._slot_dir = slot_dir
        self._folder = slot_dir / "attempts" / str(number)

    def why_not(
        self,
        is_asked: Callable[[], bool],
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> str | None:
        """Why its successor must not run; None: it may. `is_asked`: whether that one was told to end meanwhile.

        The slot may have been held (`slots/<k>/hold`, written by the controller), or the attempt may have ended
        otherwise than by a hand-over: then what comes next is the controller's to decide. So it is while it works.
        """
        beat, beats, since = self._beat(), 0, monotonic()
        while True:
            if (self._slot_dir / "hold").exists():
                return "the slot is held"
            ended = self._record("exit.json")
            if ended is not None and ended["code"] != HANDED_OVER:
                return f"the job before it ended with {ended['code']}"
            if ended is not None and ended.get("terminated"):
                return "the job before it was told to end, and it is not known by whom"
            if ended is not None or not (self._folder / "claim").exists() or monotonic() - since >= SILENT_S:
                return None
            if is_asked():
                return "it was told to end"
            if (newest := self._beat()) != beat:
                beat, beats, since = newest, beats + 1, monotonic()
            if beats >= BEATS_OF_LIFE:
                return "the job before it still works"
            sleep(LOOK_S)

    def _beat(self) -> Any:
        return (self._record("heartbeat.json") or {}).get("beat")

    def _record(self, name: str) -> dict[str, Any] | None:
        value = read_json_or_none(self._folder / name)
        return value if isinstance(value, dict) else None
