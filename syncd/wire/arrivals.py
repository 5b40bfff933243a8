"""What arrives from a server: news until they are taken, and files that were asked for.

Nothing here is locked: the session calls it under its own condition.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from syncd.errors import ChangedError, GoneError, StorageError, SyncError
from syncd.wire import protocol
from syncd.wire.protocol import Frame, SegmentVerdict
from syncd.wire.transport import MAX_FILES, News, Offer, Receipt

#: More files or verdicts than this that nobody has taken yet, and longer paths, are left out: what is announced must
#: not fill the memory.
MAX_VERDICTS = 8_000
MAX_PATH = 250
_LEFT_OUT = "the other side announced more at once than anybody has: the rest is left out"
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
    A file of fewer is whole only if it `may_be_shorter`.
    Errors of the constructor: StorageError.
    """

    def __init__(self, part: Path, offset: int, length: int, *, may_be_shorter: bool = False) -> None:
        self.part = part
        self.may_be_shorter = may_be_shorter
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
        complete = self.at == self.length or self.may_be_shorter
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
