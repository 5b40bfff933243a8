from __future__ import annotations

import tracemalloc
from dataclasses import fields, replace

import numpy as np
import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st
from suites import FIELDS

pytest.importorskip("metaworld")

from segments_of import HORIZON, KINDS, KNOWN, NOW, TASKS, beginning, expectation, honest, hostile

from trainer.envs.suites.metaworld.shapes import BOUNDS
from trainer.sharing.judge import SMALLEST, Accepted, RefusedSegment, judge, step_of
from trainer.sharing.segment import Reason, decode, encode, name_of

pytestmark = pytest.mark.trainer


def verdict(data, **expect):
    return judge(data, name_of(data), expectation(**expect))


@pytest.fixture(scope="module")
def segment():
    return honest(6)[0]


def test_honest_segments_are_accepted_and_become_the_rows_that_the_ring_wants():
    for one in honest(60):
        found = verdict(encode(one))
        assert isinstance(found, Accepted), found
        assert TASKS[found.task] == one.task
        rows = found.rows()
        assert {name: (rows[name].shape, rows[name].dtype) for name in rows} == {
            name: ((one.steps, *shape), np.dtype(kind)) for name, (shape, kind) in FIELDS.items()
        }
        assert np.array_equal(rows["next_obs.state"][:-1], rows["obs.state"][1:])
        assert found.lag == 10_000


def test_an_episode_that_its_suite_cuts_before_the_horizon_is_learned_from_as_its_beginning_is(segment):
    short = beginning(segment, 4)
    cut = replace(short, truncated=np.array([0, 0, 0, 1], np.uint8))
    found, plain = verdict(encode(cut)), verdict(encode(short))
    assert isinstance(found, Accepted), found
    assert found.rows().keys() == plain.rows().keys()
    assert all(np.array_equal(rows, plain.rows()[name]) for name, rows in found.rows().items())


@pytest.mark.parametrize(
    ("terminated", "truncated", "is_good"), [(1, 0, True), (0, 1, True), (1, 1, False), (0, 0, False)]
)
def test_at_the_horizon_an_episode_ends_in_one_way(segment, terminated, truncated, is_good):
    flags = {"terminated": segment.terminated.copy(), "truncated": segment.truncated.copy()}
    flags["terminated"][-1], flags["truncated"][-1] = terminated, truncated
    found = verdict(encode(replace(segment, **flags)), bounds=replace(BOUNDS, terminates=True))
    assert isinstance(found, Accepted) == is_good
    assert is_good or found.reason == Reason.TRUNCATED


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_an_episode_does_not_end_in_its_middle(segment, flag):
    ends = getattr(segment, flag).copy()
    ends[2] = 1
    found = verdict(encode(replace(segment, **{flag: ends})), bounds=replace(BOUNDS, terminates=True))
    assert isinstance(found, RefusedSegment)


def test_numbers_that_slow_the_learner_down_enter_as_zeros(segment):
    slow = np.full_like(segment.reward, 1e-40)
    assert (slow > 0).all()
    obs = np.where(segment.obs == 0, np.float32(1e-40), segment.obs)
    rows = verdict(encode(replace(segment, reward=slow, obs=obs))).rows()
    assert (rows["reward"] == 0).all()
    assert not ((rows["obs.state"] != 0) & (np.abs(rows["obs.state"]) < SMALLEST)).any()
    assert np.array_equal(rows["action"], segment.action)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_spoiled_segment_is_refused_for_its_own_reason(kind):
    rng = np.random.default_rng(len(kind))
    for one in honest(6):
        data, name = hostile(kind, one, rng)
        found = judge(data, name, expectation())
        assert isinstance(found, RefusedSegment), kind
        assert found.reason == KINDS[kind], found.sentence
        assert found.sentence.isprintable()
        assert len(found.sentence) < 300


def test_the_same_rows_under_another_header_are_a_duplicate(segment):
    first = verdict(encode(segment))
    again = encode(replace(segment, episode=segment.episode + 7, actor="00ff" * 4))
    assert verdict(again, seen={first.content}).reason == Reason.DUPLICATE
    for versions in ([], [(2, 1, 0), (2, 9, 10)]):  # cleared away, or too old by now
        assert verdict(again, seen={first.content}, versions=versions).reason == Reason.DUPLICATE
        assert verdict(again, versions=versions).reason in {Reason.VERSION_UNKNOWN, Reason.VERSION_LAG}


@given(data=st.data())
def test_a_segment_comes_out_of_its_file_as_it_went_in(data):
    steps = data.draw(st.integers(1, 20))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    one = replace(
        honest(6)[0],
        run_id=data.draw(st.text(max_size=30)),
        obs=rng.normal(size=(steps + 1, 39)).astype(np.float32),
        action=rng.normal(size=(steps, 4)).astype(np.float32),
        version=rng.integers(-9, 9, (steps, 2)).astype(np.int32),
        reward=rng.normal(size=steps).astype(np.float32),
        **{name: rng.integers(0, 255, steps).astype(np.uint8) for name in ("success", "terminated", "truncated")},
    )
    assume(len(encode(one)) <= 128 * 1024)
    back = decode(encode(one), expectation().spaces)
    for field in fields(one):
        assert np.array_equal(getattr(back, field.name), getattr(one, field.name)), field.name
    assert encode(back) == encode(one)


@given(st.binary(max_size=400), st.booleans())
def test_no_bytes_make_the_judge_raise(data, is_packed):
    found = verdict(zstandard.compress(data) if is_packed else data)
    assert isinstance(found, RefusedSegment)


@given(st.integers(0, 10**6), st.integers(0, 7), st.integers(0, 50))
def test_a_flipped_bit_never_makes_the_judge_raise(place, bit, cut):
    raw = bytearray(zstandard.decompress(encode(honest(6)[0])))
    raw[place % len(raw)] ^= 1 << bit
    data = zstandard.compress(bytes(raw[: len(raw) - cut]))
    found = verdict(data)
    if isinstance(found, Accepted):  # then the values are still Meta-World's, and it is another segment's content
        assert found.segment.horizon == HORIZON
        assert np.isfinite(found.segment.obs).all()


def test_no_bomb_takes_memory():
    rng = np.random.default_rng(0)
    for kind in ("bomb", "bomb of unknown size", "huge file", "brackets without end", "header longer than the file"):
        data, name = hostile(kind, honest(6)[0], rng)
        tracemalloc.start()
        judge(data, name, expectation())
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2 * 2**20, kind


def test_a_frame_that_states_less_than_it_holds_is_not_unpacked_further(segment):
    data = bytearray(zstandard.compress(zstandard.decompress(encode(segment)) + bytes(100_000)))
    stated = zstandard.get_frame_parameters(bytes(data)).content_size
    at = bytes(data).find(stated.to_bytes(4, "little"))
    data[at : at + 4] = (5_000).to_bytes(4, "little")
    assert verdict(bytes(data)).reason == Reason.COMPRESSION


@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1), st.integers(0, 5), st.integers(0, 10))
def test_a_thinned_policy_counts_as_the_lower_of_its_neighbours(known, attempt, seq):
    versions = [(a, s, 100 * a + s) for a, s in sorted(known)]
    found = step_of(attempt, seq, versions)
    lower = [s for a, s in known if a == attempt and s <= seq]
    higher = [s for a, s in known if a == attempt and s >= seq]
    assert found == (100 * attempt + max(lower) if lower and higher else None)


def test_the_oldest_policy_of_a_segment_decides_on_its_lag(segment):
    version = segment.version.copy()
    version[0] = (2, 3)  # thinned out: counts as 2-1
    found = verdict(encode(replace(segment, version=version)))
    assert found.lag == 100_000
    assert verdict(encode(replace(segment, version=version)), max_lag=99_999).reason == Reason.VERSION_LAG
    assert tuple(segment.version[-1]) == NOW
    assert verdict(encode(segment), step=KNOWN[-1][2] - 50).lag == 0
