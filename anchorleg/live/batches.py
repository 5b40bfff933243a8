"""What a cell of a ring holds: `length u16 | header, JSON | body`. The same bytes go over the wire and to the page.

Kinds: POSE, where MuJoCo's bodies are, for a viewer that has the scene; JPEG, one picture; FACTS, the header alone.

A header has `at` (unix s), `task`, `episode`, `step` (of the first picture), `attempt`, `origin` ("training", "training
again", "played here", or a contributor's name), `return` (so far), `success` (true, false; null: not told) and `facts`
(an object of words and numbers). That of a POSE has also `scene` (sha256 of a blob), `frames` F, `bodies` B, `dt`
(simulated s from one to the next), `place` [x, y, z] and `unit` (m); its body is int16 [F, B, 7], little endian: a
position is `place + unit * (x, y, z)`, a rotation the unit quaternion (w, x, y, z) / 32767. Bodies are those of the
scene, in its order. Readers call `checked` first: strangers write here.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

from anchorleg.live.ring import MAX_PAYLOAD_BYTES
from anchorleg.words import printable

POSE, JPEG, FACTS = 1, 2, 3
#: The origin of what a job made while it learned; others are contributors' names.
ORIGIN_TRAINING = "training"
#: int16 numbers of one body's pose.
POSE_NUMBERS = 7
MOST_HEADER_BYTES = 8_192
#: Of a scene's file: what a job writes, the line carries and a viewer reads.
MOST_SCENE_BYTES = 8 * 2**20
MOST_FACTS, MOST_LETTERS = 64, 120
JPEG_BEGINS = b"\xff\xd8"
_LENGTH = struct.Struct(">H")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BadBatchError(ValueError):
    """No batch, or one that nobody could draw."""


def packed(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """The payload of a cell. Errors: ValueError where it is too large, or a number is not finite."""
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    data = _LENGTH.pack(len(text)) + text + body if len(text) <= MOST_HEADER_BYTES else b""
    if not data or len(data) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a batch of {len(text)} + {len(body)} bytes is too large")
    return data


def checked(kind: int, payload: bytes) -> tuple[dict[str, Any], bytes]:
    """(header, body), both as the module says, words printable; unknown fields are left out. Errors: BadBatchError."""
    try:
        return _checked(kind, payload)
    except BadBatchError:
        raise
    except (struct.error, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise BadBatchError(f"it cannot be read ({type(error).__name__})") from None


def _checked(kind: int, payload: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = _LENGTH.unpack_from(payload)
    if length > MOST_HEADER_BYTES:
        raise BadBatchError("its header is too long")
    value, body = json.loads(payload[2 : 2 + length]), payload[2 + length :]
    header = _header(value)
    if kind == POSE:
        return header | _pose(value, body), body
    if kind == JPEG and body[:2] != JPEG_BEGINS:
        raise BadBatchError("its picture is not a JPEG")
    if kind not in (JPEG, FACTS) or (kind == FACTS and body):
        raise BadBatchError("its kind is unknown")
    return header, body


def _header(value: Mapping[str, Any]) -> dict[str, Any]:
    success = value["success"]
    if success is not None and not isinstance(success, bool):
        raise BadBatchError("its success is neither true nor false")
    return {
        "at": _number(value["at"]),
        "task": _word(value["task"]),
        "episode": _count(value["episode"]),
        "step": _count(value["step"]),
        "attempt": _count(value["attempt"]),
        "origin": _word(value["origin"]),
        "return": _number(value["return"]),
        "success": success,
        "facts": {_word(name): _fact(one) for name, one in list(value["facts"].items())[:MOST_FACTS]},
    }


def _pose(value: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    scene, frames, bodies = value["scene"], _count(value["frames"]), _count(value["bodies"])
    place = [_number(one) for one in value["place"]]
    unit, dt = _number(value["unit"]), _number(value["dt"])
    if not _SHA256.fullmatch(scene) or len(place) != 3 or not (0 < unit < 1e6 and 0 < dt < 60):
        raise BadBatchError("its scene or its measures are not valid")
    if not frames or not bodies or len(body) != 2 * frames * bodies * POSE_NUMBERS:
        raise BadBatchError(f"{len(body)} bytes are not {frames} pictures of {bodies} bodies")
    return {"scene": scene, "frames": frames, "bodies": bodies, "place": place, "unit": unit, "dt": dt}


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise BadBatchError("a text is not valid")
    return printable(value, most=MOST_LETTERS)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise BadBatchError("a number is not valid")
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise BadBatchError("a count is not valid")
    return int(value)


def _fact(value: Any) -> str | float | bool:
    return value if isinstance(value, bool) else _word(value) if isinstance(value, str) else _number(value)
