"""The frames that `syncd serve` and its clients exchange over any ordered stream of bytes. Pure: no input or output.

A frame is `u32 length | u8 kind | u16 header length | header | payload`, big endian; `length` counts what follows it.
The header is JSON with the fields of the frame's message; unknown kinds and fields are refused. The server writes
`PREAMBLE` first, so that whatever a login prints before it is skipped. A conversation:

    client  HELLO        server  WELCOME or GOAWAY
            LIST                 OFFERED*, VERDICTS*, LISTED; then changes are told
            GET                  DATA*, END or GONE
            PUT                  HAVE (then the client sends DATA), STORED or REFUSED; after DATA one of the latter
            ACK                  (the verdicts are counted)
            LIST_SAVED           SAVED (which whole checkpoints there are, of up to 100 slots)
            WATCH                SHOWN (whose agents there are beside the jobs'), LIVE* while it is wanted
            OFFER                WATCH (which of the client's own agents somebody wants to see); the client sends LIVE*
    both    SEEN (the other side's LIVE were taken: more may come), NEED (a slice of a scene), SCENE
            PING → PONG every 5 s; 15 s of silence is death

Several GETs and PUTs may be under way; DATA, END and GONE carry the `key` of what they belong to: downwards the one
that the GET chose (a running number), upwards the segment's sha256. LIVE leaves when nothing else waits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from anchorleg.errors import NamedError, catalogue
from anchorleg.live.wanted import MOST_FPS, SHOWN_LANE
from anchorleg.words import printable
from syncd.errors import ProtocolError, RemoteError, SyncError, UnreachableError
from syncd.shared.layout import MOST_TOLD, NUMBER

PROTOCOL = 9
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
#: Entries of one OFFERED, VERDICTS or ACK frame: 100 x 500 bytes fit into a header.
MAX_ENTRIES = 100
#: Agents that one client watches at once; slots of which its own may be watched; contributors that a watcher of one run
#: is told of.
MOST_WISHES, MOST_OFFERS, MOST_SHOWN = 8, 4, 64
#: How a gate refuses (`syncd.access.gate`): as a shell does a command that may not run, with words that say who speaks.
REFUSED_EXIT_CODE = 126
REFUSED_PREFIX = "syncd gate:"

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
#: A run id, a contributor: a single component of a path that is no option, no hidden file and no way upwards.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
_COMPONENT = "[A-Za-z0-9][A-Za-z0-9._-]{0,160}"
#: Below `$SHARED`; what may be read there is the server's decision (`syncd.wire.feed`).
SharedPath = Annotated[str, Field(pattern=rf"^v1(/{_COMPONENT}){{2,7}}$")]
#: That, or a file of a whole checkpoint, below the run folder (`syncd.shared.layout`).
AskedPath = Annotated[str, Field(pattern=rf"^(v1|slots)(/{_COMPONENT}){{2,7}}$")]
#: As `syncd.shared.layout.SLOT`: what can be a folder can be sent.
Slot = Annotated[int, Field(ge=0, le=999_999)]
#: What of a slot is shown, by its job or a contributor.
Lane = Annotated[str, Field(pattern=f"^({SHOWN_LANE.pattern})$")]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
Digits = Annotated[str, Field(pattern=f"^{NUMBER}$")]
_SENTENCE_CHARS, _WORD_CHARS = 2000, 100
#: The peer's own words: printable from here on, wherever they are shown or kept.
Sentence = Annotated[str, Field(max_length=_SENTENCE_CHARS), AfterValidator(partial(printable, most=_SENTENCE_CHARS))]
Word = Annotated[str, Field(max_length=_WORD_CHARS), AfterValidator(partial(printable, most=_WORD_CHARS))]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]


class WirePart(BaseModel):
    """What messages are made of: nothing else is taken from the other side."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Message(WirePart):
    """The header of one frame. Its `KIND`, the frame's number on the wire, is its place among the messages below: the
    first three keep theirs, so that programs of other versions understand why they cannot talk.
    """

    KIND: ClassVar[int]


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
    """The client's first word. `client` names the inbox where the login itself does not."""

    model_config = ConfigDict(extra="ignore")  # of another version's: it is told so

    protocol: Count
    version: Word
    client: Name


class Welcome(Message):
    """Whom the server takes the client for (None: no inbox), its clock (unix s), and its cap on a segment.

    `spread_s`: if the line breaks, the client should come back at a moment of its own within so many seconds: others
    lose it at the same time.
    """

    protocol: Count
    version: Word
    contributor: Name | None
    spread_s: Seconds = 0.0
    time: Seconds
    segment_bytes: Count


class Goaway(Message):
    """The server ends. `reason`: an error's identifier. `retry_after_s` None: not before a person has mended it."""

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


class Listed(Message):
    """All that was on offer has been told."""


class File(WirePart):
    """One file: the newest manifest of a slot, or a file of metrics."""

    path: SharedPath
    bytes: Count
    sha256: Sha256


class Offered(Message):
    """Files that are new or have changed."""

    files: Annotated[tuple[File, ...], Field(max_length=MAX_ENTRIES)]


class SegmentVerdict(WirePart):
    """What the learner said of one segment. `reason` is "" where it was accepted."""

    sha256: Sha256
    accepted: bool
    reason: Word


class Verdicts(Message):
    """Verdicts on the client's segments; told again at each listing until they are acknowledged."""

    verdicts: Annotated[tuple[SegmentVerdict, ...], Field(max_length=MAX_ENTRIES)]


class Ack(Message):
    """Verdicts that are counted: they need not be told any more."""

    sha256s: Annotated[tuple[Sha256, ...], Field(max_length=MAX_ENTRIES)]


class Get(Message):
    """Send a file from `offset` on; its answers carry `key`."""

    key: Key
    path: AskedPath
    offset: Count


class Data(Message):
    """A part of a file, at `offset`: the payload."""

    key: Key
    offset: Count


class End(Message):
    """What was asked for has been sent: the file as far as its byte `bytes`."""

    key: Key
    bytes: Count


class FileGone(Message):
    """There is no such file (any more)."""

    key: Key
    sentence: Sentence


class Put(Message):
    """A segment is to be stored: its sum, what it belongs to, its size."""

    sha256: Sha256
    run_id: Name
    slot: Slot
    bytes: Count


class Have(Message):
    """Send the segment from `offset` on."""

    sha256: Sha256
    offset: Count


class SegmentStored(Message):
    """The segment lies in the inbox, durably."""

    sha256: Sha256


class SegmentRefused(Message):
    """The segment was not stored. `retry_after_s` None: never send it again."""

    sha256: Sha256
    reason: Word
    sentence: Sentence
    retry_after_s: Seconds | None


class Ping(Message):
    """Are you there?"""

    n: Count


class Pong(Message):
    """Yes."""

    n: Count


class Bye(Message):
    """The client ends."""


class ListSaved(Message):
    """Which whole checkpoints are there, of the first slots from `slot` on?"""

    slot: Count  # behind the last there may be


class SavedSlot(WirePart):
    """The newest checkpoints of a slot, the newest first: attempt, step, bytes of its manifest."""

    slot: Slot
    saved: Annotated[tuple[tuple[Count, Digits, Count], ...], Field(max_length=MOST_TOLD)]


class SavedThere(Message):
    """Whole checkpoints, and of which run; no slot: there are no more. `sentence`: why none are told of; "": they are.

    Their files are asked for with GET.
    """

    run_id: Name | None = None
    slots: Annotated[tuple[SavedSlot, ...], Field(max_length=MAX_ENTRIES)] = ()
    sentence: Sentence = ""


class WireWish(WirePart):
    """One agent that the client wants to see, with so many pictures a second."""

    run_id: Name
    slot: Slot
    lane: Lane
    fps: Annotated[int, Field(ge=1, le=MOST_FPS)]


class WatchLive(Message):
    """WATCH: all that this side wants to see from now on; empty: nothing any more. `sentence`: why nobody ever will."""

    wishes: Annotated[tuple[WireWish, ...], Field(max_length=MOST_WISHES)]
    sentence: Sentence = ""


class SeenLive(Message):
    """SEEN: all LIVE of the other side up to this number have been taken."""

    number: Count


class LiveBatch(Message):
    """LIVE: the newest batch of one agent; the payload is a cell's of its ring (`anchorleg.live.batches`),
    packed (`syncd.wire.liveline`).

    `number`: how many LIVE this side has sent over this connection, with this one. A client's is of an agent of its
    own.
    """

    run_id: Name
    slot: Slot
    lane: Lane
    number: Count
    kind: Annotated[int, Field(ge=0, le=255)]


class NeedScene(Message):
    """NEED: send a slice of a scene that an agent of the other side's plays in, from `offset` on."""

    run_id: Name
    slot: Slot
    lane: Lane
    sha256: Sha256
    offset: Count


class SceneSlice(Message):
    """SCENE: the slice that was needed (the payload), less where the scene ends; nothing where it is not there."""

    sha256: Sha256
    offset: Count


class OfferLive(Message):
    """OFFER: (run id, slot) for which agents of the client play, and may be watched from now on."""

    agents: Annotated[tuple[tuple[Name, Slot], ...], Field(max_length=MOST_OFFERS)]


class ShownLive(Message):
    """SHOWN: (slot, contributor) of all agents of a run that may be watched from now on, beside its jobs'. `sentence`:
    why the jobs cannot be told that somebody watches; what others asked for is shown all the same.
    """

    run_id: Name
    agents: Annotated[tuple[tuple[Slot, Name], ...], Field(max_length=MOST_SHOWN)]
    sentence: Sentence = ""


_KINDS: dict[int, type[Message]] = dict(enumerate(Message.__subclasses__(), 1))
for _number, _kind in _KINDS.items():
    _kind.KIND = _number


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
