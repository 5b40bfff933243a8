"""Weights as bytes: rounded as torch rounds, read back as rounded, and nothing else is read."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import zstandard
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from refused import refused

from syncd.errors import DamagedPolicyError
from syncd.shared import codec
from syncd.shared.codec import check, encode, rounded

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**127), max_value=2.0**127)
#: Any bit pattern: subnormals, both zeros, ties.
BITS = st.integers(0, 2**32 - 1)
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
TENSORS = st.dictionaries(
    st.text(max_size=12), arrays.arrays(np.float32, SHAPES, elements=FINITE), min_size=0, max_size=5
)

SMALL = {"b": np.float32([[1, 2], [3, 4]]), "a": np.float32([0.5])}
SMALL_SHAPES = {"a": (1,), "b": (2, 2)}
SMALL_DATA = encode(rounded(SMALL))


def decode(data, shapes):
    return codec.decode(check(data, shapes), shapes)


def shapes_of(tensors):
    return {name: array.shape for name, array in tensors.items()}


def blob(table, frame, magic=b"ANCHPOL1"):
    text = json.dumps(table, separators=(",", ":")).encode()
    return magic + struct.pack(">I", len(text)) + text + frame


def frame(data, **more):
    return zstandard.ZstdCompressor(**more).compress(data)


@given(TENSORS)
def test_what_is_read_is_what_was_written_rounded(tensors):
    expected = rounded(tensors)
    found = decode(encode(expected), shapes_of(tensors))
    assert found.keys() == tensors.keys()
    for name, array in found.items():
        assert array.shape == tensors[name].shape
        assert array.dtype == np.float32
        assert array.tobytes() == expected[name].tobytes()
        array[...] = 1  # torch.from_numpy wants them writable


@given(st.lists(BITS, min_size=1, max_size=200))
@example([0x3F808000, 0x3F818000, 0xBF808000, 0x3F807FFF, 0x3F808001])  # ties go to the even one
def test_the_rounding_is_torchs(patterns):
    torch = pytest.importorskip("torch")
    array = np.array(patterns, np.uint32).view(np.float32)
    assume(np.isfinite(array).all())
    expected = torch.from_numpy(array.copy()).to(torch.bfloat16).to(torch.float32).numpy()
    if np.isfinite(expected).all():
        assert rounded({"w": array})["w"].tobytes() == expected.tobytes()
    else:
        with pytest.raises(ValueError, match="not finite as bf16"):
            rounded({"w": array})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_and_refused(number):
    with pytest.raises(ValueError, match="tensor w is not finite"):
        rounded({"w": np.float32([0, number])})


@given(st.integers(0, len(SMALL_DATA) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_an_error_or_finite_numbers_of_the_right_shapes(place, mask):
    """The sum catches flips; the decoder must not crash, allocate or let NaN through even without it."""
    data = bytearray(SMALL_DATA)
    data[place] ^= mask
    try:
        found = decode(bytes(data), SMALL_SHAPES)
    except DamagedPolicyError:
        return
    assert shapes_of(found) == SMALL_SHAPES
    assert all(np.isfinite(array).all() for array in found.values())


@given(st.binary(min_size=10, max_size=10))
def test_any_weights_under_the_right_table_are_finite_or_refused(planes):
    data = blob([["a", [1]], ["b", [2, 2]]], frame(planes))
    try:
        found = decode(data, SMALL_SHAPES)
    except DamagedPolicyError as error:
        assert error.id == "policy.not-finite"  # noqa: PT017
    else:
        assert encode(found)


@pytest.mark.parametrize(
    "shapes",
    [
        {"a": (1,), "b": (4,)},
        {"a": (1,), "b": (2, 3)},
        {"a": (1,), "c": (2, 2)},
        {"a": (1,)},
        {"a": (1,), "b": (2, 2), "c": ()},
        {},
    ],
    ids=str,
)
def test_another_table_than_the_manifests_is_refused(shapes):
    with refused("blob.other-tensors"):
        decode(SMALL_DATA, shapes)


class TestBombs:
    def decoded(self, found_frame):
        return decode(blob([["w", [4]]], found_frame), {"w": (4,)})

    def refused(self, found_frame):
        with pytest.raises(DamagedPolicyError) as caught:
            self.decoded(found_frame)
        return caught.value

    def test_a_gigabyte_that_says_so(self):
        bomb = zstandard.ZstdCompressor().compressobj(size=1 << 30)
        data = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(1 << 10)) + bomb.flush()
        assert self.refused(data).fields["found"] == 1073741824

    def test_a_frame_that_does_not_say_how_much(self):
        assert self.refused(frame(bytes(8), write_content_size=False)).id == "blob.other-size"

    def test_a_frame_that_lies(self):
        honest = bytearray(frame(bytes(range(200)), level=1))
        assert zstandard.get_frame_parameters(bytes(honest)).content_size == 200
        honest[5] = 8  # the content size's only byte
        assert zstandard.get_frame_parameters(bytes(honest)).content_size == 8
        self.refused(bytes(honest))


@given(st.integers(0, len(SMALL_DATA) - 1))
def test_a_truncated_blob_is_refused(length):
    with pytest.raises(DamagedPolicyError):
        decode(SMALL_DATA[:length], SMALL_SHAPES)


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_refused(data):
    with pytest.raises(DamagedPolicyError):
        decode(data, SMALL_SHAPES)
    with pytest.raises(DamagedPolicyError):
        decode(SMALL_DATA + b"\0" + data, SMALL_SHAPES)
