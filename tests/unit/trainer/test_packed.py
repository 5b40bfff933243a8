"""Arrays as zstd frames, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from trainer.buffers.packed import packed, unpacked


@given(
    shape=st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple),
    kind=st.sampled_from(["uint8", "float32", "int64", "bool"]),
    seed=st.integers(0, 9),
)
def test_an_array_comes_back_as_it_was(shape, kind, seed):
    array = np.random.default_rng(seed).integers(0, 2, shape).astype(kind)
    again = unpacked(packed(array), shape, kind)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


def test_what_lies_scattered_in_memory_is_packed_in_order():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4).transpose(2, 0, 1)
    assert np.array_equal(unpacked(packed(array), (4, 2, 3), np.uint8), array)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (packed(np.zeros(7, np.uint8)), "unpacks to 7 bytes; an array (8,) of uint8 has 8"),
        (packed(np.zeros(10**8, np.uint8)), "unpacks to 100000000 bytes"),  # 3 kB that would fill the memory
        (zstandard.ZstdCompressor(write_content_size=False).compress(bytes(8)), "an unknown number of bytes"),
        (packed(np.zeros(8, np.uint8))[:-3], "not one whole zstd frame"),
        (packed(np.zeros(8, np.uint8)) + b"more", "not one whole zstd frame"),
        (b"no zstd at all", "not one whole zstd frame"),
        (b"", "not one whole zstd frame"),
    ],
)
def test_anything_else_is_refused_in_a_sentence(data, words):
    with pytest.raises(ValueError, match=r".*") as refused:
        unpacked(data, (8,), np.uint8)
    assert words in str(refused.value)
