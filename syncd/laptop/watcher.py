"""Rings when an actor puts a segment into the outbox. Where the system gives no such events, it rings every second.

A rename into a watched folder arrives as `moved` or as `created`, by where it came from and by the system; never as
`closed`. The outbox is on this machine's own disk: network folders give no events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

#: How often it rings by itself where no events come.
LOOK_S = 1.0
#: And where they do: they miss a new slot's folder with its first file, and FSEvents merges them.
SAFETY_LOOK_S = 5.0


class OutboxWatcher:
    """Watches `folder` and what is below it until `close`. The folder is made where it is missing.

    `tell` is called at each event as well, in another thread.
    """

    def __init__(
        self,
        folder: Path,
        tell: Callable[[], None] = lambda: None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seen = threading.Event()
        self._tell = tell
        self._monotonic = monotonic
        self._looked_at: float | None = None
        self._observer = _observe(folder, self._hear)

    def _hear(self) -> None:
        self._seen.set()
        self._tell()

    def has_news(self) -> bool:
        """Whether something came in since the last call, or it is time to look anyway."""
        now = self._monotonic()
        every_s = LOOK_S if self._observer is None else SAFETY_LOOK_S
        is_due = self._looked_at is None or now - self._looked_at >= every_s
        if not (is_due or self._seen.is_set()):
            return False
        self._seen.clear()
        self._looked_at = now
        return True

    def close(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            self._observer.stop()


def _observe(folder: Path, tell: Callable[[], None]) -> BaseObserver | None:
    """None where this system refuses (inotify's limits, a foreign file system): looking is enough then."""
    from watchdog.events import FileSystemEvent, FileSystemEventHandler  # noqa: PLC0415 - the daemon's alone
    from watchdog.observers import Observer  # noqa: PLC0415

    class Handler(FileSystemEventHandler):
        def on_created(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - whatever it is, we look
            tell()

        def on_moved(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - as above
            tell()

    observer = Observer()
    observer.daemon = True
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        observer.schedule(Handler(), str(folder), recursive=True)
        observer.start()
    except OSError:
        return None
    return observer
