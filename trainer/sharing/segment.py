"""A segment: an episode, or its beginning, as it travels between machines. Its file format, and its reader.

It is a safetensors file, compressed by zstd, named by the sha256 of the compressed bytes. T steps of
observations of O numbers and actions of A::

    obs [T+1, O] f32   action [T, A] f32   reward [T] f32   success, terminated, truncated [T] u8   version [T, 2] i32

`version` is (attempt, seq) of the policy that acted. The header's metadata, all strings: format, run_id, slot, task,
horizon, env, episode, actor (random, one for each actor process).

`decode` reads bytes that a stranger may have made: it allocates no more than `MAX_RAW_BYTES`, accepts exactly this
layout, and judges no values; `trainer.sharing.judge.judge` does.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import zstandard

from anchorleg.errors import NamedError
from anchorleg.words import printable
from trainer.envs.spaces import STATE, Box, Spaces

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]

FORMAT = "2"
#: A segment of Meta-World of 500 steps is 94 kB raw, and its header 1 kB; honest ones are half of that when compressed.
MAX_RAW_BYTES = 128 * 1024
MAX_SEGMENT_BYTES = 128 * 1024
#: The header of an honest segment is below that.
_HONEST_HEADER_BYTES = 1024
MAX_HEADER_BYTES = 8 * 1024
#: zstd's default: a segment takes 1 ms, and higher levels gain 2 %.
_LEVEL = 3
#: Field → (its safetensors type, its numpy type).
_FIELDS: dict[str, tuple[str, type[np.generic]]] = {
    "obs": ("F32", np.float32),
    "action": ("F32", np.float32),
    "reward": ("F32", np.float32),
    "success": ("U8", np.uint8),
    "terminated": ("U8", np.uint8),
    "truncated": ("U8", np.uint8),
    "version": ("I32", np.int32),
}
_WORDS = ("format", "run_id", "slot", "task", "horizon", "env", "episode", "actor")
_COUNTS = ("slot", "horizon", "env", "episode")
_HEAD = struct.Struct("<Q")


def can_record(spaces: Spaces) -> bool:
    """Whether a segment can hold what is seen and done: one row of real numbers each."""
    state = spaces.obs.get(STATE)
    is_row = state is not None and state.dtype == "float32" and len(state.shape) == 1
    return is_row and len(spaces.obs) == 1 and isinstance(spaces.action, Box)


def can_hold_whole(spaces: Spaces) -> bool:
    """Whether a segment can hold an episode of full length, where it `can_record` one."""
    shapes = _shapes(spaces.horizon, *spaces.obs[STATE].shape, *spaces.action.shape)
    arrays = sum(math.prod(shape) * np.dtype(_FIELDS[name][1]).itemsize for name, shape in shapes.items())
    return arrays + _HONEST_HEADER_BYTES <= MAX_RAW_BYTES


#: Counts in the metadata: no sign, no leading zeros, below 10^9.
_COUNT = re.compile(r"0|[1-9][0-9]{0,8}")
_ACTOR = re.compile(r"[0-9a-f]{8,64}")
#: How much of a stranger's words a sentence repeats.
_SHOWN_CHARS = 60
#: How much of a library's, which may quote a stranger's.
_SHOWN_ERROR_CHARS = 120


class Reason(StrEnum):
    """Why a segment is not used. The values appear in files and tables."""

    SIZE = "size"
    NAME = "name"
    COMPRESSION = "compression"
    FORMAT = "format"
    SCHEMA = "schema"
    DTYPE = "dtype"
    SHAPE = "shape"
    NOT_FINITE = "not_finite"
    ACTION_RANGE = "action_range"
    OBSERVATION_RANGE = "observation_range"
    REWARD_RANGE = "reward_range"
    SUCCESS = "success"
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    DISCONTINUOUS = "discontinuous"
    OTHER_RUN = "other_run"
    OTHER_TASK = "other_task"
    VERSION_UNKNOWN = "version_unknown"
    VERSION_LAG = "version_lag"
    DUPLICATE = "duplicate"
    UNTRUSTED = "untrusted"
    NOT_REPRODUCED = "not_reproduced"
    DROPPED = "dropped"
    QUOTA = "quota"
    DEFECT = "defect"


#: What is no segment at all: its bytes tell nobody anything. The others are kept to be looked into.
MALFORMED = frozenset(
    {Reason.SIZE, Reason.NAME, Reason.COMPRESSION, Reason.FORMAT, Reason.SCHEMA, Reason.DTYPE, Reason.SHAPE}
)


class BadSegmentError(NamedError):
    """These bytes are no segment: `reason`, and one sentence. It says nothing about the sender's intentions."""

    def __init__(self, name: str, reason: Reason, /, **fields: Any) -> None:
        super().__init__(name, **fields)
        self.reason = reason


@dataclass(frozen=True)
class Segment:
    """The first T steps of one episode, and where they were made. Arrays as in the module's docstring."""

    run_id: str
    slot: int
    task: str
    horizon: int
    env: int
    episode: int
    actor: str
    obs: F32
    action: F32
    reward: F32
    success: U8
    terminated: U8
    truncated: U8
    version: I32

    @property
    def steps(self) -> int:
        """T."""
        return int(self.action.shape[0])

    def content(self) -> str:
        """sha256 (hex) of what was experienced, whatever the header says: the same twice is a duplicate."""
        digest = hashlib.sha256()
        for array in (self.obs, self.action, self.reward):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def name_of(data: bytes) -> str:
    """The file name of a segment's bytes."""
    return hashlib.sha256(data).hexdigest()


def encode(segment: Segment) -> bytes:
    """The file's bytes; equal segments give equal bytes. Errors: ValueError where an array has another shape."""
    header: dict[str, Any] = {"__metadata__": {name: str(getattr(segment, name)) for name in _WORDS[1:]}}
    header["__metadata__"]["format"] = FORMAT
    parts, at = [], 0
    shapes = _shapes(segment.steps, segment.obs.shape[-1], segment.action.shape[-1])
    for name, (code, kind) in _FIELDS.items():
        array = np.ascontiguousarray(getattr(segment, name), dtype=kind)
        if array.shape != shapes[name]:
            raise ValueError(f"{name} of a segment of {segment.steps} steps has shape {array.shape}")
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        parts.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # safetensors' own readers map the arrays in place
    return zstandard.ZstdCompressor(level=_LEVEL).compress(_HEAD.pack(len(text)) + text + b"".join(parts))


def decode(data: bytes, spaces: Spaces) -> Segment:
    """The segment in a file's bytes, with observations and actions as `spaces` say.

    Errors: BadSegmentError; never another, whatever the bytes are.
    """
    words, tensors = _read(_decompressed(data))
    if not isinstance(words, dict) or sorted(words) != sorted(_WORDS):
        raise BadSegmentError("segment.metadata", Reason.SCHEMA)
    if words["format"] != FORMAT:
        raise BadSegmentError("segment.format", Reason.FORMAT, found=shown(words["format"]), wanted=FORMAT)
    if tensors.keys() != _FIELDS.keys():
        missing, more = sorted(_FIELDS.keys() - tensors.keys()), sorted(tensors.keys() - _FIELDS.keys())
        raise BadSegmentError("segment.arrays", Reason.SCHEMA, missing=missing, more=shown(", ".join(more)))
    arrays = _arrays(tensors, spaces)
    counts: dict[str, Any] = {name: _count(name, words[name]) for name in _COUNTS}
    if not _ACTOR.fullmatch(words["actor"]):
        raise BadSegmentError("segment.actor", Reason.SCHEMA, actor=shown(words["actor"]))
    return Segment(run_id=words["run_id"], task=words["task"], actor=words["actor"], **counts, **arrays)


def shown(text: str) -> str:
    """A stranger's words, quoted, harmless, and not too many of them."""
    return f"'{printable(text, _SHOWN_CHARS)}'"


def _shapes(steps: int, numbers: int, actions: int) -> dict[str, tuple[int, ...]]:
    """Of each field, for `steps` of observations and actions of so many numbers."""
    wide = {"obs": (steps + 1, numbers), "action": (steps, actions), "version": (steps, 2)}
    return {name: wide.get(name, (steps,)) for name in _FIELDS}


def _decompressed(data: bytes) -> bytes:
    if not 0 < len(data) <= MAX_SEGMENT_BYTES:
        raise BadSegmentError("segment.size", Reason.SIZE, bytes=len(data), most=MAX_SEGMENT_BYTES)
    try:
        raw_bytes = zstandard.frame_content_size(data)
        if raw_bytes > MAX_RAW_BYTES:
            raise BadSegmentError("segment.unpacks-too-large", Reason.SIZE, bytes=raw_bytes, most=MAX_RAW_BYTES)
        if raw_bytes <= 0:  # -1: not stated; without it nobody knows how much memory it will take
            raise BadSegmentError("segment.size-not-stated", Reason.COMPRESSION)
        raw = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadSegmentError("segment.no-zstd", Reason.COMPRESSION, why=error) from None
    if len(raw) != raw_bytes:
        raise BadSegmentError("segment.unpacks-otherwise", Reason.COMPRESSION, raw_bytes=len(raw), stated=raw_bytes)
    return raw


def _read(raw: bytes) -> tuple[Any, dict[str, dict[str, Any]]]:
    """(metadata, name → dtype, shape and data of each array): a whole safetensors file without gaps or overlaps."""
    header = raw[_HEAD.size : _HEAD.size + int.from_bytes(raw[: _HEAD.size], "little")]
    if len(header) > MAX_HEADER_BYTES:
        raise BadSegmentError("segment.header", Reason.FORMAT, bytes=len(header), most=MAX_HEADER_BYTES)
    try:
        tensors = dict(safetensors.deserialize(raw))  # type: ignore[no-untyped-call]
        return json.loads(header).get("__metadata__"), tensors
    except (safetensors.SafetensorError, ValueError) as error:
        raise BadSegmentError(
            "segment.no-safetensors", Reason.FORMAT, why=printable(str(error), _SHOWN_ERROR_CHARS)
        ) from None


def _arrays(tensors: dict[str, dict[str, Any]], spaces: Spaces) -> dict[str, Any]:
    """The arrays by name; `action` says how many steps they all have."""
    steps = (tensors["action"]["shape"] or [0])[0]
    if steps < 1:
        raise BadSegmentError("segment.no-steps", Reason.SHAPE, steps=steps)
    arrays: dict[str, Any] = {}
    shapes = _shapes(steps, *spaces.obs[STATE].shape, *spaces.action.shape)
    for name, (code, kind) in _FIELDS.items():
        tensor = tensors[name]
        if tensor["dtype"] != code:
            raise BadSegmentError("segment.dtype", Reason.DTYPE, name=name, found=tensor["dtype"], wanted=code)
        shape, wanted = tuple(tensor["shape"]), shapes[name]
        if shape != wanted:
            raise BadSegmentError(
                "segment.shape",
                Reason.SHAPE,
                name=name,
                found=shown(str(list(shape))),
                wanted=list(wanted),
                steps=steps,
            )
        arrays[name] = np.frombuffer(tensor["data"], dtype=kind).reshape(wanted)
    return arrays


def _count(name: str, text: str) -> int:
    if not _COUNT.fullmatch(text):
        raise BadSegmentError("segment.no-whole-number", Reason.SCHEMA, name=name, text=shown(text))
    return int(text)
