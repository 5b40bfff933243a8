"""Messages between the learner and one environment worker, over a socket: an operation, JSON, arrays.

A step is thirteen bytes each way; its arrays lie on the board. No pickle: a worker runs nothing that it is sent.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

#: Operations. The worker answers each with DONE or FAILED.
SETUP, START, STEP, SNAPSHOT, RESTORE = b"U", b"A", b"S", b"N", b"R"
DONE, FAILED = b"D", b"F"

_HEAD = struct.Struct("!cIQ")


class Message(NamedTuple):
    """`op` is one of the constants above."""

    op: bytes
    meta: Any
    arrays: dict[str, npt.NDArray[Any]]


class Channel:
    """One end. Errors of both methods: EOFError when the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def send(self, op: bytes, meta: Any = None, arrays: Mapping[str, npt.NDArray[Any]] | None = None) -> None:
        """Write one message."""
        text = b"" if meta is None else json.dumps(meta).encode()
        data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}) if arrays else b""
        try:
            self._socket.sendall(_HEAD.pack(op, len(text), len(data)) + text + data)
        except OSError as error:
            raise EOFError(str(error)) from error

    def receive(self) -> Message:
        """Wait for one message."""
        op, text_bytes, data_bytes = _HEAD.unpack(self._exactly(_HEAD.size))
        meta = json.loads(self._exactly(text_bytes)) if text_bytes else None
        arrays = load(self._exactly(data_bytes)) if data_bytes else {}
        return Message(op, meta, arrays)

    def close(self) -> None:
        """The other end sees the end of the file."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            try:
                part = self._socket.recv(min(count, 1 << 20))
            except OSError as error:
                raise EOFError(str(error)) from error
            if not part:
                raise EOFError("the other end has closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
