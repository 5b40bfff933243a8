"""`syncd serve`: one client's connection over two descriptors. One thread; it never waits for the client to read.

Frames leave as the client takes them. News are made only when all earlier ones have left: a slow connection is told
the newest policy, not each of them. It ends with its input, with a client that is silent for 15 s, or with SIGTERM.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from syncd.errors import ProtocolError, UnreachableError
from syncd.shared.counts import note_seen
from syncd.shared.deposit import Deposit
from syncd.shared.inbox import MAX_SEGMENT_BYTES, Inbox
from syncd.shared.incoming import is_ours
from syncd.shared.layout import Shared
from syncd.wire import protocol
from syncd.wire.answers import Uploads, file_frames, news_frames, saved, spread_s
from syncd.wire.feed import Feed, Pace
from syncd.wire.live import NOT_HERE, LiveFeed, LiveIntake
from syncd.wire.protocol import (
    DEAD_AFTER_S,
    MAX_ENTRIES,
    MAX_PAYLOAD_BYTES,
    PING_EVERY_S,
    Decoder,
    Frame,
    Message,
    encode,
)

#: What waits to be taken by the client, at most: one frame above it. More would delay pings and news.
BUFFER_BYTES = MAX_PAYLOAD_BYTES
#: A client that asks and asks without reading the answers is not listened to beyond this.
MOST_UNREAD_BYTES = 2 * 1024 * 1024
READ_BYTES = 256 * 1024
#: How often the own inbox is looked at for verdicts.
VERDICTS_EVERY_S = 1.0
#: It wakes at least this often, so that a signal is obeyed soon.
WAKE_EVERY_S = 1.0
#: What is put together at once, before it listens again.
FILL_S = 0.2
#: A client may ask for so many files at once.
MOST_STREAMS = 64

_LOG = logging.getLogger(__name__)


class _Ended(Exception):  # noqa: N818 - an end, not an error
    """The connection is over; the sentence is for the log."""


class Server:
    """Serves `shared` to one client. `contributor` None: the client's own name for itself names its inbox.

    Both are for the folder's owner. Run by another account, it gives as that account, whatever anybody says.
    `run`: the run folder, whose checkpoints the client may have; None: it gets none.

    `fd_in`, `fd_out`: the connection; they become non-blocking. `clock` is monotonic, `wall` unix seconds.
    """

    def __init__(
        self,
        shared: Path,
        contributor: str | None,
        fd_in: int,
        fd_out: int,
        run: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._shared, self._contributor, self._run_folder = Shared(shared), contributor, run
        self._in, self._out, self._clock, self._wall = fd_in, fd_out, clock, wall
        self._decoder = Decoder()
        self._waiting = bytearray(protocol.PREAMBLE)
        self._streams: deque[Iterator[bytes]] = deque()
        self._pushes: deque[Iterator[bytes]] = deque()
        self._feed = Feed(shared, clock)
        self._live = LiveFeed(shared, clock, wall, is_guest=contributor is not None)
        self._intake: LiveIntake | None = None
        self._inbox_of: Inbox | None = None
        self._version: str | None = None
        self._inbox: Inbox | Deposit | None = None
        self._uploads = Uploads(None)
        self._verdicts = Pace(VERDICTS_EVERY_S)
        self._verdicts_told: set[str] = set()
        self._is_welcome = self._listens = self._is_listing = False
        self._pings = itertools.count(1)
        self._heard = self._pinged = clock()
        self._ending: str | None = None

    def stop(self, reason: str) -> None:
        """End soon, and tell the client to come again. For signal handlers."""
        self._ending = reason

    def run(self) -> None:
        """Serve until the end. Errors: none that a client can cause."""
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        try:
            while True:
                self._turn()
        except _Ended as end:
            _LOG.info("%s", end)
        except ProtocolError as error:
            _LOG.warning("%s", error)
            self._say_last(protocol.goaway(error))
        finally:
            self._live.close()
            if self._intake is not None:
                self._intake.close()

    def _turn(self) -> None:
        """Wait until something can be done, and do it."""
        if self._ending is not None:
            self._say_last(protocol.goaway(UnreachableError("server.stopped", signal=self._ending), 1.0))
            raise _Ended(f"ended: {self._ending}")
        if self._live.is_watched:
            for shown in self._live.renew():
                self._say(shown)
        if self._intake is not None:
            self._intake.turn()
        self._fill()
        poll = select.poll()
        if len(self._waiting) < MOST_UNREAD_BYTES:
            poll.register(self._in, select.POLLIN)
        if self._waiting:
            poll.register(self._out, select.POLLOUT)
        ready = dict(poll.poll(self._patience_ms()))
        if ready.get(self._in):
            self._read()
        if ready.get(self._out):
            self._write()
        if not ready:
            self._show()
        now = self._clock()
        if now - self._heard > DEAD_AFTER_S:
            raise _Ended(f"the client was silent for {DEAD_AFTER_S:g} s")
        if self._is_welcome and now - self._pinged >= PING_EVERY_S:
            self._pinged = now
            self._say(protocol.Ping(n=next(self._pings)))

    def _patience_ms(self) -> float:
        """Until the next look is due, or the clock should be asked about pings and silence; 0 while more can leave."""
        if self._has_room() and (self._pushes or self._streams):
            return 0.0
        due = [self._clock() + WAKE_EVERY_S]
        if self._may_look():
            due.append(self._feed.next_at)
            if self._inbox is not None:
                due.append(self._verdicts.next_at)
        if self._live.is_watched and self._is_idle():
            due.append(self._live.next_at())
        return max(0.0, (min(due) - self._clock()) * 1000)

    def _may_look(self) -> bool:
        """Whether the client has taken all earlier news."""
        return self._listens and not self._waiting and not self._pushes

    def _has_room(self) -> bool:
        """Whether more may be put behind what waits."""
        return len(self._waiting) < BUFFER_BYTES

    def _is_idle(self) -> bool:
        """Whether nothing at all waits to leave."""
        return not (self._waiting or self._pushes or self._streams)

    # --- out -------------------------------------------------------------------------------------------------------

    def _say(self, message: Message, payload: bytes = b"") -> None:
        self._waiting += encode(message, payload)

    def _fill(self) -> None:
        """Put more frames behind those that wait, while there is room: news first, then files in turns.

        A look at a large folder of a network takes minutes: meanwhile we listen, say that we live, and files leave.
        """
        if self._may_look():
            self._look()
        until = self._clock() + FILL_S
        while self._has_room():
            is_late = self._clock() >= until
            queue = self._streams if is_late and self._streams else self._pushes or self._streams
            if not queue:
                return
            frame = next(queue[0], None)
            if frame is None:
                queue.popleft()
                continue
            self._waiting += frame
            queue.rotate(0 if queue is self._pushes else -1)
            if is_late:
                return

    def _show(self) -> None:
        """One batch of an agent at play, after a poll that found nothing else to do: not even news to look at."""
        if self._live.is_watched and self._is_idle() and (frame := self._live.frame()) is not None:
            self._waiting += frame

    def _write(self) -> None:
        try:
            sent = os.write(self._out, self._waiting)
        except BlockingIOError:
            return
        except OSError as error:
            raise _Ended(f"the client disconnected ({error.strerror})") from error
        del self._waiting[:sent]

    def _say_last(self, last: protocol.Goaway) -> None:
        """As far as it can be said at once."""
        with contextlib.suppress(OSError):
            data = bytes(self._waiting) + encode(last)
            self._waiting.clear()
            os.write(self._out, data)

    def _look(self) -> None:
        """Put what changed among the pushes."""
        now = self._clock()
        if now >= self._feed.next_at:
            self._pushes.append(news_frames(self._feed.changes()))
        if self._inbox is not None and now >= self._verdicts.next_at:
            self._look_for_verdicts(self._inbox)
            self._verdicts.took(self._clock(), self._clock() - now)

    def _look_for_verdicts(self, inbox: Inbox | Deposit) -> None:
        try:
            found = [verdict for verdict in inbox.verdicts() if verdict.sha256 not in self._verdicts_told]
        except OSError as error:
            _LOG.warning("verdicts cannot be read: %s", error)
            return
        for start in range(0, len(found), MAX_ENTRIES):
            some = found[start : start + MAX_ENTRIES]
            verdict = protocol.SegmentVerdict
            told = (verdict(sha256=one.sha256, accepted=one.accepted, reason=one.reason[:100]) for one in some)
            self._say(protocol.Verdicts(verdicts=tuple(told)))
            self._verdicts_told |= {one.sha256 for one in some}

    def _listing_frames(self) -> Iterator[bytes]:
        self._feed.forget()  # now: a look that was under way is over
        yield from news_frames(self._feed.changes())
        self._is_listing = False
        yield encode(protocol.Listed())

    # --- in --------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._in, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise _Ended(f"the client disconnected ({error.strerror})") from error
        if not data:
            raise _Ended("the client disconnected")
        self._heard = self._clock()
        for frame in self._decoder.feed(data):
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        if not self._is_welcome:
            self._welcome(frame.message)
            return
        match frame.message:
            case protocol.Listing():
                self._list()
            case protocol.Get() as get:
                self._get(get)
            case protocol.ListSaved(slot=slot):
                self._say(saved(self._run_folder, slot))
            case protocol.Put() as put:
                self._look_for_inbox()
                self._say(self._uploads.begin(put))
            case protocol.Data() as data:
                if (answer := self._uploads.append(data, frame.payload)) is not None:
                    self._say(answer)
            case protocol.Ack(sha256s=sha256s):
                if self._inbox is not None:
                    with contextlib.suppress(OSError):  # told again at the next listing
                        self._inbox.acknowledge(sha256s)
                        self._verdicts_told -= set(sha256s)  # else they would add up as long as the connection lives
            case protocol.Ping(n=n):
                self._say(protocol.Pong(n=n))
            case protocol.Pong():
                pass
            case protocol.Bye():
                raise _Ended("the client said goodbye")
            case message:
                if not self._take_live(message, frame.payload):
                    raise ProtocolError("wire.unexpected-client", message=type(message).__name__)

    def _get(self, get: protocol.Get) -> None:
        if len(self._streams) >= MOST_STREAMS:
            raise ProtocolError("wire.too-many-files", most=MOST_STREAMS)
        root = (get.path.startswith("slots/") and self._run_folder) or self._shared.path
        self._streams.append(file_frames(root, get.key, get.path, get.offset))

    def _take_live(self, message: Message, payload: bytes) -> bool:
        """What is said of agents at play; False: it is not about them, or not a client's to say."""
        match message:
            case protocol.WatchLive() | protocol.SeenLive() | protocol.NeedScene():
                self._live.hear(message)
            case protocol.OfferLive():
                self._offer(message)
            case protocol.LiveBatch() | protocol.SceneSlice() if self._intake is not None:
                self._intake.hear(message, payload)
            case _:
                return False
        return True

    def _welcome(self, message: Message) -> None:
        if not isinstance(message, protocol.Hello):
            raise ProtocolError("wire.no-hello")
        ours = protocol.program_version()
        if message.protocol != protocol.PROTOCOL:
            raise ProtocolError(
                "wire.other-protocol", theirs=ours, their_protocol=protocol.PROTOCOL, ours=message.version,
                our_protocol=message.protocol,
            )  # fmt: skip
        self._version = message.version
        self._inbox_of = Inbox.of(self._shared, self._contributor or message.client)
        self._look_for_inbox()
        if isinstance(self._inbox, Inbox) and self._inbox.path.is_dir():  # looking makes no inbox
            with contextlib.suppress(OSError):
                note_seen(self._inbox.path, self._wall())
        self._is_welcome = True
        self._say(
            protocol.Welcome(
                protocol=protocol.PROTOCOL, version=ours,
                contributor=None if self._inbox is None else self._inbox.who,
                spread_s=spread_s(self._shared), time=self._wall(), segment_bytes=MAX_SEGMENT_BYTES,
            )
        )  # fmt: skip

    def _look_for_inbox(self) -> None:
        """Take the client's inbox if it can be written to; where there is none, the nearest folder above takes one.

        Asked again at each segment: a learner may make the shared folder while the connection lives.
        """
        if self._inbox is not None or self._inbox_of is None:
            return
        with contextlib.suppress(OSError):
            if not is_ours(self._shared):
                self._inbox = Deposit(self._shared) if self._shared.incoming_folder.is_dir() else None
            else:
                path = self._inbox_of.path
                nearest = next(above for above in (path, *path.parents) if os.path.exists(above))
                is_open = os.access(nearest, os.W_OK) and not path.is_symlink()
                self._inbox = self._inbox_of if is_open else None
            self._uploads = Uploads(self._inbox, self._version, self._wall)

    def _offer(self, said: protocol.OfferLive) -> None:
        """The client's agents may be watched; of another account's the folder has no place for them."""
        self._look_for_inbox()
        if self._intake is None and isinstance(self._inbox, Inbox):
            self._intake = LiveIntake(self._shared, self._inbox, self._say, self._clock, self._wall)
        if self._intake is not None:
            self._intake.offer(said)
        elif said.agents:
            self._say(protocol.WatchLive(wishes=(), sentence=NOT_HERE))

    def _list(self) -> None:
        """Everything on offer, then LISTED; from now on changes are pushed."""
        if self._is_listing:  # each costs work and memory, and its frame is ten bytes
            raise ProtocolError("wire.listed-twice")
        self._is_listing = True
        self._verdicts_told = set()
        if self._inbox is not None:
            self._look_for_verdicts(self._inbox)
        self._pushes.append(self._listing_frames())
        self._listens = True
