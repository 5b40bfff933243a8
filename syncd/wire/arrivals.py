"""What passes between a session and those who use it: offers, news, receipts, and files that were asked for.

Paths are relative to `$SHARED`, with `/`: `v1/runs/<run>/<slot>/LATEST.json`.

Nothing here is locked: the session calls it under its own condition.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from syncd.errors import ChangedError, GoneError, StorageError, SyncError
from syncd.shared.layout import AVERAGED
from syncd.wire import protocol
from syncd.wire.protocol import Frame, SegmentVerdict

#: What a mirror takes (`syncd.laptop.capacity`), and so a transport keeps. A queue of 2,000 experiments, twice.
MAX_SLOTS = 4_000
#: 4,000 slots with three policies each and ten parts of curves have 80,000.
MAX_FILES = 200_000
#: Of the curves of all slots: 34 with 20,000 rows each have 1.1 GB on MT10, and 4.3 on MT50.
MAX_CURVES_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Offer:
    """One file of the other side: a manifest (the newest of its slot), a file of metrics; or what is no news, because
    something else names it: a blob.

    `sha256` is the hex sum of the content; None where nobody knows it beforehand (what comes by rsync).
    """

    path: str
    bytes: int
    sha256: str | None
    kind: Literal["manifest", "blob", "metrics"]


@dataclass(frozen=True)
class Receipt:
    """What the inbox said of one segment that was sent.

    `stored`: it lies there durably (or did already). Else `reason`, and when to try again (None: never). `sentence`:
    the other side's own words, printable; "": it said none.
    """

    stored: bool
    reason: str = ""
    retry_after_s: float | None = None
    sentence: str = ""


@dataclass(frozen=True)
class News:
    """What changed: the newest offers of each changed slot, and verdicts on our segments. Empty: nothing did.

    `left_out`: of what there is more than a transport keeps, as a sentence; "": all of it is told.
    """

    offers: tuple[Offer, ...] = ()
    verdicts: tuple[SegmentVerdict, ...] = ()
    left_out: str = ""

    @property
    def policies(self) -> int:
        """How many slots offer one. Its average is no other policy."""
        return sum(offer.kind == "manifest" and f"/{AVERAGED}/" not in offer.path for offer in self.offers)


@dataclass(frozen=True)
class ConnectionFacts:
    """What a transport can tell of its connection, for `status`.

    `bytes_in`, `bytes_out`: what it read and wrote so far. `rtt_s`: of the last ping. `clock_offset_s`: the other
    side's clock minus ours. `contributor`: the inbox that is ours over there. `logins`: how many logins it took.
    `version`: of Anchorleg over there. `spread_s`: over how long its clients come back when they lose it at
    once. None: not known.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    rtt_s: float | None = None
    clock_offset_s: float | None = None
    contributor: str | None = None
    logins: int = 0
    version: str | None = None
    spread_s: float = 0.0


#: More files or verdicts than this that nobody has taken yet, and longer paths, are left out: what is announced must
#: not fill the memory.
MAX_VERDICTS = 8_000
MAX_PATH = 250
_LEFT_OUT = "the other side announced too many files at once: the rest is left out"
#: Too many open files, or a disk that stumbled, may be over then.
UNREADABLE_RETRY_S = 10.0


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


class Download:
    """One file that was asked for. The thread that reads the connection appends, the caller waits for `done`.

    `offset`: where it goes on; what the part holds beyond it is cut off. `length`: no byte more is written.
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


class Arrivals:
    """Everything that a server said and nobody has taken yet, as far as an honest one would."""

    def __init__(self, *, offers: int = MAX_FILES, verdicts: int = MAX_VERDICTS) -> None:
        self._most_offers, self._most_verdicts = offers, verdicts
        self.listings = 0
        self.downloads: dict[str, Download] = {}
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

    def put(self, frame: Frame) -> bool:
        """Keep what a frame brings; False where it is none of these."""
        match frame.message:
            case protocol.Offered(files=files):
                for file in files:
                    is_curve = "/metrics/" in file.path
                    self._offer(Offer(file.path, file.bytes, file.sha256, "metrics" if is_curve else "manifest"))
            case protocol.Verdicts(verdicts=verdicts):
                for said in verdicts:  # what is left out is told again, because it is not acknowledged
                    if said.sha256 in self._verdicts or len(self._verdicts) < self._most_verdicts:
                        self._verdicts[said.sha256] = said
            case protocol.Listed():
                self.listings += 1
            case protocol.Data(key=key, offset=offset):
                if (download := self.downloads.get(key)) is not None:
                    download.append(offset, frame.payload)
            case protocol.End(key=key):
                if (download := self.downloads.get(key)) is not None:
                    download.end()
            case protocol.FileGone(key=key, sentence=sentence):
                if (download := self.downloads.get(key)) is not None:
                    download.finish(GoneError("peer.has-no-file", sentence=sentence))
            case _:
                return False
        return True

    def _offer(self, offer: Offer) -> None:
        if len(offer.path) <= MAX_PATH and (offer.path in self._offers or len(self._offers) < self._most_offers):
            self._offers[offer.path] = offer
        else:
            self._left_out = _LEFT_OUT

    def fail(self, error: SyncError) -> None:
        """The connection ended: so do all downloads, with their parts as far as they came."""
        for download in self.downloads.values():
            download.finish(error)
