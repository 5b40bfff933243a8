"""What agents at play are packed into for the line, and what a stranger's packing does."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorleg.live.batches import FACTS, JPEG, POSE
from anchorleg.live.ring import MAX_PAYLOAD_BYTES, Cell
from syncd.wire.livemessages import grown, shrunk


@given(st.sampled_from((POSE, JPEG, FACTS)), st.binary(max_size=4096))
def test_what_is_packed_comes_back(kind: int, payload: bytes) -> None:
    assert grown(shrunk(Cell(1, kind, payload))) == payload


def test_a_cell_of_any_size_fits_and_poses_that_repeat_are_small() -> None:
    largest = bytes(range(256)) * (MAX_PAYLOAD_BYTES // 256)
    assert grown(shrunk(Cell(1, JPEG, largest))) == largest
    assert len(shrunk(Cell(1, POSE, largest))) < 1000


@given(st.binary(max_size=200))
def test_no_bytes_make_it_fail(payload: bytes) -> None:
    grown(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        zlib.compress(bytes(MAX_PAYLOAD_BYTES + 1)),
        zlib.compress(bytes(100 * MAX_PAYLOAD_BYTES)),
        zlib.compress(b"cut off")[:-1],
        zlib.compress(b"with more") + b"!",
    ],
    ids=["nothing", "a byte too many", "a bomb", "torn", "more behind it"],
)
def test_what_is_no_cell_is_no_batch(payload: bytes) -> None:
    assert grown(payload) == b""
