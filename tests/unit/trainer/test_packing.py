"""Row files with pictures: what goes in comes out, in few bytes, and no file takes more memory than its rows."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from trainer.buffers.frames import FrameReplay
from trainer.buffers.packing import packed, unpacked
from trainer.checkpoints.rows import RowsFile, read_into, write_rows_file
from trainer.envs.spaces import ArraySpec, Box, Spaces

IMAGE, BYTES, LENGTHS = "obs.image", "obs.image.zstd", "obs.image.zstd.lengths"
SIDE, ROWS = 64, 20
SPACES = Spaces({"image": ArraySpec((3, SIDE, SIDE), "uint8", 0, 255)}, Box(2), ("a",), 10)
FIELDS = FrameReplay(1, 1, SPACES).fields
MB = 2**20


def frames(rows, seed=0):
    """A film: a square that moves over noise."""
    film = np.repeat(np.random.default_rng(seed).integers(0, 256, (1, 3, SIDE, SIDE), np.uint8), rows, 0)
    for row in range(rows):
        film[row, :, row % 60 : row % 60 + 4, 10:14] = 255
    return film


def rows_of(count):
    arrays = {name: np.zeros((count, *shape), kind) for name, (shape, kind) in FIELDS.items()}
    return {**arrays, IMAGE: frames(count)}


@given(rows=st.integers(1, 9), piece=st.integers(1, 40_000))
def test_what_was_packed_comes_out_whatever_the_pieces(rows, piece):
    arrays = rows_of(rows)
    small = packed(arrays, piece)
    found = unpacked(small, FIELDS, rows)
    assert sorted(found) == sorted(arrays)
    assert all(
        np.array_equal(found[name], array) and found[name].dtype == array.dtype for name, array in arrays.items()
    )
    assert IMAGE not in small
    assert len(small[LENGTHS]) == -(-rows // max(1, piece // (3 * SIDE * SIDE)))


class Written:
    """A ring's row file, which is spoiled by whoever can also list it with its sum."""

    def __init__(self, folder, count=ROWS):
        self.folder = folder
        self.ring = FrameReplay(ROWS, 1, SPACES)
        self.ring.counts[0] = count
        self.ring.arrays()[IMAGE][:] = frames(ROWS)
        self.segment = write_rows_file(folder, folder / "attempts/0", 1, self.ring.block_since((0,)))
        self.path = folder / self.segment.path

    def with_arrays(self, **changes):
        arrays = {**safetensors.numpy.load(self.path.read_bytes()), **changes}
        data = safetensors.numpy.save({name: array for name, array in arrays.items() if array is not None})
        return self.with_bytes(data)

    def with_bytes(self, data, **listed):
        self.path.write_bytes(data)
        known = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **listed}
        return self.segment.model_copy(update=known)

    def read(self, segment: RowsFile):
        ring = FrameReplay(ROWS, 1, SPACES)
        ring.counts[:] = self.ring.counts
        read_into(ring, self.folder, (segment,))
        return ring


def test_a_row_file_comes_back_and_is_small(tmp_path):
    written = Written(tmp_path)
    assert np.array_equal(written.read(written.segment).arrays()[IMAGE], written.ring.arrays()[IMAGE])
    assert written.segment.bytes < ROWS * 3 * SIDE * SIDE / 4


def bytes_and_lengths(*pieces):
    return {
        BYTES: np.frombuffer(b"".join(pieces), np.uint8),
        LENGTHS: np.array([len(piece) for piece in pieces], np.int64),
    }


def packed_zeros(count):
    return zstandard.ZstdCompressor().compress(bytes(count))


RAW = ROWS * 3 * SIDE * SIDE
UNSTATED = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(RAW))
LYING = packed_zeros(2 * RAW).replace((2 * RAW).to_bytes(4, "little"), RAW.to_bytes(4, "little"), 1)
WHOLE = packed_zeros(RAW)
#: What is changed of a file, and what it is refused by.
SPOILED = {
    "a bomb": (bytes_and_lengths(packed_zeros(500 * MB)), "rows.piece-too-large"),
    "a bomb behind good pieces": (
        bytes_and_lengths(packed_zeros(RAW // 2), packed_zeros(500 * MB)), "rows.piece-too-large",
    ),
    "of no stated size": (bytes_and_lengths(UNSTATED), "rows.piece-too-large"),
    "too little": (bytes_and_lengths(packed_zeros(RAW - 1)), "rows.pieces-short"),
    "too much": (bytes_and_lengths(packed_zeros(RAW), packed_zeros(1)), "rows.piece-too-large"),
    "two frames in a piece": (
        {BYTES: np.frombuffer(packed_zeros(RAW) * 2, np.uint8), LENGTHS: np.array([2 * len(packed_zeros(RAW))])},
        "rows.no-zstd",
    ),
    "no zstd": (bytes_and_lengths(b"no zstd at all"), "rows.no-zstd"),
    "nothing": (bytes_and_lengths(b""), "rows.no-zstd"),
    "more than it states": (bytes_and_lengths(LYING), "rows.no-zstd"),
    "cut": (bytes_and_lengths(packed_zeros(RAW)[:-3]), "rows.no-zstd"),
    "lengths that do not add up": ({LENGTHS: np.array([3, 4], np.int64)}, "rows.piece-lengths"),
    "lengths below nothing": (
        {**bytes_and_lengths(WHOLE), LENGTHS: np.array([len(WHOLE) + 3, -3], np.int64)}, "rows.piece-lengths",
    ),
    "lengths of another type": ({LENGTHS: np.array([3.0])}, "rows.piece-lengths"),
    "no pictures": ({BYTES: None}, "rows.field"),
    "no pointers": ({"back": None}, "rows.pointers"),
    "pictures of another size": (
        {BYTES: None, LENGTHS: None, IMAGE: np.zeros((ROWS, 3, 8, 8), np.uint8)}, "rows.field",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_each_spoiled_file_is_refused_and_takes_no_memory(tmp_path, kind):
    changes, why = SPOILED[kind]
    written = Written(tmp_path)
    segment = written.with_arrays(**changes)
    tracemalloc.start()
    with refused("damaged.file-unreadable", name=segment.path) as caught:
        written.read(segment)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.fields["why"].id == why
    assert peak < 4 * RAW


def test_more_rows_than_a_ring_has_and_what_is_no_safetensors_are_refused(tmp_path):
    written = Written(tmp_path)
    with refused("damaged.rows-too-many"):
        written.read(written.segment.model_copy(update={"counts": (10**12,)}))
    with refused("damaged.file-unreadable", name=written.segment.path):
        written.read(written.with_bytes(b"no safetensors" * 9))
