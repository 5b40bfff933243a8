"""Sentences that a thread leaves for its owner, who says them when it comes by."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Notices:
    """One thread leaves them, another one takes them. A trouble is left once, for as long as it lasts."""

    def __init__(self) -> None:
        self._left: deque[str] = deque()  # its append and popleft are atomic
        self._troubles: set[str] = set()

    def note(self, *sentences: str) -> None:
        """Leave sentences."""
        self._left.extend(sentences)

    def trouble(self, sentence: str, cause: str = "") -> None:
        """Leave `sentence`, unless one of the same `cause` (by default: the same one) was left since it was `over`."""
        if (cause or sentence) not in self._troubles:
            self._troubles.add(cause or sentence)
            self._left.append(sentence)

    def over(self, sentence: str = "") -> None:
        """All troubles are over; `sentence` says so, if there were any."""
        if self._troubles and sentence:
            self._left.append(sentence)
        self._troubles.clear()

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what was left, oldest first."""
        while self._left:
            say(self._left.popleft())
