"""What arrives from a server: news until they are taken, files that were asked for, blobs that are pushed unasked.

Nothing here is locked: the session calls it under its own condition.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from typing import Protocol

from syncd.errors import ChangedError, GoneError, StorageError, SyncError
from syncd.shared.disk import writing
from syncd.wire import protocol
from syncd.wire.protocol import Frame
from syncd.wire.transport import MAX_SLOTS, News, Offer, Receipt, SegmentVerdict

#: Blobs up to this size are pushed right behind their manifest: a MT10 policy is 0.15 MB, the largest in use 1 MB.
EAGER_BYTES = 1024 * 1024
#: Pushed blobs that nobody has fetched yet; the oldest goes. It is fetched by asking then.
EAGER_KEPT = 16
#: More places of policies than this on offer (a slot has two: its own, and its averaged ones), more files or verdicts
#: that nobody has taken yet, and longer paths are left out: what is announced must not fill the memory.
MAX_PLACES = 2 * MAX_SLOTS
MAX_OFFERS = 200_000
MAX_VERDICTS = 8_000
MAX_PATH = 250
#: Of the newest manifests that came with their news. One of 15 kB for each of 4,000 slots; what is beyond is asked for.
MANIFESTS_BYTES = 64 * 1024 * 1024
_LEFT_OUT = "the other side announced more at once than anybody has: the rest is left out"
#: Too many open files, or a disk that stumbled, may be over then.
UNREADABLE_RETRY_S = 10.0


def write_part(part: Path, content: bytes) -> None:
    """`content` as the part file, fsynced. Errors: StorageError."""
    with writing(part.parent), open(part, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sha256_of(part: Path) -> str:
    """The sum of a file. Errors: OSError."""
    return hashlib.sha256(part.read_bytes()).hexdigest()


def read_segment(path: Path, most: int | None) -> bytes | Receipt:
    """A segment to send, or why it need not be: it is gone, this disk changed it (its name is its sum), or the other
    side takes `most` bytes at a time. What cannot be read now is tried again.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Receipt(False, "unreadable")
    except OSError as error:
        return Receipt(False, "unreadable", UNREADABLE_RETRY_S, error.strerror or str(error))
    if most is not None and len(content) > most:
        return Receipt(False, "size")
    return content if hashlib.sha256(content).hexdigest() == path.name else Receipt(False, "damaged")


class Receiving(Protocol):
    """What takes the DATA, END and GONE of one GET."""

    def append(self, offset: int, payload: bytes) -> None:
        """The next bytes."""

    def end(self) -> None:
        """The other side has sent everything."""

    def finish(self, error: SyncError | None) -> None:
        """No more comes; `error` says why it is not whole."""


class Download:
    """One file that was asked for. The thread that reads the connection appends, the caller waits for `done`.

    `offset`: where it goes on; what the part holds beyond it is cut off. `bytes`: no byte more is written.
    Errors of the constructor: StorageError.
    """

    def __init__(self, part: Path, offset: int, length: int) -> None:
        self.part = part
        self.at = offset
        self.length = length
        self.done = False
        self.error: SyncError | None = None
        try:
            self._fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self._fd, offset)
        except OSError as error:
            raise self._unwritable(error) from error

    def append(self, offset: int, payload: bytes) -> None:
        """The next bytes. Whatever is wrong with them ends the download with an error."""
        if self.done:
            return
        if offset != self.at or offset + len(payload) > self.length:
            self.finish(ChangedError("file.changed", path=self.part.name))
            return
        try:
            rest = memoryview(payload)
            while rest:
                rest = rest[os.pwrite(self._fd, rest, self.at + len(payload) - len(rest)) :]
        except OSError as error:
            self.finish(self._unwritable(error))
            return
        self.at += len(payload)

    def end(self) -> None:
        """The other side has sent everything."""
        complete = self.at == self.length
        self.finish(None if complete else ChangedError("file.changed", path=self.part.name))

    def finish(self, error: SyncError | None) -> None:
        """Close the part, durably; `error` says why it is not whole."""
        if self.done:
            return
        try:
            os.fsync(self._fd)
        except OSError as failed:
            error = error or self._unwritable(failed)
        os.close(self._fd)
        self.error = error
        self.done = True

    def _unwritable(self, error: OSError) -> StorageError:
        return StorageError("storage.unwritable", path=self.part.parent, why=error.strerror)


class Eager:
    """Blobs that the server pushes without being asked, by their sha256. Bounded in number and size."""

    def __init__(self) -> None:
        self._lengths: OrderedDict[str, int] = OrderedDict()
        self._contents: dict[str, bytearray] = {}

    def announce(self, sha256: str, length: int) -> None:
        """This blob follows. One that is larger than a server pushes is not kept."""
        if length > EAGER_BYTES or sha256 in self._lengths:
            return
        self._lengths[sha256] = length
        self._contents[sha256] = bytearray()
        while len(self._lengths) > EAGER_KEPT:
            self.drop(next(iter(self._lengths)))

    def append(self, sha256: str, offset: int, payload: bytes) -> None:
        """The next bytes; a blob that does not fit together is dropped, and fetched by asking."""
        content = self._contents.get(sha256)
        if content is None:
            return
        if offset != len(content) or offset + len(payload) > self._lengths[sha256]:
            self.drop(sha256)
            return
        content += payload

    def end(self, sha256: str) -> None:
        """All of it was sent; a short one is dropped."""
        if not self.is_whole(sha256):
            self.drop(sha256)

    def knows(self, sha256: str) -> bool:
        """Whether it is here, or on its way."""
        return sha256 in self._lengths

    def is_whole(self, sha256: str) -> bool:
        """Whether all of it is here."""
        return sha256 in self._lengths and len(self._contents[sha256]) == self._lengths[sha256]

    def take(self, sha256: str) -> bytes:
        """Hand out a whole one, and forget it. Errors: KeyError."""
        content = bytes(self._contents[sha256])
        self.drop(sha256)
        return content

    def drop(self, sha256: str) -> None:
        """Forget one."""
        self._lengths.pop(sha256, None)
        self._contents.pop(sha256, None)


class Arrivals:
    """Everything that a server said and nobody has taken yet, as far as an honest one would."""

    def __init__(
        self,
        *,
        places: int = MAX_PLACES,
        offers: int = MAX_OFFERS,
        verdicts: int = MAX_VERDICTS,
        manifests_bytes: int = MANIFESTS_BYTES,
    ) -> None:
        self._most_places, self._most_offers, self._most_verdicts = places, offers, verdicts
        self._most_manifests_bytes = manifests_bytes
        self.listings = 0
        self.polls_because: str | None = None
        self.downloads: dict[str, Receiving] = {}
        self.eager = Eager()
        self._manifests: dict[str, tuple[str, bytes]] = {}
        self._manifests_bytes = 0
        self._offers: dict[str, Offer] = {}
        self._verdicts: dict[str, SegmentVerdict] = {}
        self._left_out = ""

    def __bool__(self) -> bool:
        return bool(self._offers or self._verdicts or self._left_out)

    def take_news(self) -> News:
        """What has not been taken yet."""
        news = News(tuple(self._offers.values()), tuple(self._verdicts.values()), self._left_out)
        self._offers, self._verdicts, self._left_out = {}, {}, ""
        return news

    def begin_listing(self) -> None:
        """All policies will be named anew: those of slots that are not are gone, and make room."""
        self._manifests, self._manifests_bytes = {}, 0
        self._offers = {path: offer for path, offer in self._offers.items() if offer.kind != "manifest"}

    def manifest(self, path: str) -> bytes | None:
        """The content of a slot's newest manifest; None where `path` is not that, or where it was not kept."""
        newest, content = self._manifests.get(slot_of(path), ("", b""))
        return content if newest == path and content else None

    def put(self, frame: Frame) -> bool:
        """Keep what a frame brings; False where it is none of these. Errors: ProtocolError."""
        message, payload = frame.message, frame.payload
        match message:
            case protocol.PublishedPolicy():
                self._put_policy(message, payload)
            case protocol.Metrics():
                for file in message.files:
                    self._offer(Offer(file.path, file.bytes, file.sha256, "metrics"))
            case protocol.Verdicts():
                for said in message.verdicts:  # what is left out is told again, because it is not acknowledged
                    if said.sha256 in self._verdicts or len(self._verdicts) < self._most_verdicts:
                        self._verdicts[said.sha256] = SegmentVerdict(said.sha256, said.accepted, said.reason)
            case protocol.Listed(polls_because=why):
                self.listings += 1
                self.polls_because = why
            case protocol.Data() | protocol.End() | protocol.FileGone():
                self._put_bytes(message, payload)
            case _:
                return False
        return True

    def _put_policy(self, message: protocol.PublishedPolicy, payload: bytes) -> None:
        slot = slot_of(message.path)
        if slot not in self._manifests and len(self._manifests) >= self._most_places:
            self._left_out = _LEFT_OUT
            return
        overtaken, before = self._manifests.get(slot, ("", b""))
        self._offers.pop(overtaken, None)
        kept = payload if self._manifests_bytes - len(before) + len(payload) <= self._most_manifests_bytes else b""
        self._manifests_bytes += len(kept) - len(before)
        self._manifests[slot] = (message.path, kept)
        self._offer(Offer(message.path, len(payload), hashlib.sha256(payload).hexdigest(), "manifest"))
        if message.eager:
            self.eager.announce(message.blob_sha256, message.blob_bytes)

    def _offer(self, offer: Offer) -> None:
        if len(offer.path) <= MAX_PATH and (offer.path in self._offers or len(self._offers) < self._most_offers):
            self._offers[offer.path] = offer
        else:
            self._left_out = _LEFT_OUT

    def _put_bytes(self, message: protocol.Data | protocol.End | protocol.FileGone, payload: bytes) -> None:
        download = self.downloads.get(message.key)
        match message:
            case protocol.Data(key=key, offset=offset):
                if download is None:
                    self.eager.append(key, offset, payload)
                else:
                    download.append(offset, payload)
            case protocol.End(key=key):
                if download is None:
                    self.eager.end(key)
                else:
                    download.end()
            case protocol.FileGone(key=key, sentence=sentence):
                if download is None:
                    self.eager.drop(key)
                else:
                    download.finish(GoneError("peer.has-no-file", sentence=sentence))

    def fail(self, error: SyncError) -> None:
        """The connection ended: so do all downloads, with their parts as far as they came."""
        for download in self.downloads.values():
            download.finish(error)


def slot_of(path: str) -> str:
    """The slot's folder of a file in it: `v1/runs/r/0/manifests/x.json` → `v1/runs/r/0`."""
    parts = path.split("/")
    for kind in ("manifests", "blobs", "metrics"):
        if kind in parts[2:]:
            return "/".join(parts[: len(parts) - 1 - parts[::-1].index(kind)])
    return path
