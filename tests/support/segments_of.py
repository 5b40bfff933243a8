"""Segments for tests: honest ones from real environments, and malformed or hostile ones with the reason they must get.

`honest(300)` is played once and remembered. `hostile(kind, segment, rng)` spoils an honest segment; `KINDS` says what
each kind is refused for. A segment of a policy that is too old needs `old`, a version that the learner knows.
"""

from __future__ import annotations

import json
import secrets
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import safetensors.numpy
import zstandard
from suites import metaworld, spaces_like

from trainer.envs.step import VectorSpec
from trainer.envs.suites.metaworld.shapes import BOUNDS
from trainer.envs.vector import VectorEnv
from trainer.sharing.judge import Expectation
from trainer.sharing.recorder import Recorder, SegmentOrigin
from trainer.sharing.segment import MAX_SEGMENT_BYTES, Reason, Segment, encode, name_of

RUN, SLOT = "toy-0123abcd", 0
TASKS = ("reach-v3", "push-v3")
HORIZON = 10
#: What the learner of these tests knows: an old policy, some newer ones (one was thinned out), and where it is.
OLD, NOW = (1, 1), (2, 9)
KNOWN = [(1, 1, 0), (2, 1, 900_000), (2, 5, 950_000), (2, 9, 990_000)]
STEP, MAX_LAG = 1_000_000, 200_000


def expectation(*, tasks=TASKS, horizon=HORIZON, **changes) -> Expectation:
    """What the learner of these segments expects."""
    fields = {
        "run_id": RUN,
        "slot": SLOT,
        "spaces": spaces_like(tasks, horizon),
        "bounds": BOUNDS,
        "versions": KNOWN,
        "step": STEP,
        "max_lag": MAX_LAG,
    }
    return Expectation(**{**fields, **changes})


def played(
    *, run_id=RUN, slot=SLOT, tasks=TASKS, horizon=HORIZON, version=NOW, num_envs=6, seed=0
) -> Iterator[Segment]:
    """Honest segments without end: random actions, some held at the limits, in real environments."""
    rng = np.random.default_rng(seed)
    recorder = Recorder(SegmentOrigin(run_id, slot, spaces_like(tasks, horizon), secrets.token_hex(8)), num_envs)
    spec = VectorSpec(metaworld(tasks, horizon, 42), num_envs, seed)
    with VectorEnv(spec) as envs:
        obs = envs.reset().obs
        while True:
            actions = rng.uniform(-1.6, 1.6, (num_envs, 4)).clip(-1, 1).astype(np.float32)
            step = envs.step(actions)
            yield from recorder.add(obs, actions, step, version)
            obs = step.obs


@cache
def honest(count: int, **fields) -> tuple[Segment, ...]:
    """The first `count` of `played(**fields)`."""
    source = played(**fields)
    return tuple(next(source) for _ in range(count))


def beginning(segment: Segment, steps: int) -> Segment:
    """Its first `steps`, fewer than it has: what is sent of an episode that was interrupted."""
    names = ("action", "reward", "success", "terminated", "truncated", "version")
    parts = {name: getattr(segment, name)[:steps] for name in names}
    return replace(segment, obs=segment.obs[: steps + 1], **parts)


def raw_of(segment: Segment) -> tuple[dict, bytes]:
    """(header, the arrays' bytes) of its file."""
    raw = zstandard.ZstdDecompressor().decompress(encode(segment))
    (size,) = struct.unpack_from("<Q", raw)
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def packed(header, body: bytes, **compressor) -> bytes:
    """A file of any header (a value, or bytes that are no JSON) and any arrays."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return zstandard.ZstdCompressor(**compressor).compress(struct.pack("<Q", len(text)) + text + body)


def _changed(segment: Segment, name: str, index, value) -> bytes:
    array = getattr(segment, name).copy()
    array[index] = value
    return encode(replace(segment, **{name: array}))


def _header(segment: Segment, change: Callable[[dict], object]) -> bytes:
    header, body = raw_of(segment)
    change(header)
    return packed(header, body)


def _words(segment: Segment, **words) -> bytes:
    return _header(segment, lambda header: header["__metadata__"].update(words))


def _without(segment: Segment, name: str) -> bytes:
    header, _ = raw_of(segment)
    gone = header.pop(name)["data_offsets"]
    body = raw_of(segment)[1]
    for entry in (entry for key, entry in header.items() if key != "__metadata__"):
        if entry["data_offsets"][0] >= gone[1]:
            entry["data_offsets"] = [at - (gone[1] - gone[0]) for at in entry["data_offsets"]]
    return packed(header, body[: gone[0]] + body[gone[1] :])


def _as_double(segment: Segment) -> bytes:
    header, _ = raw_of(segment)
    arrays = {name: getattr(segment, name) for name in header if name != "__metadata__"}
    arrays["reward"] = segment.reward.astype(np.float64)
    return zstandard.compress(safetensors.numpy.save(arrays, header["__metadata__"]))


def _streamed_bomb(_segment: Segment) -> bytes:
    squeezer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return b"".join([squeezer.compress(bytes(8 * 2**20)), squeezer.flush()])


def _shuffled(segment: Segment, rng: np.random.Generator) -> bytes:
    order = rng.permutation(segment.steps + 1)
    while (order == np.arange(segment.steps + 1)).all():
        order = rng.permutation(segment.steps + 1)
    return encode(replace(segment, obs=segment.obs[order]))


def _goal_moved(segment: Segment) -> bytes:
    obs = segment.obs.copy()
    obs[-1, 36:] += 0.01
    return encode(replace(segment, obs=obs))


def _stretched(segment: Segment, steps: int) -> bytes:
    """The same with `steps` rows, whatever they hold."""

    def longer(array):
        return np.resize(array, (steps + (array.shape[0] - segment.steps), *array.shape[1:]))

    names = ("obs", "action", "reward", "success", "terminated", "truncated", "version")
    return encode(replace(segment, **{name: longer(getattr(segment, name)) for name in names}))


def _version(segment: Segment, version) -> bytes:
    return encode(replace(segment, version=np.tile(np.array(version, np.int32), (segment.steps, 1))))


#: kind → (the reason it must get, how it is made of an honest segment). Kinds that need more are in `hostile`.
_MADE: dict[str, tuple[Reason, Callable[[Segment, np.random.Generator], bytes]]] = {
    "torn": (Reason.COMPRESSION, lambda s, rng: encode(s)[: int(rng.integers(1, len(encode(s))))]),
    "noise": (Reason.COMPRESSION, lambda s, rng: b"\x00" + rng.bytes(int(rng.integers(10, 5000)))),
    "trailing bytes": (Reason.COMPRESSION, lambda s, rng: encode(s) + rng.bytes(20)),
    "bomb": (Reason.SIZE, lambda s, rng: packed({}, bytes(64 * 2**20))),
    "bomb of unknown size": (Reason.COMPRESSION, lambda s, rng: _streamed_bomb(s)),
    "huge file": (Reason.SIZE, lambda s, rng: rng.bytes(MAX_SEGMENT_BYTES + 1)),
    "empty file": (Reason.SIZE, lambda s, rng: b""),
    "a pickle": (
        Reason.FORMAT,
        lambda s, rng: zstandard.compress(b"\x80\x04cposix\nsystem\n(Vtrue\ntR." + bytes(64)),
    ),
    "no JSON": (Reason.FORMAT, lambda s, rng: packed(b"{" * 100, raw_of(s)[1])),
    "brackets without end": (Reason.FORMAT, lambda s, rng: packed(b"[" * 8000, b"")),
    "a list for a header": (Reason.FORMAT, lambda s, rng: packed([1, 2], raw_of(s)[1])),
    "a name twice": (Reason.FORMAT, lambda s, rng: packed(b'{"obs":1,"obs":2}', raw_of(s)[1])),
    "header longer than the file": (
        Reason.FORMAT,
        lambda s, rng: zstandard.compress(struct.pack("<Q", 2**63) + b"{}"),
    ),
    "other format": (Reason.FORMAT, lambda s, rng: _words(s, format="1")),
    "overlapping arrays": (
        Reason.FORMAT,
        lambda s, rng: _header(s, lambda h: h["success"].update(data_offsets=h["truncated"]["data_offsets"])),
    ),
    "offsets past the end": (
        Reason.FORMAT,
        lambda s, rng: _header(s, lambda h: h["version"].update(data_offsets=[10**12, 10**12 + 8 * s.steps])),
    ),
    "negative offsets": (
        Reason.FORMAT,
        lambda s, rng: _header(s, lambda h: h["obs"].update(data_offsets=[-4, h["obs"]["data_offsets"][1] - 4])),
    ),
    "bytes behind the arrays": (Reason.FORMAT, lambda s, rng: packed(raw_of(s)[0], raw_of(s)[1] + b"more")),
    "missing array": (Reason.SCHEMA, lambda s, rng: _without(s, str(rng.choice(["obs", "reward", "version"])))),
    "extra array": (
        Reason.SCHEMA,
        lambda s, rng: _header(s, lambda h: h.update(weights={"dtype": "U8", "shape": [0], "data_offsets": [0, 0]})),
    ),
    "missing word": (Reason.SCHEMA, lambda s, rng: _header(s, lambda h: h["__metadata__"].pop("task"))),
    "word that is no string": (Reason.FORMAT, lambda s, rng: _words(s, episode=7)),
    "negative count": (Reason.SCHEMA, lambda s, rng: _words(s, episode="-1")),
    "escape codes for an actor": (Reason.SCHEMA, lambda s, rng: _words(s, actor="\x1b[2J\x1b]0;pwned\x07")),
    "double precision": (Reason.DTYPE, lambda s, rng: _as_double(s)),
    "wide observations": (
        Reason.SHAPE,
        lambda s, rng: _header(s, lambda h: h["obs"].update(shape=[39, s.steps + 1])),
    ),
    "no steps": (Reason.SHAPE, lambda s, rng: _stretched(s, 0)),
    "501 steps": (Reason.TRUNCATED, lambda s, rng: _stretched(s, 501)),
    "NaN observation": (
        Reason.NOT_FINITE,
        lambda s, rng: _changed(s, "obs", (0, int(rng.integers(39))), np.nan),
    ),
    "infinite reward": (Reason.NOT_FINITE, lambda s, rng: _changed(s, "reward", -1, np.inf)),
    "action beyond 1": (
        Reason.ACTION_RANGE,
        lambda s, rng: _changed(s, "action", (0, 2), rng.choice([-1.01, 3e38])),
    ),
    "far observation": (
        Reason.OBSERVATION_RANGE,
        lambda s, rng: _changed(s, "obs", (-1, 5), rng.choice([-11, 1e30])),
    ),
    "rich reward": (Reason.REWARD_RANGE, lambda s, rng: _changed(s, "reward", 0, rng.choice([10.5, 1e9, -1.0]))),
    "success of 2": (Reason.SUCCESS, lambda s, rng: _changed(s, "success", 0, 2)),
    "terminated": (Reason.TERMINATED, lambda s, rng: _changed(s, "terminated", -1, 1)),
    "truncated in the middle": (Reason.TRUNCATED, lambda s, rng: _changed(s, "truncated", 0, 1)),
    "no end at the horizon": (Reason.TRUNCATED, lambda s, rng: _changed(s, "truncated", -1, 0)),
    "past the horizon": (Reason.TRUNCATED, lambda s, rng: _stretched(s, s.horizon + 1)),
    "rows shuffled": (Reason.DISCONTINUOUS, _shuffled),
    "goal moved": (Reason.DISCONTINUOUS, lambda s, rng: _goal_moved(s)),
    "other run": (Reason.OTHER_RUN, lambda s, rng: _words(s, run_id="other-89abcdef")),
    "path for a run": (Reason.OTHER_RUN, lambda s, rng: _words(s, run_id="../../../etc/passwd")),
    "other slot": (Reason.OTHER_RUN, lambda s, rng: _words(s, slot=str(s.slot + 1))),
    "other horizon": (Reason.OTHER_RUN, lambda s, rng: _words(s, horizon=str(s.horizon + 1))),
    "other task": (
        Reason.OTHER_TASK,
        lambda s, rng: _words(s, task=str(rng.choice(["soccer-v3", "\x1b[31m", ""]))),
    ),
    "version of the future": (Reason.VERSION_UNKNOWN, lambda s, rng: _version(s, (99, 1))),
    "negative version": (Reason.VERSION_UNKNOWN, lambda s, rng: _version(s, (-1, -1))),
    "one unknown version": (Reason.VERSION_UNKNOWN, lambda s, rng: _changed(s, "version", -1, (98, 7))),
}

#: kind → the reason that a learner must refuse it for.
KINDS: dict[str, Reason] = {
    **{kind: reason for kind, (reason, _) in _MADE.items()},
    "changed on the way": Reason.NAME,
    "old policy": Reason.VERSION_LAG,
}


def hostile(kind: str, segment: Segment, rng: np.random.Generator, *, old=OLD) -> tuple[bytes, str]:
    """(bytes, file name) of a segment of `kind`, made of an honest one that ends its episode. Different for each `rng`.

    `old`: a policy (attempt, seq) that the learner knows and finds too old.
    """
    if kind == "changed on the way":
        data = bytearray(encode(segment))
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        return bytes(data), name_of(encode(segment))
    data = _version(segment, old) if kind == "old policy" else _MADE[kind][1](segment, rng)
    return data, name_of(data)
