"""What goes over a bridge: connections of browsers, side by side in one stream of bytes. Pure.

::

    far → near    GREETING {"bridge": 1, "version": …, "place": …, "port": …} and a line feed; logins print before it
    near → far    TOKEN of the page
    near → far    OPEN: a browser has come
    both ways     DATA of that connection; CREDIT: so many bytes of it were taken; CLOSE: it is over
    both ways     SIGN, where nothing else was said for a while

The near end is the laptop's, the far one the login node's. Of each connection at most `WINDOW` bytes are under way: a
page that is slow to take what comes fills no buffer of ssh's, and gets the newest picture instead of old ones.

A frame: kind (1 byte), connection (4), length (4), big endian, and so many bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

#: Of all that is said here; two ends of different ones do not understand each other.
BRIDGE = 1
#: Of one frame: small, so that no connection has the line for long.
MOST_DATA = 16 * 1024
#: 400 kB/s at a round trip of 0.3 s.
WINDOW = 128 * 1024
#: Of what a login prints before the greeting, and of the greeting.
MOST_BEFORE = 256 * 1024
MOST_GREETING = 4096

_HEAD = struct.Struct(">BII")
_CREDIT = struct.Struct(">I")
_MARK = b"anchorleg-viewer-bridge:"


class BridgeKind(IntEnum):
    """What a frame is."""

    OPEN, DATA, CREDIT, CLOSE, SIGN, TOKEN = range(1, 7)


@dataclass(frozen=True)
class BridgeFrame:
    """One frame. `connection`: numbers count from 1, and none comes again; 0 where it is of none."""

    kind: BridgeKind
    connection: int = 0
    data: bytes = b""

    def packed(self) -> bytes:
        """As it goes over the line."""
        return _HEAD.pack(self.kind, self.connection, len(self.data)) + self.data

    def credit(self) -> int:
        """How many bytes were taken. Errors: ValueError where it does not say so."""
        if len(self.data) != _CREDIT.size:
            raise ValueError("a credit of the wrong length")
        return int(_CREDIT.unpack(self.data)[0])


def a_credit(connection: int, taken: int) -> BridgeFrame:
    """Of so many bytes that were taken."""
    return BridgeFrame(BridgeKind.CREDIT, connection, _CREDIT.pack(taken))


class Unpacker:
    """Bytes in, frames out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def frames(self, data: bytes) -> list[BridgeFrame]:
        """Those that `data` completes. Errors: ValueError where it can be no frame."""
        self._rest += data
        found = []
        while len(self._rest) >= _HEAD.size:
            kind, connection, length = _HEAD.unpack_from(self._rest)
            if length > MOST_DATA:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._rest) < _HEAD.size + length:
                break
            body = bytes(self._rest[_HEAD.size : _HEAD.size + length])
            del self._rest[: _HEAD.size + length]
            found.append(BridgeFrame(BridgeKind(kind), connection, body))
        return found


class Greeting(BaseModel):
    """What the far end says of itself. `place`: what is shown; `port`: which the run's settings name for its page."""

    model_config = ConfigDict(frozen=True)

    bridge: int
    version: Annotated[str, StringConstraints(max_length=100)]
    place: Annotated[str, StringConstraints(max_length=1000)] = ""
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None

    def line(self) -> bytes:
        """As it goes over the line."""
        return _MARK + self.model_dump_json().encode() + b"\n"


def greeting_in(said: bytes) -> tuple[Greeting, bytes] | None:
    """The greeting in what has come so far, and what came after it; None: it has not come yet.

    Errors: ValueError where there is none, or it is no greeting.
    """
    start = said.find(_MARK)
    end = said.find(b"\n", max(start, 0)) if start >= 0 else -1
    if end < 0:
        if len(said) > MOST_BEFORE or (start >= 0 and len(said) - start > MOST_GREETING):
            raise ValueError("it says much, and no greeting")
        return None
    try:
        return Greeting.model_validate_json(said[start + len(_MARK) : end]), said[end + 1 :]
    except ValidationError:
        raise ValueError("its greeting cannot be read") from None
