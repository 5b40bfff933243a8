"""What a server answers: news and files as frames, what is told of the contributor, what becomes of its segments."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from syncd.errors import ProtocolError
from syncd.shared.deposit import Deposit
from syncd.shared.inbox import Inbox
from syncd.shared.layout import Shared, folder_names, newest_saved, path_in_run, run_id_of, slots_in
from syncd.shared.reception import STORAGE_RETRY_S, Quota, Reception, Refusal, Stored, receive
from syncd.wire import protocol
from syncd.wire.feed import open_file
from syncd.wire.protocol import MAX_ENTRIES, MAX_PAYLOAD_BYTES, File, encode

NO_CHECKPOINTS = (
    "that side sends no whole checkpoints: either this key may not read them (the owner's `syncd setup --friend NAME "
    "--friend-checkpoints` prints a line that allows it), or the shared folder is not the run folder's own `shared`"
)


def news_frames(news: Iterable[File | None]) -> Iterator[bytes]:
    """OFFERED of what is new, policies at once. b"": nothing to say so far."""
    curves: list[File] = []
    for one in news:
        if one is not None and "/metrics/" not in one.path:
            yield encode(protocol.Offered(files=(one,)))
            continue
        curves += [one] if one is not None else []
        if len(curves) == MAX_ENTRIES:
            yield encode(protocol.Offered(files=tuple(curves)))
            curves = []
        else:
            yield b""
    if curves:
        yield encode(protocol.Offered(files=tuple(curves)))


def file_frames(root: Path, key: str, path: str, offset: int) -> Iterator[bytes]:
    """DATA of the file at `path` below `root` from `offset` on, then END; or GONE."""
    try:
        fd = open_file(root, path)
    except OSError:
        yield encode(protocol.FileGone(key=key, sentence=f"{path} no longer exists"))
        return
    with open(fd, "rb", buffering=0) as file:
        try:
            while payload := os.pread(file.fileno(), MAX_PAYLOAD_BYTES, offset):
                yield encode(protocol.Data(key=key, offset=offset), payload)
                offset += len(payload)
        except OSError as error:  # a network folder: the handle went stale
            yield encode(protocol.FileGone(key=key, sentence=f"{path} cannot be read now ({error.strerror})"))
            return
    yield encode(protocol.End(key=key, bytes=offset))


def saved(run: Path | None, first: int) -> protocol.SavedThere:
    """Whole checkpoints of the run folder `run`, of the slots from `first` on. None: this client gets none."""
    if run is None:
        return protocol.SavedThere(sentence=NO_CHECKPOINTS)
    try:
        wanted = [slot for slot in slots_in(run / "slots") if slot >= first][:MAX_ENTRIES]
        slots = tuple(protocol.SavedSlot(slot=slot, saved=tuple(_sized(run, slot))) for slot in wanted)
    except OSError as error:
        return protocol.SavedThere(sentence=f"the checkpoints there cannot be read ({error.strerror})")
    return protocol.SavedThere(run_id=run_id_of(run), slots=slots)


def _sized(run: Path, slot: int) -> Iterator[tuple[int, str, int]]:
    for one in newest_saved(run / "slots", slot):
        with contextlib.suppress(FileNotFoundError):
            yield (*one, os.lstat(run / path_in_run(slot, one) / "manifest.json").st_size)


#: Logins that a gateway takes a second. OpenSSH's `MaxStartups 10:30:100` begins to turn logins away at ten that are
#: under way, and one takes half a second where the machine is busy.
LOGINS_A_SECOND = 20
#: No more than this is asked for: a client waits no longer between two tries.
MOST_SPREAD_S = 60.0


def spread_s(shared: Shared) -> float:
    """Over so many seconds those who contribute here should spread their logins when they lose the server at once."""
    try:
        known = len(folder_names(shared.inbox_folder))
    except OSError:
        return 0.0
    return min(MOST_SPREAD_S, known / LOGINS_A_SECOND)


#: Segments that one client may have under way at once; above what ours sends, below what a mean one could hold open.
MOST_AT_ONCE = 64

Answer = protocol.Have | protocol.SegmentStored | protocol.SegmentRefused
_LOG = logging.getLogger(__name__)


class Uploads:
    """The open receptions of one connection. `inbox` None: nothing is taken. `version`: what the client says it is.

    Its methods raise ProtocolError only.
    """

    def __init__(
        self, inbox: Inbox | Deposit | None, version: str | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        self._inbox, self._version, self._wall = inbox, version, wall
        self._quota = Quota(inbox) if isinstance(inbox, Inbox) else None
        self._open: dict[str, Reception] = {}

    def _received(self, inbox: Inbox | Deposit, put: protocol.Put) -> Reception | Stored | Refusal:
        if isinstance(inbox, Deposit):
            return inbox.receive(put.run_id, put.slot, put.sha256, put.bytes, self._version)
        asked = (put.run_id, put.slot, put.sha256, put.bytes)
        return receive(inbox, *asked, self._quota, version=self._version, clock=self._wall)

    def begin(self, put: protocol.Put) -> Answer:
        """A segment is announced."""
        if self._inbox is None:
            return _refused(put.sha256, Refusal("no inbox", "this shared folder cannot be written to from here"))
        if put.sha256 in self._open or len(self._open) >= MOST_AT_ONCE:
            raise ProtocolError("wire.too-many-segments", most=MOST_AT_ONCE)
        try:
            answer = self._received(self._inbox, put)
        except OSError as error:
            return self._failed(put.sha256, error)
        if isinstance(answer, Refusal):
            return _refused(put.sha256, answer)
        if isinstance(answer, Stored):
            return protocol.SegmentStored(sha256=put.sha256)
        self._open[put.sha256] = answer
        return protocol.Have(sha256=put.sha256, offset=answer.offset)

    def append(self, data: protocol.Data, payload: bytes) -> Answer | None:
        """The next bytes of one; an answer where they were the last. Those of a refused one are passed over."""
        if data.key not in self._open:
            return None
        reception = self._open[data.key]
        if data.offset != reception.offset:
            raise ProtocolError("wire.segment-order")
        try:
            reception.write(payload)
        except ValueError as error:
            raise ProtocolError("wire.segment-too-long") from error
        return self._finish(data.key) if reception.is_whole else None

    def _finish(self, sha256: str) -> Answer:
        try:
            answer = self._open.pop(sha256).finish()
        except OSError as error:
            return self._failed(sha256, error)
        return _refused(sha256, answer) if isinstance(answer, Refusal) else protocol.SegmentStored(sha256=sha256)

    def _failed(self, sha256: str, error: OSError) -> protocol.SegmentRefused:
        _LOG.warning("a segment cannot be stored: %s", error)
        words = f"the other side cannot store it now ({error.strerror})"
        return _refused(sha256, Refusal("storage", words, STORAGE_RETRY_S))


def _refused(sha256: str, refusal: Refusal) -> protocol.SegmentRefused:
    return protocol.SegmentRefused(
        sha256=sha256,
        reason=refusal.reason[:100],
        sentence=refusal.sentence[:2000],
        retry_after_s=refusal.retry_after_s,
    )
