"""The client's half of the protocol over any stream: what the pushing transports have in common.

Two threads: the caller's, and one that reads, answers pings and notices death. All state is under one condition.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from syncd.errors import ChangedError, ProtocolError, RemoteError, StorageError, SyncError, UnreachableError
from syncd.wire import protocol
from syncd.wire.arrivals import Arrivals, ConnectionFacts, Download, News, Offer, Receipt, read_segment
from syncd.wire.protocol import DEAD_AFTER_S, PING_EVERY_S, PREAMBLE, Decoder, Frame, Message, SegmentVerdict, encode
from syncd.wire.streams import Stream

#: From the connection's start to WELCOME: a first Python start from a cold network folder takes tens of seconds.
WELCOME_TIMEOUT_S = 60.0
#: A living peer that says nothing about a request for this long will not.
STUCK_AFTER_S = 120.0
#: The reader wakes this often to ping and to judge the silence, and the caller's thread to tell that it waits.
TICK_S = 2.5
#: What a login may print before our preamble.
MAX_NOISE_BYTES = 256 * 1024
#: Segments under way at once, so that round trips overlap; below the server's own limit.
SEGMENTS_IN_FLIGHT = 16
#: Of frames about agents at play the newest of each kind and agent is kept, until they are taken: so many at most.
MOST_LIVE = 64
_LIVE = (
    protocol.LiveBatch, protocol.ShownLive, protocol.WatchLive, protocol.NeedScene, protocol.SceneSlice,
    protocol.SeenLive,
)  # fmt: skip
#: What a goodbye may take, and then the reader's end.
FAREWELL_S, CLOSE_TIMEOUT_S = 0.5, 5.0


class Session:
    """A connection to one `$SHARED` that has been welcomed. One thread uses it; every call may raise UnreachableError,
    after which it is closed. `tick`: called every few seconds while a call waits for the other side.

    Args: `name` of the transport; `stream`, owned from here on; `client`, how we call ourselves; `place`, for
    sentences ("cluster.edu"). Errors: those of the handshake (UnreachableError, RemoteError, and what the stream's end
    explains); the stream is closed then.
    """

    def __init__(
        self,
        name: str,
        stream: Stream,
        client: str,
        *,
        place: str,
        logins: int,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.tick: Callable[[], None] = lambda: None
        self._stream, self._place, self._logins = stream, place, logins
        self._clock, self._wall = clock, wall
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._failure: SyncError | None = None
        self._welcome: protocol.Welcome | None = None
        self._decoder = Decoder()
        self._noise: bytearray | None = bytearray()
        self._bytes_in = self._bytes_out = 0
        self._heard = self._pinged = clock()
        self._pings = itertools.count(1)
        self._keys = itertools.count(1)
        self._ping: tuple[int, float] | None = None
        self._rtt_s: float | None = None
        self._clock_offset_s: float | None = None
        self._arrivals = Arrivals()
        self._live: dict[tuple[object, ...], Frame] = {}
        self._counted: list[str] = []
        self._answers: dict[str, Message] = {}
        self._asked: set[str] = set()
        self._closing = self._is_interrupted = False
        self._reader = threading.Thread(target=self._read, name=f"syncd {name}", daemon=True)
        self._reader.start()
        try:
            version = protocol.program_version()
            self.say(protocol.Hello(protocol=protocol.PROTOCOL, version=version, client=client))
            self._await(lambda: self._welcome is not None, WELCOME_TIMEOUT_S, "did not answer")
        except BaseException:
            self.close()
            raise

    # --- what a transport does -----------------------------------------------------------------------------------

    def listing(self) -> News:
        """Everything on offer now: each slot's newest manifest, all metrics, verdicts that nobody has counted."""
        with self._changed:
            before = self._arrivals.listings
        self.say(protocol.Listing())
        # Of a large folder that takes long; its server says between two steps that it lives.
        ready, progress = (lambda: self._arrivals.listings > before), (lambda: self._bytes_in)
        self._await(ready, STUCK_AFTER_S, "did not list what it has", progress)
        with self._changed:
            return self._arrivals.take_news()

    def wait(self, timeout_s: float) -> News:
        """What has changed since the last call; nothing when the time is over. Verdicts are told until they are
        `counted`.
        """
        for message in self._acknowledgements():
            self.say(message)
        with self._changed:
            self._changed.wait_for(
                lambda: self._failure or self._arrivals or self._live or self._is_interrupted, timeout_s
            )
            self._is_interrupted = False
            if self._failure is not None:
                raise self._failure
            return self._arrivals.take_news()

    def counted(self, verdicts: Sequence[SegmentVerdict]) -> None:
        """These are counted here, durably: the other side hears so with the next `wait` or `close`. Never raises."""
        self._counted += [verdict.sha256 for verdict in verdicts]

    def interrupt(self) -> None:
        """End the `wait` under way, or the next one, at once. For any thread; never raises."""
        with self._changed:
            self._is_interrupted = True
            self._changed.notify_all()

    def take_live(self) -> list[Frame]:
        """What has come about agents at play since the last call, in order: of each agent the newest."""
        with self._changed:
            found, self._live = list(self._live.values()), {}
        return found

    def say(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """Send one frame. Errors: UnreachableError."""
        data = encode(message, payload)
        with self._writing:
            try:
                self._stream.write(data, DEAD_AFTER_S)
            except OSError as error:
                self._await(lambda: self._failure is not None, TICK_S, "went away")  # the reader knows why
                raise self._silent() from error
            self._bytes_out += len(data)

    def fetch(self, offer: Offer, part: Path) -> None:
        """Bring the offered file to `part`, going on where that ends, fsynced. The caller verifies and renames it.

        Errors: UnreachableError (the part stays), StorageError, GoneError (the session lives on; list again),
        ChangedError (news of it follow). A part of a blob is gone on with, unless it is too long.
        """
        try:
            offset = part.stat().st_size if offer.kind == "blob" else 0
        except FileNotFoundError:
            offset = 0
        except OSError as error:
            raise StorageError("storage.unreadable", path=part, why=error.strerror) from error
        is_shorter = offset <= offer.bytes
        download = Download(part, offset if is_shorter else 0, offer.bytes)
        key = str(next(self._keys))
        try:
            with self._changed:
                self._arrivals.downloads[key] = download
            self.say(protocol.Get(key=key, path=offer.path, offset=download.at))
            self._await(lambda: download.done, STUCK_AFTER_S, "stopped sending", progress=lambda: download.at)
        finally:
            with self._changed:
                self._arrivals.downloads.pop(key, None)
                download.finish(None)
        if download.error is not None:
            raise download.error
        if offer.kind != "blob" and offer.sha256 not in {None, hashlib.sha256(part.read_bytes()).hexdigest()}:
            raise ChangedError("file.changed", path=offer.path)

    def send(self, segments: Sequence[tuple[Path, str, int]]) -> list[Receipt]:
        """Bring segments (file, named by its sha256; run id; slot) to our inbox there, several at a time."""
        receipts: list[Receipt] = []
        for start in range(0, len(segments), SEGMENTS_IN_FLIGHT):
            receipts += self._send_some(segments[start : start + SEGMENTS_IN_FLIGHT])
        return receipts

    def saved(self, slot: int) -> protocol.SavedThere:
        """The newest whole checkpoints of the first slots from `slot` on. Errors: UnreachableError."""
        self.say(protocol.ListSaved(slot=slot))
        answer = self._answer("saved")
        return answer if isinstance(answer, protocol.SavedThere) else protocol.SavedThere()

    def facts(self) -> ConnectionFacts:
        """What is known of the connection; also after `close`. Never raises."""
        facts = ConnectionFacts(self._bytes_in, self._bytes_out, self._rtt_s, self._clock_offset_s, logins=self._logins)
        if (told := self._welcome) is None:
            return facts
        return replace(facts, contributor=told.contributor, version=told.version, spread_s=told.spread_s)

    def close(self) -> None:
        """Say goodbye. May be called twice; never raises."""
        if self._closing:
            return
        self._closing = True
        if self._failure is None and self._welcome is not None:
            self._farewell()
        self._fail(UnreachableError("connection.closed", place=self._place))
        self._stream.close()
        if threading.current_thread() is not self._reader:
            self._reader.join(CLOSE_TIMEOUT_S)

    # --- the caller's thread ---------------------------------------------------------------------------------------

    def _await(
        self, ready: Callable[[], bool], timeout_s: float, what: str, progress: Callable[[], int] = lambda: 0
    ) -> None:
        """Until `ready`, or the connection failed, or nothing moved for `timeout_s`. Errors: UnreachableError…."""
        seen, moved_at = progress(), time.monotonic()
        while True:
            self.tick()
            with self._changed:
                self._changed.wait_for(lambda: ready() or self._failure, min(TICK_S, timeout_s))
                if ready():
                    return
                if self._failure is not None:
                    raise self._failure
            if seen != (seen := progress()):
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at >= timeout_s:
                raise UnreachableError("connection.stuck", place=self._place, what=what, seconds=timeout_s)

    def _acknowledgements(self) -> Iterator[protocol.Ack]:
        counted, self._counted = self._counted, []
        for start in range(0, len(counted), protocol.MAX_ENTRIES):
            yield protocol.Ack(sha256s=tuple(counted[start : start + protocol.MAX_ENTRIES]))

    def _send_some(self, segments: Sequence[tuple[Path, str, int]]) -> list[Receipt]:
        receipts: dict[str, Receipt] = {}
        contents: dict[str, bytes] = {}
        for path, run_id, slot in segments:
            content = read_segment(path, None if self._welcome is None else self._welcome.segment_bytes)
            if isinstance(content, Receipt):
                receipts[path.name] = content
                continue
            contents[path.name] = content
            self._answers.pop(path.name, None)
            self._asked.add(path.name)
            self.say(protocol.Put(sha256=path.name, run_id=run_id, slot=slot, bytes=len(content)))
        for sha256, content in contents.items():
            answer = self._answer(sha256)
            if isinstance(answer, protocol.Have):
                for at in range(answer.offset, max(len(content), answer.offset + 1), protocol.MAX_PAYLOAD_BYTES):
                    payload = memoryview(content)[at : at + protocol.MAX_PAYLOAD_BYTES]
                    self.tick()
                    self.say(protocol.Data(key=sha256, offset=at), payload)
            else:
                self._answers[sha256] = answer
        for sha256 in contents:
            answer = self._answer(sha256)
            if isinstance(answer, protocol.SegmentRefused):
                receipts[sha256] = Receipt(False, answer.reason, answer.retry_after_s, answer.sentence)
            else:
                receipts[sha256] = Receipt(True)
        self._asked.clear()
        return [receipts[path.name] for path, _, _ in segments]

    def _farewell(self) -> None:
        """Acknowledge, and say goodbye, as far as that goes at once: a person who ends a program does not wait."""
        data = b"".join(map(encode, [*self._acknowledgements(), protocol.Bye()]))
        if self._writing.acquire(timeout=FAREWELL_S):
            try:
                with contextlib.suppress(OSError):
                    self._stream.write(data, FAREWELL_S)
            finally:
                self._writing.release()

    def _answer(self, sha256: str) -> Message:
        self._await(lambda: sha256 in self._answers, STUCK_AFTER_S, "did not answer")
        return self._answers.pop(sha256)

    # --- the reader's thread -----------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            while not self._closing:
                data = self._stream.read(TICK_S)
                if data:
                    self._heard = self._clock()
                    self._bytes_in += len(data)
                    for frame in self._frames(data):
                        with self._changed:
                            self._take(frame)
                            self._changed.notify_all()
                elif data is not None:
                    raise self._end()
                elif self._welcome is not None and self._clock() - self._heard > DEAD_AFTER_S:
                    raise self._silent()
                self._beat()
        except SyncError as error:
            self._fail(error)
        except OSError as error:
            self._fail(UnreachableError("connection.broke", place=self._place, why=error.strerror or error))
        finally:
            self._stream.close()

    def _frames(self, data: bytes) -> Iterator[Frame]:
        if self._noise is not None:
            self._noise += data
            before, found, after = bytes(self._noise).partition(PREAMBLE)
            if not found:
                if len(before) > MAX_NOISE_BYTES:
                    raise RemoteError("connection.noise", place=self._place)
                return
            self._noise, data = None, after
        yield from self._decoder.feed(data)

    def _beat(self) -> None:
        """A ping, where it is time."""
        now = self._clock()
        if self._welcome is not None and now - self._pinged >= PING_EVERY_S:
            ping = (next(self._pings), now)
            if self._write_now(protocol.Ping(n=ping[0])):
                self._pinged, self._ping = now, ping

    def _write_now(self, message: Message) -> bool:
        """Whether it was sent: not while somebody's write is stuck, whose bytes are our sign of life."""
        if not self._writing.acquire(blocking=False):
            return False
        try:
            data = encode(message)
            self._stream.write(data, DEAD_AFTER_S)
            self._bytes_out += len(data)
        finally:
            self._writing.release()
        return True

    def _take(self, frame: Frame) -> None:
        match frame.message:
            case protocol.Welcome() as welcome:
                self._welcome = welcome
                self._clock_offset_s = welcome.time - self._wall()
            case protocol.Goaway() as last:
                raise protocol.ending(last)
            case protocol.Have() | protocol.SegmentStored() | protocol.SegmentRefused() as answer:
                if answer.sha256 in self._asked:  # else nobody will take it
                    self._answers[answer.sha256] = answer
            case protocol.SavedThere() as answer:
                self._answers["saved"] = answer
            case protocol.Ping(n=n):
                self._write_now(protocol.Pong(n=n))
            case protocol.Pong(n=n):
                if self._ping is not None and self._ping[0] == n:
                    self._rtt_s = self._clock() - self._ping[1]
            case _ if isinstance(message := frame.message, _LIVE):
                key = (type(message), *(getattr(message, name, None) for name in ("run_id", "slot", "lane")))
                self._live.pop(key, None)  # the newest goes last
                self._live[key] = frame
                while len(self._live) > MOST_LIVE:
                    del self._live[next(iter(self._live))]
            case message:
                if not self._arrivals.put(frame):
                    raise ProtocolError("wire.unexpected-server", place=self._place, message=type(message).__name__)

    def _silent(self) -> SyncError:
        return self._failure or UnreachableError(
            "connection.silent", place=self._place, seconds=self._clock() - self._heard
        )

    def _end(self) -> SyncError:
        """Why the stream ended. What once answered is not without a server: it broke, and may come back."""
        error = self._stream.why()
        broke = self._welcome is not None and isinstance(error, RemoteError)
        return UnreachableError("connection.ended", why=error) if broke else error

    def _fail(self, error: SyncError) -> None:
        with self._changed:
            if self._failure is None:
                self._failure = error
            self._arrivals.fail(error)
            self._changed.notify_all()
