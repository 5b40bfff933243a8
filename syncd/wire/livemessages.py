"""The messages about agents at play, downwards to who watches and upwards from who plays (`syncd.wire.protocol`)."""

from __future__ import annotations

import zlib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from anchorleg.live.batches import JPEG
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, Cell
from anchorleg.live.wanted import MOST_FPS
from syncd.wire.fields import Count, Lane, Message, Name, OwnLane, Sentence, Sha256, Slot

#: Agents that one client watches at once.
MOST_WISHES = 8
#: Slots for which the agents of one client play at once, and may be watched: each has a ring and scenes over there.
MOST_OFFERS = 4
#: Contributors' agents of one run that a watcher is told of.
MOST_SHOWN = 64


class WireWish(BaseModel):
    """One agent that the client wants to see, with so many pictures a second."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    run_id: Name
    slot: Slot
    lane: Lane
    fps: Annotated[int, Field(ge=1, le=MOST_FPS)]


class WatchLive(Message):
    """WATCH: all that the client wants to see from now on; empty: nothing any more."""

    KIND = 21
    wishes: Annotated[tuple[WireWish, ...], Field(max_length=MOST_WISHES)]


class SeenLive(Message):
    """SEEN: all LIVE of the other side up to this number have been taken."""

    KIND = 22
    number: Count


class LiveBatch(Message):
    """LIVE: the newest batch of one agent; the payload is a cell's of its ring (`anchorleg.live.batches`),
    packed (`livepayload`).

    `number`: how many LIVE this side has sent over this connection, with this one. A client's is of an agent of its
    own.
    """

    KIND = 23
    run_id: Name
    slot: Slot
    lane: Lane
    number: Count
    kind: Annotated[int, Field(ge=0, le=255)]


class NobodyAsked(Message):
    """The run's jobs cannot be told that somebody watches; what others asked for is shown all the same."""

    KIND = 24
    run_id: Name
    sentence: Sentence


class PlayedSlot(BaseModel):
    """A slot whose policy the client's agents play."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    run_id: Name
    slot: Slot


class OfferLive(Message):
    """OFFER: which agents of the client may be watched from now on; empty: none any more."""

    KIND = 25
    agents: Annotated[tuple[PlayedSlot, ...], Field(max_length=MOST_OFFERS)]


class OwnWish(BaseModel):
    """One agent of the client's that somebody wants to see, with so many pictures a second."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    run_id: Name
    slot: Slot
    lane: OwnLane
    fps: Annotated[int, Field(ge=1, le=MOST_FPS)]


class WantedLive(Message):
    """WANTED: all of the client's agents that somebody wants to see from now on. `sentence`: why nobody ever will."""

    KIND = 26
    wishes: Annotated[tuple[OwnWish, ...], Field(max_length=MOST_WISHES)]
    sentence: Sentence = ""


class NeedScene(Message):
    """NEED: send a slice of a scene that an agent of the client's plays in, from `offset` on."""

    KIND = 27
    run_id: Name
    slot: Slot
    sha256: Sha256
    offset: Count


class SceneSlice(Message):
    """SCENE: the slice that was needed (the payload), less where the scene ends; nothing where it is not there."""

    KIND = 28
    sha256: Sha256
    offset: Count


class ShownAgent(BaseModel):
    """A contributor whose agents play the policy of a slot, and may be watched."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    slot: Slot
    who: Name


class ShownLive(Message):
    """SHOWN: all contributors' agents of a run that may be watched from now on."""

    KIND = 29
    run_id: Name
    agents: Annotated[tuple[ShownAgent, ...], Field(max_length=MOST_SHOWN)]


EVERY: tuple[type[Message], ...] = (
    WatchLive, SeenLive, LiveBatch, NobodyAsked, OfferLive, WantedLive, NeedScene, SceneSlice, ShownLive,
)  # fmt: skip


#: A JPEG is packed already.
_STORED, _PACKED = 0, 6


def shrunk(cell: Cell) -> bytes:
    """What goes over the line."""
    return zlib.compress(cell.payload, _STORED if cell.kind == JPEG else _PACKED)


def grown(payload: bytes) -> bytes:
    """The cell's payload; b"", which is no batch, where it is damaged or larger than a cell."""
    reader = zlib.decompressobj()
    try:
        found = reader.decompress(payload, MAX_PAYLOAD_BYTES + 1)
    except zlib.error:
        return b""
    return found if reader.eof and not reader.unused_data and len(found) <= MAX_PAYLOAD_BYTES else b""
