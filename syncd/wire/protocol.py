"""The frames that `syncd serve` and its clients exchange over any ordered stream of bytes. Pure: no input or output.

A frame is `u32 length | u8 kind | u16 header length | header | payload`, big endian; `length` counts what follows it.
The header is JSON with the fields of the frame's message; unknown kinds and fields are refused. The server writes
`PREAMBLE` first, so that whatever a login prints before it is skipped. A conversation:

    client  HELLO        server  WELCOME or GOAWAY
            LIST                 POLICY (with its manifest)*, METRICS*, VERDICTS*, LISTED; then changes are pushed
            GET                  DATA*, END or GONE
            PUT                  HAVE (then the client sends DATA), STORED or REFUSED; after DATA one of the latter
            ACK                  (the verdicts are counted)
            LIST_SAVED           SAVED (which whole checkpoints there are, of up to 100 slots)
            WATCH                LIVE* while it is wanted, SHOWN (whose agents there are beside the jobs'),
                                 NOBODY_ASKED where a job cannot be told
            OFFER                WANTED (which of the client's own agents somebody watches); then the client sends LIVE
                                 NEED (a scene of these), SCENE*
    both    SEEN (the other side's LIVE were taken: more may come)
            PING → PONG every 5 s; 15 s of silence is death

A POLICY that is pushed with `eager` is followed by the DATA and END of its blob, as if the client had asked.
Several GETs and PUTs may be under way; DATA, END and GONE carry the `key` of what they belong to: downwards the one
that the GET chose (a running number), or the blob's sha256 where it is pushed; upwards the segment's sha256.
LIVE leaves when nothing else waits (`syncd.wire.live`); scenes are asked for in slices, by GETs with a `most`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anchorleg.errors import NamedError, catalogue
from syncd.errors import ProtocolError, RemoteError, SyncError, UnreachableError
from syncd.shared.saved import MOST_TOLD
from syncd.wire import livemessages
from syncd.wire.fields import AskedPath, Count, Key, Message, Name, Seconds, Sentence, Sha256, SharedPath, Slot, Word

PROTOCOL = 6
#: What no login prints by chance: a NUL byte is in it.
PREAMBLE = b"\n\x00anchorleg syncd\x00\n"
#: 256 KiB a frame: a few per policy, and a ping waits behind one for 20 ms at 100 Mbit/s.
MAX_PAYLOAD_BYTES = 256 * 1024
#: What the u16 can say. Manifests are payload, so that golden observations do not meet this limit.
MAX_HEADER_BYTES = 65_535
_PREFIX = struct.Struct(">IBH")
_INNER_BYTES = _PREFIX.size - 4
#: A ping this often, and this long a silence of a peer that should answer them, means that it is gone.
PING_EVERY_S = 5.0
DEAD_AFTER_S = 15.0
#: Entries of one METRICS, VERDICTS or ACK frame: 100 x 500 bytes fit into a header.
MAX_ENTRIES = 100
#: How a gate refuses (`syncd.access.gate`): as a shell does a command that may not run, with words that say who speaks.
REFUSED_EXIT_CODE = 126
REFUSED_PREFIX = "syncd gate:"


@cache
def program_version() -> str:
    """Of this installation; "unknown" where it runs from a plain copy of its code.

    As it was at the first call: an upgrade changes what lies on the disk, and not the code that runs here.
    """
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("anchorleg")
    except PackageNotFoundError:
        return "unknown"


class Hello(Message):
    """The client's first word. `client` names the inbox where the login itself does not.

    `bwlimit`: the server is to send at most so many KiB a second; 0: as the connection takes it.
    """

    KIND = 1
    protocol: Count
    version: Word
    client: Name
    bwlimit: Count = 0


class Standing(BaseModel):
    """How a contributor stands: thrown out; held for so long, and why; what counts against its quota."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    dropped: bool = False
    held_s: Seconds | None = None
    why: Sentence = ""
    segments: Count = 0
    bytes: Count = 0


class Welcome(Message):
    """Whom the server takes the client for (None: no inbox), its clock (unix s), and its cap on a segment.

    `standing`: how the contributor stands; None: that could not be looked at. `spread_s`: if the line breaks, the
    client should come back at a moment of its own within so many seconds: others lose it at the same time.
    """

    KIND = 2
    protocol: Count
    version: Word
    contributor: Name | None
    standing: Standing | None = None
    spread_s: Seconds = 0.0
    time: Seconds
    segment_bytes: Count


class Goaway(Message):
    """The server ends. `reason`: an error's identifier. `retry_after_s` None: not before a person has mended it."""

    KIND = 3
    reason: Word
    sentence: Sentence
    retry_after_s: Seconds | None


def goaway(error: NamedError, retry_after_s: float | None = None) -> Goaway:
    """The last word of a server that ends because of `error`."""
    return Goaway(reason=error.id, sentence=str(error)[:2000], retry_after_s=retry_after_s)


def ending(last: Goaway) -> SyncError:
    """`goaway`'s error on the other side: with the sentence that came, and the identifier where we know it."""
    made: SyncError = (
        RemoteError("peer.ends", sentence=last.sentence)
        if last.retry_after_s is None
        else UnreachableError("peer.ends-for-now", sentence=last.sentence)
    )
    if any(last.reason in known for known in catalogue("syncd").values()):
        made.id = last.reason
    return made


class Listing(Message):
    """LIST: tell everything on offer, then LISTED, then push what changes."""

    KIND = 4


class Listed(Message):
    """All that was on offer has been told. `polls_because`: why the server looks for news; "": its disk tells it."""

    KIND = 5
    polls_because: Word


class PublishedPolicy(Message):
    """The newest manifest of a slot (the payload is the file's content) and its blob."""

    KIND = 6
    path: SharedPath
    blob_bytes: Count
    blob_sha256: Sha256
    eager: bool


class File(BaseModel):
    """One file of metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    path: SharedPath
    bytes: Count
    sha256: Sha256


class Metrics(Message):
    """Files of metrics, new or changed."""

    KIND = 7
    files: Annotated[tuple[File, ...], Field(max_length=MAX_ENTRIES)]


class WireVerdict(BaseModel):
    """What was said of one segment."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    sha256: Sha256
    accepted: bool
    reason: Word


class Verdicts(Message):
    """Verdicts on the client's segments; told again at each listing until they are acknowledged."""

    KIND = 8
    verdicts: Annotated[tuple[WireVerdict, ...], Field(max_length=MAX_ENTRIES)]


class Ack(Message):
    """Verdicts that are counted: they need not be told any more."""

    KIND = 9
    sha256s: Annotated[tuple[Sha256, ...], Field(max_length=MAX_ENTRIES)]


class Get(Message):
    """Send a file from `offset` on, at most `most` bytes of it (None: all); its answers carry `key`."""

    KIND = 10
    key: Key
    path: AskedPath
    offset: Count
    most: Count | None = None


class Data(Message):
    """A part of a file, at `offset`: the payload."""

    KIND = 11
    key: Key
    offset: Count


class End(Message):
    """What was asked for has been sent: the file as far as its byte `bytes`."""

    KIND = 12
    key: Key
    bytes: Count


class FileGone(Message):
    """There is no such file (any more)."""

    KIND = 13
    key: Key
    sentence: Sentence


class Put(Message):
    """A segment is to be stored: its sum, what it belongs to, its size."""

    KIND = 14
    sha256: Sha256
    run_id: Name
    slot: Slot
    bytes: Count


class Have(Message):
    """Send the segment from `offset` on."""

    KIND = 15
    sha256: Sha256
    offset: Count


class SegmentStored(Message):
    """The segment lies in the inbox, durably."""

    KIND = 16
    sha256: Sha256


class SegmentRefused(Message):
    """The segment was not stored. `retry_after_s` None: never send it again."""

    KIND = 17
    sha256: Sha256
    reason: Word
    sentence: Sentence
    retry_after_s: Seconds | None


class Ping(Message):
    """Are you there?"""

    KIND = 18
    n: Count


class Pong(Message):
    """Yes."""

    KIND = 19
    n: Count


class Bye(Message):
    """The client ends."""

    KIND = 20


class ListSaved(Message):
    """Which whole checkpoints are there, of the first slots from `slot` on?"""

    KIND = 30
    slot: Count  # behind the last there may be


class SavedSlot(BaseModel):
    """The newest checkpoints of a slot, the newest first: attempt, step, bytes of its manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    slot: Slot
    saved: Annotated[tuple[tuple[Count, Count, Count], ...], Field(max_length=MOST_TOLD)]


class SavedThere(Message):
    """Whole checkpoints, and of which run; no slot: there are no more. `sentence`: why none are told of; "": they are.

    Their files are asked for with GET.
    """

    KIND = 31
    run_id: Name | None = None
    slots: Annotated[tuple[SavedSlot, ...], Field(max_length=MAX_ENTRIES)] = ()
    sentence: Sentence = ""


_KINDS: dict[int, type[Message]] = {kind.KIND: kind for kind in (*Message.__subclasses__(), *livemessages.EVERY)}


@dataclass(frozen=True)
class Frame:
    """A message and the bytes that came with it."""

    message: Message
    payload: bytes = b""


def encode(message: Message, payload: bytes | memoryview = b"") -> bytes:
    """The bytes of one frame. Errors: ValueError where header or payload are larger than a frame may be."""
    header = message.model_dump_json().encode()
    if len(header) > MAX_HEADER_BYTES or len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a {type(message).__name__} frame of {len(header)} + {len(payload)} bytes is too large")
    prefix = _PREFIX.pack(_INNER_BYTES + len(header) + len(payload), message.KIND, len(header))
    return b"".join((prefix, header, payload))


class Decoder:
    """Frames out of bytes that arrive in any pieces. Keeps at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Every frame that `data` completes. Errors: ProtocolError; the decoder is of no use after it."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _PREFIX.size:
                length, kind, header_bytes = _PREFIX.unpack_from(self._buffer, start)
                payload_bytes = length - _INNER_BYTES - header_bytes
                if not 0 <= payload_bytes <= MAX_PAYLOAD_BYTES:
                    raise ProtocolError("wire.frame-length", bytes=length)
                if kind not in _KINDS:
                    raise ProtocolError("wire.frame-kind", kind=kind)
                end = start + 4 + length
                if len(self._buffer) < end:
                    break
                middle = start + _PREFIX.size + header_bytes
                header = bytes(self._buffer[start + _PREFIX.size : middle])
                payload = bytes(self._buffer[middle:end])
                start = end
                yield Frame(_parse(kind, header), payload)
        finally:
            del self._buffer[:start]


def _parse(kind: int, header: bytes) -> Message:
    try:
        return _KINDS[kind].model_validate_json(header)
    except (ValidationError, ValueError, RecursionError) as error:
        name = _KINDS[kind].__name__
        raise ProtocolError("wire.frame-header", message=name) from error
