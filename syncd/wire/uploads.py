"""Segments on their way up, on the server's side: what the inbox says of each, as answers for the client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from syncd.errors import ProtocolError
from syncd.shared.guests import Guest
from syncd.shared.inbox import Inbox
from syncd.shared.reception import STORAGE_RETRY_S, Quota, Reception, Refusal, Stored, receive
from syncd.wire import protocol

#: Segments that one client may have under way at once; above what ours sends, below what a mean one could hold open.
MOST_AT_ONCE = 64

Answer = protocol.Have | protocol.SegmentStored | protocol.SegmentRefused
_LOG = logging.getLogger(__name__)


class Uploads:
    """The open receptions of one connection. `inbox` None: nothing is taken. `version`: what the client says it is.

    Its methods raise ProtocolError only.
    """

    def __init__(
        self, inbox: Inbox | Guest | None, version: str | None = None, wall: Callable[[], float] = time.time
    ) -> None:
        self._inbox, self._version, self._wall = inbox, version, wall
        self._quota = Quota(inbox) if isinstance(inbox, Inbox) else None
        self._open: dict[str, Reception] = {}

    def _received(self, inbox: Inbox | Guest, put: protocol.Put) -> Reception | Stored | Refusal:
        if isinstance(inbox, Guest):
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
