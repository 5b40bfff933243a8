"""The laptop's end: a port of this machine, and what comes to it is answered by the viewer of another one.

The port stays ours while the connection is away, so that nobody else answers an open page meanwhile.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from anchorleg.printable import printable
from syncd.errors import RemoteError, SyncError, UnreachableError
from syncd.far import FarProgram
from syncd.laptop.backoff import Backoff, Moment, made_progress, slept, stops
from syncd.wire.streams import ChildStream
from viewer.bridge.frames import Greeting, greeting_in
from viewer.bridge.line import BridgeLine
from viewer.bridge.reasons import for_the_user, of_program, of_versions
from viewer.server.door import FULL_SENTENCE, MOST_STRANGERS, turn_away
from viewer.server.watchers import MOST_WATCHERS

#: ssh notices a dead line after 15 s by itself, and then ends; this is for a viewer that hangs over there.
NEAR_SILENCE_S = 30.0
#: From the start of ssh to the greeting: a login node that is slow, and its Python. With a person who types, that one.
GREETING_WITHIN_S, TYPING_WITHIN_S = 60.0, 300.0
#: The far end counts strangers itself.
MOST_CARRIED = MOST_STRANGERS + MOST_WATCHERS
TURN_S = 1.0
_READ = 64 * 1024


@dataclass(frozen=True)
class Page:
    """Where the page is on this machine: the listening socket, and the token that it has here."""

    listener: socket.socket
    token: str


class NearEnd:
    """`words`: of the viewer over there. `say`: what is told to the person."""

    def __init__(
        self, program: FarProgram, words: tuple[str, ...], own_version: str, say: Callable[[str], None]
    ) -> None:
        self._program, self._words, self._own, self._say = program, words, own_version, say
        self._page: Page | None = None

    def watch(self, begin: Callable[[Greeting], Page], *, asks: bool) -> None:
        """Show the page until an error that a person must mend, or Ctrl-C. `begin`: called once, with what the other
        end said of itself; errors of it pass. `asks`: ssh may ask on the terminal, at the first login only.

        Errors: ViewerError.
        """
        backoff = Backoff()
        is_lost = False
        try:
            while True:
                live_at: float | None = None
                try:
                    with contextlib.closing(self._program.start(self._words, of_program, asks=asks)) as stream:
                        greeting, rest = self._greeted(stream, TYPING_WITHIN_S if asks else GREETING_WITHIN_S)
                        self._page = self._page or begin(greeting)
                        if is_lost:
                            self._say(f"{self._program.place} is here again.")
                        asks, is_lost, live_at = False, False, time.monotonic()
                        self._carry(stream, self._page, rest)
                except SyncError as error:
                    was_live = self._page is not None
                    if not was_live or stops(error, was_live=was_live):
                        raise for_the_user(error, was_live=was_live) from None
                    if not is_lost:
                        self._say(f"{error}; trying again, and again. The page goes on by itself.")
                    is_lost = True
                lived_s = time.monotonic() - live_at if live_at is not None else 0.0
                backoff = backoff.progressed() if made_progress(lived_s=lived_s, moved=0) else backoff
                self._pause(backoff.delay_s(random.random()))
                backoff = backoff.failed()
        finally:
            if self._page is not None:
                self._page.listener.close()

    def _greeted(self, stream: ChildStream, patience_s: float) -> tuple[Greeting, bytes]:
        """The other end's greeting, and what came after it. Errors: SyncError."""
        said = b""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            data = self._read(stream)
            if data == b"":
                raise stream.why()
            said += data or b""
            try:
                found = greeting_in(said)
            except ValueError as error:
                raise RemoteError(f"what answers at {self._program.place} is no viewer: {error}") from None
            if found is not None:
                refused = of_versions(self._program.place, found[0], self._own)
                if refused is not None:
                    raise refused
                return found
        raise UnreachableError(f"{self._program.place} did not answer within {patience_s:g} s")

    def _read(self, stream: ChildStream) -> bytes | None:
        """What the other end said; None: nothing for a moment. Who comes meanwhile is turned away."""
        self._turn_away(0)
        return stream.read(TURN_S if self._page is None else TURN_S / 5)

    def _carry(self, stream: ChildStream, page: Page, rest: bytes) -> None:
        """Until the connection is over. Errors: SyncError."""
        reads, writes = stream.pipes
        line = BridgeLine(reads, writes, silence_s=NEAR_SILENCE_S)
        listener = page.listener.fileno()
        try:
            line.give_token(page.token)
            line.hear(rest)
            before = _now()
            while True:
                if line.turn(TURN_S, (listener,)):
                    self._take(line, page.listener)
                before, last = _now(), before
                if slept(last, before, TURN_S):
                    raise UnreachableError(f"this machine slept, and the connection to {self._program.place} is old")
        except ValueError as error:
            raise UnreachableError(f"what {self._program.place} says cannot be read ({error})") from None
        except TimeoutError:
            raise UnreachableError(f"{self._program.place} has been silent for {NEAR_SILENCE_S:g} s") from None
        except (EOFError, OSError):
            raise stream.why() from None
        finally:
            line.close()

    def _take(self, line: BridgeLine, listener: socket.socket) -> None:
        """Who has come, if nobody was quicker to go away."""
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            if len(line) < MOST_CARRIED:
                line.carry(sock)
            else:
                turn_away(sock, FULL_SENTENCE)

    def _pause(self, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0:
            self._turn_away(left)

    def _turn_away(self, wait_s: float) -> None:
        """Wait so long; who comes is told that the connection is away."""
        if self._page is None:
            time.sleep(wait_s)
            return
        listener = self._page.listener
        if select.select([listener], [], [], wait_s)[0]:
            with contextlib.suppress(OSError):
                sock, _ = listener.accept()
                turn_away(
                    sock, f"No connection to {printable(self._program.place)} now: load this page again in a while."
                )


def _now() -> Moment:
    return Moment(time.time(), time.monotonic())
