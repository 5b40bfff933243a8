"""Messages between the learner and one environment worker, over a socket: an operation, JSON, arrays.

A step is thirteen bytes each way; its arrays lie in `SharedBuffers`. No pickle: a worker runs nothing that it is sent.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

#: Operations. The worker answers each with DONE or FAILED. Before that it says that it goes on, as often as it likes
#: (DOING): to START and RESTORE with each environment.
SETUP, START, STEP, SNAPSHOT, RESTORE, LOOK = b"U", b"A", b"S", b"N", b"R", b"L"
DONE, FAILED, DOING = b"D", b"F", b"O"

#: Silence is counted in looks of this length, not by a clock: while a whole job is suspended, at most one look passes.
LOOK_S = 1.0

_HEAD = struct.Struct("!cIQ")
_T = TypeVar("_T")


class WorkerMessage(NamedTuple):
    """`op` is one of the constants above."""

    op: bytes
    meta: Any
    arrays: dict[str, npt.NDArray[Any]]


class Channel:
    """One end. Errors of `send` and `receive`: EOFError when the other end is gone, TimeoutError when it is silent for
    `limit_s` (neither takes nor sends a byte); after either the channel is of no more use.
    """

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(LOOK_S)
        self._socket = end

    def send(
        self,
        op: bytes,
        meta: Any = None,
        arrays: Mapping[str, npt.NDArray[Any]] | None = None,
        limit_s: float = math.inf,
    ) -> None:
        """Write one message."""
        text = b"" if meta is None else json.dumps(meta).encode()
        data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()}) if arrays else b""
        rest = memoryview(_HEAD.pack(op, len(text), len(data)) + text + data)
        while rest:
            rest = rest[_patiently(lambda: self._socket.send(rest), limit_s) :]  # noqa: B023 - called at once

    def receive(self, limit_s: float = math.inf) -> WorkerMessage:
        """Wait for one message."""
        op, text_bytes, data_bytes = _HEAD.unpack(self._exactly(_HEAD.size, limit_s))
        meta = json.loads(self._exactly(text_bytes, limit_s)) if text_bytes else None
        arrays = load(self._exactly(data_bytes, limit_s)) if data_bytes else {}
        return WorkerMessage(op, meta, arrays)

    def close(self) -> None:
        """The other end sees the end of the file."""
        self._socket.close()

    def _exactly(self, count: int, limit_s: float) -> bytes:
        parts: list[bytes] = []
        while count:
            part = _patiently(lambda: self._socket.recv(min(count, 1 << 20)), limit_s)  # noqa: B023 - called at once
            if not part:
                raise EOFError("the other end has closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _patiently(act: Callable[[], _T], limit_s: float) -> _T:
    """`act`, which gives up after a look, until it comes to something or `limit_s` of looks have passed."""
    silent_s = 0.0
    while True:
        try:
            return act()
        except TimeoutError:
            silent_s += LOOK_S
            if silent_s >= limit_s:
                raise
        except OSError as error:
            raise EOFError(str(error)) from error
