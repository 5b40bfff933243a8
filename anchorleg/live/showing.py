"""What a program of one's own shows of itself while somebody watches: the job's end of a ring.

Nothing here may slow or end a program: what cannot be shown is left out.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anchorleg.files import make_shared_folder
from anchorleg.live.batches import FACTS, JPEG, ORIGIN_TRAINING, BadBatchError, checked, packed
from anchorleg.live.ring import RingWriter
from anchorleg.live.wanted import ANY, FILE, Asked, ring_name


class Showing:
    """Shows one slot of one run in `shared_dir`, in its lane `any`. `clock`: monotonic s; `wall`: unix s."""

    def __init__(
        self,
        shared_dir: Path,
        run_id: str,
        slot: int,
        attempt: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        run = shared_dir / "v1" / "runs" / run_id
        self._attempt, self._clock, self._wall = attempt, clock, wall
        self._asked = Asked(run / FILE, slot, clock)
        self._writer = RingWriter(run / str(slot) / "live" / ring_name(ANY))
        self._next_at = float("-inf")
        self._warned = False
        with contextlib.suppress(OSError):  # a watcher leaves its wish in the run's folder
            make_shared_folder(run / str(slot))

    def wanted(self) -> int:
        """Pictures a second that somebody wants to see; 0: nobody looks."""
        return self._asked.lanes().get(ANY, 0)

    def show(
        self,
        *,
        facts: Mapping[str, Any],
        jpeg: bytes | None,
        task: str,
        episode: int,
        step: int,
        score: float,
        success: bool | None,
    ) -> bool:
        """Put one batch into the ring, as often as it is wanted; whether that was done.

        What no reader would take is warned of, once.
        """
        fps, now = self.wanted(), self._clock()
        if not fps or now < self._next_at:
            return False
        self._next_at = max(self._next_at + 1 / fps, now)  # a loop that is a little late is not shown more rarely
        kind = FACTS if jpeg is None else JPEG
        try:
            header = {
                "at": self._wall(),
                "task": task,
                "episode": int(episode),
                "step": int(step),
                "attempt": self._attempt,
                "origin": ORIGIN_TRAINING,
                "return": float(score),
                "success": success,
                "facts": {str(name): _plain(fact) for name, fact in facts.items()},
            }
            payload = packed(header, jpeg or b"")
            checked(kind, payload)
            return self._writer.write(kind, payload)
        except (BadBatchError, ValueError, TypeError) as error:
            self._warn(str(error))
        except OSError:
            pass  # a full disk: the next picture may find room
        return False

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"this job cannot be shown: {why}", stacklevel=4)


def _plain(fact: Any) -> Any:
    """A number of NumPy's is a number."""
    return fact if isinstance(fact, str | bool | int | float) or not hasattr(fact, "item") else fact.item()
