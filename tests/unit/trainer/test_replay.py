from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from suites import FIELDS

from trainer.buffers.replay import Replay, shares
from trainer.buffers.rows import joined
from trainer.checkpoints.rows import read_into, saved_until, still_needed, write_rows_file


def rows(task, first):
    """Transitions whose every number tells which row they are."""
    n = len(task)
    mark = np.arange(first, first + n, dtype=np.float32)
    return np.array(task), {
        "obs.state": np.repeat(mark[:, None], 39, 1),
        "action": np.repeat(mark[:, None], 4, 1),
        "reward": mark,
        "next_obs.state": np.repeat(mark[:, None] + 0.5, 39, 1),
        "terminated": mark % 2 == 0,
    }


def same(a, b):
    return a.counts.tolist() == b.counts.tolist() and all(np.array_equal(a.arrays()[n], b.arrays()[n]) for n in FIELDS)


def filled(capacity, num_tasks, additions):
    replay, marked = Replay(capacity, num_tasks, FIELDS), 0
    for task in additions:
        replay.add(*rows(task, marked))
        marked += len(task)
    return replay


def test_a_full_ring_forgets_the_oldest_row_of_that_task_only():
    replay = filled(4, 2, [[0, 1], [0], [0]])
    assert replay.sizes.tolist() == [2, 1]
    assert sorted(replay.arrays()["reward"][:2].tolist()) == [2, 3]
    assert replay.arrays()["reward"][2] == 1


def test_several_rows_of_one_task_in_one_step_are_all_kept_in_order():
    replay = filled(8, 2, [[1, 1, 0, 1]])
    assert replay.arrays()["reward"][4:7].tolist() == [0, 1, 3]


@given(st.integers(1, 60), st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(0, 100))
def test_a_batch_is_whole_and_balanced_over_the_tasks_that_have_rows(batch, sizes, turn):
    sizes = np.array(sizes)
    if not sizes.any():
        with pytest.raises(ValueError, match="empty"):
            shares(batch, sizes, turn)
        return
    counts, _ = shares(batch, sizes, turn)
    drawn = counts[sizes > 0]
    assert counts.sum() == batch
    assert drawn.max() - drawn.min() <= 1
    assert counts[sizes == 0].sum() == 0


def test_what_is_left_over_goes_round_so_that_all_tasks_get_the_same_in_the_end():
    total, turn = np.zeros(10, np.int64), 0
    for _ in range(5):
        counts, turn = shares(512, np.full(10, 7), turn)
        total += counts
    assert set(total.tolist()) == {256}


def test_tasks_draw_independent_indices():
    replay = Replay(2000, 2, FIELDS)
    for _ in range(1000):
        replay.add(*rows([0, 1], 0))
    replay.arrays()["reward"][:] = np.concatenate([np.arange(1000), np.arange(1000)])
    batch = replay.pick(replay.deal(400), np.random.default_rng(0))
    first, second = batch.reward[batch.task == 0], batch.reward[batch.task == 1]
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    assert np.unique(first).size > 150


def test_sampling_returns_the_rows_of_the_task_that_it_says():
    replay = filled(60, 3, [[0, 1, 2]] * 5)
    batch = replay.pick(replay.deal(31), np.random.default_rng(1))
    assert np.array_equal(batch.reward % 3, batch.task)
    assert np.array_equal(batch.next_obs["state"][:, 0], batch.obs["state"][:, 0] + 0.5)
    assert np.array_equal(batch.terminated, (batch.reward % 2 == 0).astype(np.float32))


class Extreme:
    """A stream whose every number is one of the two ends of what a stream gives."""

    def __init__(self, value):
        self.value = value

    def random(self, count):
        return np.full(count, self.value)


@given(st.integers(1, 2**20), st.integers(0, 2))
def test_the_ends_of_what_a_stream_gives_are_the_first_row_and_the_last(size, task):
    replay = Replay(3 * 2**20, 3, {})
    replay.counts[:] = size
    counts = np.where(np.arange(3) == task, 2, 0)
    for value, row in ((0.0, 0), (np.nextafter(1, 0), size - 1)):
        assert replay.drawn(counts, Extreme(value)).places.tolist() == [task * 2**20 + row] * 2


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4), st.integers(0, 5))
def test_what_is_gathered_from_several_rings_is_what_each_has_drawn_joined_in_their_order(counts, seed):
    """Drawn in the same order from the same stream; a ring that gives nothing is among them, too."""
    rings = [filled(15 + 3 * number, 3, [[0, 1, 2]] * (4 + number)) for number in range(len(counts))]
    for number, ring in enumerate(rings):
        for name in ("reward", "action", "obs.state", "next_obs.state"):
            ring.arrays()[name][:] += 1_000 * number
    counts = [np.array(row) for row in counts]
    at_once, one_by_one = np.random.default_rng(seed), np.random.default_rng(seed)
    whole = rings[0].gathered([ring.drawn(count, at_once) for ring, count in zip(rings, counts, strict=True)])
    apart = [ring.pick(count, one_by_one) for ring, count in zip(rings, counts, strict=True)]
    wanted = reduce(joined, apart)
    assert np.array_equal(whole.task, wanted.task)
    for field in ("action", "reward", "terminated"):
        assert np.array_equal(getattr(whole, field), getattr(wanted, field)), field
    assert np.array_equal(whole.obs["state"], wanted.obs["state"])
    assert np.array_equal(whole.next_obs["state"], wanted.next_obs["state"])
    assert at_once.bit_generator.state == one_by_one.bit_generator.state


ADDITION = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@given(st.lists(st.one_of(ADDITION, st.just("checkpoint"), st.just("crash")), max_size=30))
def test_any_sequence_of_additions_checkpoints_and_crashes_rebuilds_the_same_ring(tmp_path_factory, events):
    slot = tmp_path_factory.mktemp("slot")
    attempt, marked, written = 0, 0, 0
    replay, segments = Replay(15, 3, FIELDS), ()
    saved = ([0, 0, 0], segments, 0)
    reference = Replay(15, 3, FIELDS)
    for event in [*events, "checkpoint", "crash"]:
        if event == "checkpoint":
            block = replay.block_since(saved_until(segments, 3))
            written += 1
            segment = write_rows_file(slot, slot / "attempts" / str(attempt), written, block)
            segments = still_needed((*segments, *([segment] if segment else [])), tuple(replay.counts.tolist()), 5)
            saved = (replay.counts.tolist(), segments, marked)
            reference = Replay(15, 3, FIELDS)
            for name, array in replay.arrays().items():
                reference.arrays()[name][:] = array
            reference.counts = replay.counts.copy()
        elif event == "crash":
            attempt += 1
            counts, segments, marked = saved
            replay = Replay(15, 3, FIELDS)
            replay.counts = np.array(counts)
            read_into(replay, slot, segments)
            assert same(replay, reference)
        else:
            replay.add(*rows(event, marked))
            marked += len(event)


def test_a_segment_drops_out_when_all_its_rows_are_overwritten(tmp_path):
    replay = filled(4, 1, [[0]] * 2)
    first = write_rows_file(tmp_path, tmp_path / "attempts/0", 2, replay.block_since((0,)))
    assert still_needed((first,), (5,), 4) == (first,)
    assert still_needed((first,), (6,), 4) == ()
