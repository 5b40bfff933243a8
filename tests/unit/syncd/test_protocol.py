"""Frames: whatever the pieces they arrive in, the same frames; whatever else arrives, one error and no memory."""

from __future__ import annotations

import contextlib
import itertools
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncd.wire import protocol
from syncd.wire.protocol import (
    MAX_HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    Decoder,
    Frame,
    ProtocolError,
    encode,
)

#: The rest of it behind its length.
MOST_OF_A_FRAME = 3 + MAX_HEADER_BYTES + MAX_PAYLOAD_BYTES
SHA = st.text("0123456789abcdef", min_size=64, max_size=64)
COUNT = st.integers(0, 2**53)
NAME = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", fullmatch=True)
PATH = st.from_regex(r"v1(/[A-Za-z0-9][A-Za-z0-9._-]{0,20}){2,7}", fullmatch=True)
SECONDS = st.none() | st.floats(0, 1e12)
MESSAGES = st.one_of(
    st.builds(protocol.Hello, protocol=COUNT, version=st.text(max_size=100), client=NAME),
    st.builds(protocol.Goaway, reason=st.text(max_size=100), sentence=st.text(max_size=200), retry_after_s=SECONDS),
    st.builds(protocol.Get, key=SHA, path=PATH, offset=COUNT),
    st.builds(protocol.Data, key=SHA, offset=COUNT),
    st.builds(protocol.Put, sha256=SHA, run_id=NAME, slot=st.integers(0, 999_999), bytes=COUNT),
    st.builds(protocol.Offered, files=st.tuples(st.builds(protocol.File, path=PATH, bytes=COUNT, sha256=SHA))),
    st.builds(protocol.Listing),
)
FRAMES = st.builds(Frame, MESSAGES, st.binary(max_size=600))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(at)]


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_split_gives_the_same_frames(frames: list[Frame], cuts: list[int]) -> None:
    data = b"".join(encode(frame.message, frame.payload) for frame in frames)
    decoder = Decoder()
    assert [frame for piece in pieces(data, cuts) for frame in decoder.feed(piece)] == frames


@given(st.binary(max_size=3000), st.lists(st.integers(0, 10_000), max_size=5))
def test_garbage_is_an_error_or_an_unfinished_frame(data: bytes, cuts: list[int]) -> None:
    decoder = Decoder()
    try:
        for piece in pieces(data, cuts):
            list(decoder.feed(piece))
    except ProtocolError:
        pass
    assert len(decoder._buffer) <= max(len(data), MOST_OF_A_FRAME)


@given(FRAMES, st.integers(0, 10_000), st.integers(0, 255))
def test_a_flipped_byte_never_escapes_as_another_error(frame: Frame, where: int, value: int) -> None:
    data = bytearray(encode(frame.message, frame.payload))
    data[where % len(data)] = value
    with contextlib.suppress(ProtocolError):
        list(Decoder().feed(bytes(data)))


@pytest.mark.parametrize(
    "prefix",
    [
        struct.pack(">IBH", 0xFFFFFFFF, protocol.Ping.KIND, 2),
        struct.pack(">IBH", 3 + 2 + MAX_PAYLOAD_BYTES + 1, protocol.Ping.KIND, 2),
        struct.pack(">IBH", 2, protocol.Ping.KIND, 0),
        struct.pack(">IBH", 3, protocol.Ping.KIND, 1),
        struct.pack(">IBH", 3, 99, 0),
    ],
    ids=["4 GiB", "payload", "shorter than its prefix", "header longer than the frame", "unknown kind"],
)
def test_a_bad_prefix_is_refused_before_anything_is_kept(prefix: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(Decoder().feed(prefix))


@pytest.mark.parametrize(
    "header",
    [
        b"[" * MAX_HEADER_BYTES,
        b'{"n":' * 9000 + b"1" + b"}" * 9000,
        b'{"n":' + b"9" * 50_000 + b"}",
        b'{"n":NaN}',
        b'{"n":1e999}',
        b'{"n":-1}',
        b'{"n":"1"}',
        b'{"n":1,"more":1}',
        b"{}",
        b"\xff\xfe",
        b"",
    ],
)
def test_a_bad_header_is_refused(header: bytes) -> None:
    frame = struct.pack(">IBH", 3 + len(header), protocol.Ping.KIND, len(header)) + header
    with pytest.raises(ProtocolError):
        list(Decoder().feed(frame))


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "v1/../../etc", "v1/runs/..", "v1/runs//x", "v1/runs/.hidden", "v1/runs/a\n", "v2/runs/a", "v1/a/"],
)
def test_a_path_that_leads_elsewhere_is_no_message(path: str) -> None:
    header = json.dumps({"key": "1", "path": path, "offset": 0}).encode()
    frame = struct.pack(">IBH", 3 + len(header), protocol.Get.KIND, len(header)) + header
    with pytest.raises(ProtocolError):
        list(Decoder().feed(frame))


def test_full_frames_fit_and_larger_ones_are_refused_by_the_sender() -> None:
    entry = protocol.File(path="v1/" + "/".join(["a" * 81] * 5), bytes=2**53, sha256="f" * 64)
    entries = tuple(
        protocol.SegmentVerdict(sha256="f" * 64, accepted=False, reason="r" * 100) for _ in range(protocol.MAX_ENTRIES)
    )
    encode(protocol.Verdicts(verdicts=entries))
    encode(protocol.Offered(files=(entry,) * protocol.MAX_ENTRIES))
    with pytest.raises(ValueError, match="too large"):
        encode(protocol.Ping(n=1), bytes(MAX_PAYLOAD_BYTES + 1))
