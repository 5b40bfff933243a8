"""Manifests: sealed, checked, and nothing but a manifest is taken for one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import publish_one
from refused import refused

from syncd.errors import DamagedPolicyError
from syncd.shared.layout import Shared
from syncd.shared.manifest import MAX_GROWTH, MAX_RAW_BYTES, Manifest, parse_manifest


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    return publish_one(Shared(tmp_path_factory.mktemp("shared")), 3, 17)


def changed(manifest, **more):
    """As bytes, with other values and a right digest where it can have one."""
    value = manifest.model_dump(mode="json") | more
    try:
        return Manifest.model_validate(value).sealed().to_bytes()
    except ValueError:
        return json.dumps(value).encode()


def test_a_flipped_bit_anywhere_shows(manifest):
    data = manifest.to_bytes()
    for place in range(len(data) - 1):  # the last byte is a newline, which says nothing
        flipped = bytearray(data)
        flipped[place] ^= 1
        try:
            found = parse_manifest(bytes(flipped))
        except DamagedPolicyError:
            continue
        assert found == manifest, place  # 0.125 and .1250 are one number


@given(st.data())
def test_any_text_is_a_manifest_or_a_damaged_one(data):
    text = data.draw(
        st.one_of(
            st.binary(max_size=300),
            st.recursive(
                st.none() | st.booleans() | st.floats() | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                max_leaves=10,
            ).map(lambda value: json.dumps(value).encode()),
        )
    )
    with pytest.raises(DamagedPolicyError):
        parse_manifest(text)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"a": ["\x1b[2J"]}, ""),
        ({"\x07": 1}, ""),
        ({"a": "x" * 201}, ""),
        ({"a": [[[[[[[[[1]]]]]]]]]}, ""),
        ({"a": float("nan")}, ".a.float"),
    ],
    ids=["a screen's word", "a key", "too long", "too deep", "no number"],
)
@pytest.mark.parametrize("where", ["spaces", "network"])
def test_fields_of_the_publishers_own_are_checked_too(manifest, where, fields, name):
    policy = manifest.policy.model_dump(mode="json") | {where: fields}
    with refused("policy.bad-field", field=f"policy.{where}" + name):
        parse_manifest(json.dumps(manifest.model_dump(mode="json") | {"policy": policy}).encode())


@pytest.mark.parametrize("other", [1, 3])
def test_another_format_says_which(manifest, other):
    with refused("policy.other-format", found=other, known=2):
        parse_manifest(changed(manifest, format=other, something_new=[1]))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"run_id": "../../etc"}, "run_id"),
        ({"run_id": ".hidden"}, "run_id"),
        ({"run_id": "a\nb"}, "run_id"),
        ({"slot": -1}, "slot"),
        ({"attempt": 10**6}, "attempt"),
        ({"created_at": float("nan")}, "created_at"),
        ({"step": 1e400}, "step"),
        ({"surprise": 1}, "surprise"),
        ({"blob": {"tensors": {"w": [2**24, 2**24]}, "raw_bytes": 2**49}}, "blob.raw_bytes"),
        ({"blob": {"raw_bytes": 2}}, "blob"),
        ({"golden": {"obs": [[0.0] * 39], "action": [[0.0] * 4], "tolerance": 0.001}}, "golden.obs"),
        ({"golden": {"seed": 2**32, "action": [[0.0] * 4], "tolerance": 0.001}}, "golden.seed"),
        ({"golden": {"seed": 1, "action": [[0.0] * 4] * 65, "tolerance": 0.001}}, "golden.action"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_fields_are_checked_and_named(manifest, change, field):
    if "blob" in change:
        change = {"blob": manifest.blob.model_dump(mode="json") | change["blob"]}
    with refused("policy.bad-field", field=field):
        parse_manifest(changed(manifest, **change))


@pytest.mark.parametrize(
    ("numbers", "compressed"),
    [
        (MAX_RAW_BYTES // 2 + 1, MAX_RAW_BYTES),  # too large, however it is packed
        (MAX_RAW_BYTES // 2, 8_000),  # a bomb
        (2**20, 2**20 // MAX_GROWTH // 2),
    ],
)
def test_what_would_take_much_memory_is_refused_before_it_is_fetched(manifest, numbers, compressed):
    blob = manifest.blob.model_dump() | {"bytes": compressed, "raw_bytes": 2 * numbers}
    blob["tensors"] = {f"part {k}": (min(2**20, numbers - k),) for k in range(0, numbers, 2**20)}
    with refused("policy.bad-field"):
        parse_manifest(changed(manifest, blob=blob))
    if compressed < MAX_RAW_BYTES:
        whole = changed(manifest, blob=blob | {"bytes": 2 * numbers // MAX_GROWTH})
        assert parse_manifest(whole).blob.raw_bytes == 2 * numbers
