"""Copies of what other slots gave go when no resume needs them any more, in threads: no step waits for the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial

from anchorleg.job import Job
from anchorleg.notices import Notices
from trainer.sharing.episodes import clear_all, clear_older, clear_taken


class Copies:
    """Those of one slot, whatever it takes by now. For the loop's thread."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._notices = Notices()
        self._threads: list[threading.Thread] = []

    def begin(self, needed: Collection[str]) -> None:
        """What older attempts copied and did not come to take may go, but for the files `needed`."""
        self._in_a_thread(partial(clear_older, self._job, but=needed))

    def counted(self, files: Iterable[str]) -> None:
        """Two checkpoints have what came of these, or nothing did: they may go."""
        done = set(files)
        if done:
            self._in_a_thread(partial(clear_taken, self._job, done))

    def end(self, wait_s: float) -> None:
        """The training is complete: no copy is needed any more, whether it was taken or not. Waits as `close` does."""
        self._in_a_thread(partial(clear_all, self._job))
        self.close(wait_s)

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)

    def close(self, wait_s: float) -> None:
        """Wait for what is going, `wait_s` at most; the next attempt removes what is left."""
        until = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _in_a_thread(self, clear: Callable[[], None]) -> None:
        def work() -> None:
            try:
                clear()
            except OSError as error:
                why = error.strerror or str(error)
                self._notices.trouble(
                    f"copies of what other slots gave cannot be removed ({why}); they take room alone"
                )

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=work, name="copies", daemon=True))
        self._threads[-1].start()
