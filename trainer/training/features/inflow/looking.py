"""Looks at the other slots of a run, in a thread: no step waits for them, and whatever lies there, the training goes
on. What was found waits for a barrier.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anchorleg.notices import Notices


class Looks:
    """One look at a time, and what there is to say of what was found. `trouble`: what cannot be told of whom."""

    def __init__(self, name: str, trouble: str) -> None:
        self._notices = Notices()
        self._name, self._trouble = name, trouble
        self._thread: threading.Thread | None = None

    def is_idle(self) -> bool:
        """Whether no look is under way."""
        return self._thread is None or not self._thread.is_alive()

    def begin_look(self, look: Callable[[], None]) -> None:
        """Call `look` in a thread; only while there `is_idle`."""
        self._thread = threading.Thread(target=look, name=self._name, daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """Wait for a look under way: a thread that comes out of torch while the interpreter ends aborts the process."""
        if self._thread is not None:
            self._thread.join(wait_s)

    def say(self, sentence: str) -> None:
        """For `tell` to hand out."""
        self._notices.note(sentence)

    def say_once(self, sentence: str, cause: str) -> None:
        """`say`, unless a sentence of the same `cause` was said before."""
        self._notices.trouble(sentence, cause)

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say."""
        self._notices.tell(say)

    @contextmanager
    def at(self, where: str) -> Iterator[None]:
        """Whatever is raised in here is said, and no more."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as it says
            kind = type(error).__name__
            self.say_once(f"{self._trouble.format(where)} ({kind}: {error}); the training goes on", f"{where} {kind}")
