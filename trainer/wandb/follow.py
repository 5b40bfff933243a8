"""The loop of the process beside the training: send what is new, ask what has arrived, notice when nothing does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainer.wandb.journals import MOST_LINES, Journals
from trainer.wandb.points import START, Cursor, Point
from trainer.wandb.request import Patience
from trainer.wandb.session import LostError

#: So many refusals or silences in a row are an outage; one is a hiccup that nobody needs to hear of.
REFUSALS = 2


class Connection(Protocol):
    """What the loop needs of an `UploadSession`."""

    cursor: Cursor

    def send(self, lines: list[Point]) -> None:
        """Errors: LostError."""

    def arrived(self) -> Cursor:
        """Errors: LostError."""

    def close(self) -> None:
        """Send what is under way, for a few seconds at most. Errors: LostError where that was not enough."""


class StuckError(Exception):
    """This connection will not send anything more; another one may."""


@dataclass
class Delivery:
    """Whether what was sent arrives. Times are monotonic seconds.

    `say_lost`: the server does not answer. `say_back`: something arrived; both may be called again and again.
    """

    patience: Patience
    say_lost: Callable[[str], None]
    say_back: Callable[[], None]
    arrived: Cursor = START
    refusals: int = 0
    stuck_since: float | None = None
    checked_at: float = float("-inf")

    def check(self, connection: Connection, now: float) -> None:
        """Ask the server, if it is time and something is under way. Errors: StuckError."""
        if self.arrived == connection.cursor:
            self.stuck_since, self.checked_at = None, now  # from here on something may be under way
            return
        if now - self.checked_at < self.patience.check_s:
            return
        self.checked_at = now
        try:
            arrived = connection.arrived()
        except LostError as error:
            self.refusals, self.stuck_since = self.refusals + 1, None
            if self.refusals == REFUSALS:
                self.say_lost(str(error))
            return
        self.refusals = 0
        if arrived != self.arrived:
            self.arrived, self.stuck_since = arrived, None
            self.say_back()
        elif self.stuck_since is None:
            self.stuck_since = now
        elif now - self.stuck_since >= self.patience.stuck_s:
            raise StuckError


def follow(
    connection: Connection,
    journals: Journals,
    delivery: Delivery,
    closing: threading.Event,
    superseded_by: Callable[[], int | None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> int | None:
    """Until `closing`, and then once more. Returns the attempt that has taken the slot over, None: none has.

    Errors: LostError, StuckError: begin again with another connection; OSError and what `Journals.news` raises.
    """
    delivery.arrived = connection.cursor
    while True:
        is_last = closing.wait(delivery.patience.look_s)
        while lines := journals.news(connection.cursor):
            newer = superseded_by()
            if newer is not None:  # the history on W&B is its successor's by now
                return newer
            connection.send(lines)
            if not is_last or len(lines) < MOST_LINES:
                break
        if is_last:
            connection.close()
            return None
        delivery.check(connection, clock())
