"""Rings of transitions, in memory and on the learner's device (here the CPU): no number may differ."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st
from suites import FIELDS

from trainer.buffers.experience import Experience
from trainer.buffers.replay import Replay, shares
from trainer.buffers.rows import joined, with_steps
from trainer.checkpoints.rows import read_into, saved_until, still_needed, write_rows_file
from trainer.config.section import TrainingSection, resolve
from trainer.envs.suite import spaces_of

pytestmark = pytest.mark.trainer
CPU = torch.device("cpu")
SUMMED = with_steps(FIELDS)
#: Where rows lie; the device is the CPU here.
KINDS = {"host": None, "device": CPU}


def rows(task, first=0):
    """Transitions whose every number tells which row they are; as the environments give them, not as they are kept."""
    mark = np.arange(first, first + len(task))
    return np.array(task), {
        "obs.state": np.repeat(mark[:, None], 39, 1).astype(np.float32),
        "action": np.repeat(mark[:, None], 4, 1).astype(np.float32),
        "reward": mark.astype(np.float64),
        "next_obs.state": np.repeat(mark[:, None] + 0.5, 39, 1).astype(np.float32),
        "terminated": mark % 2 == 0,
        "steps": (mark % 3 + 1).astype(np.uint8),
    }


def same(a, b):
    return a.counts.tolist() == b.counts.tolist() and all(np.array_equal(a.arrays()[n], b.arrays()[n]) for n in SUMMED)


def filled(capacity, num_tasks, additions, device=None):
    replay, marked = Replay(capacity, num_tasks, SUMMED, device), 0
    for task in additions:
        replay.add(*rows(task, marked))
        marked += len(task)
    return replay


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


def test_sampling_returns_the_rows_of_the_task_that_it_says():
    replay = filled(60, 3, [[0, 1, 2]] * 5)
    batch = replay.pick(replay.deal(31), np.random.default_rng(1))
    assert np.array_equal(batch.reward % 3, batch.task)
    assert np.array_equal(batch.next_obs["state"][:, 0], batch.obs["state"][:, 0] + 0.5)
    assert np.array_equal(batch.terminated, (batch.reward % 2 == 0).astype(np.float32))


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
    replay, segments = Replay(15, 3, SUMMED), ()
    saved = ([0, 0, 0], segments, 0)
    reference = Replay(15, 3, SUMMED)
    for event in [*events, "checkpoint", "crash"]:
        if event == "checkpoint":
            block = replay.block_since(saved_until(segments, 3))
            written += 1
            segment = write_rows_file(slot, slot / "attempts" / str(attempt), written, block)
            segments = still_needed((*segments, *([segment] if segment else [])), tuple(replay.counts.tolist()), 5)
            saved = (replay.counts.tolist(), segments, marked)
            reference = Replay(15, 3, SUMMED)
            for name, array in replay.arrays().items():
                reference.arrays()[name][:] = array
            reference.counts = replay.counts.copy()
        elif event == "crash":
            attempt += 1
            counts, segments, marked = saved
            replay = Replay(15, 3, SUMMED)
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


ADDED = [0, 1, 2, 0], [2, 2, 1], [0, 0, 0, 0, 1]


def test_a_batch_has_the_same_rows_wherever_they_lie():
    drawn = []
    for device in KINDS.values():
        ring, rng = filled(12, 3, ADDED, device), np.random.default_rng(3)
        drawn.append([ring.pick(ring.deal(16), rng) for _ in range(3)])
    for host, device in zip(*drawn, strict=True):
        for field in ("action", "reward", "terminated", "steps"):
            there = getattr(device, field)
            assert isinstance(there, torch.Tensor)
            assert there.dtype == torch.float32
            assert np.array_equal(there.numpy(), getattr(host, field))
        for seen in ("obs", "next_obs"):
            assert np.array_equal(getattr(device, seen)["state"].numpy(), getattr(host, seen)["state"])
        assert isinstance(device.task, np.ndarray)
        assert np.array_equal(device.task, host.task)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_rows_of_a_task_are_found_past_the_rings_end(kind):
    ring = filled(12, 3, ADDED, KINDS[kind])  # of task 0 the rows 0, 3, 7, 8, 9 and 10 in a ring of 4
    assert [ring.newest(0, most, "reward").tolist() for most in (2, 4, 9)] == [[9, 10], [7, 8, 9, 10], [7, 8, 9, 10]]
    assert ring.newest(1, 9, "steps").tolist() == [2, 1, 3]


@pytest.mark.parametrize(("written", "read"), [("host", "device"), ("device", "host"), ("device", "device")])
def test_row_files_are_the_same_wherever_the_rows_lie(tmp_path, written, read):
    ring = filled(12, 3, ADDED, KINDS[written])
    segment = write_rows_file(tmp_path, tmp_path / "attempts/0", 5, ring.block_since((0, 0, 0)))
    other = write_rows_file(tmp_path, tmp_path / "attempts/1", 5, filled(12, 3, ADDED).block_since((0, 0, 0)))
    assert segment.sha256 == other.sha256
    again = Replay(12, 3, SUMMED, KINDS[read])
    again.counts = ring.counts.copy()
    read_into(again, tmp_path, (segment,))
    assert same(again, ring)


@pytest.mark.parametrize("kind", KINDS)
def test_of_more_rows_of_a_task_than_have_room_the_last_ones_stay(kind):
    """No place is written twice: which of the two a GPU would leave there is not said."""
    ring = Replay(12, 3, SUMMED, KINDS[kind])
    lay = ring.storage.lay

    def once(places, rows):
        assert len(set(places.tolist())) == len(places)
        lay(places, rows)

    ring.storage.lay = once
    ring.add(*rows([1, *[0] * 6, 2, *[0] * 5]))
    assert ring.counts.tolist() == [11, 1, 1]
    # Rows 7 … 10 of the task, each where its number says: the marks of the zeros behind the first six are 8 … 12.
    assert ring.arrays()["reward"][:4].tolist() == [10, 11, 12, 9]
    assert sorted(ring.rows_of(0)["reward"].tolist()) == [9, 10, 11, 12]
    assert ring.rows_of(1)["reward"].tolist() == [0]


def training_of(**more):
    return resolve(TrainingSection(**{"tasks": ("reach-v3", "push-v3", "door-open-v3"), "buffer_size": 300, **more}))


def test_others_rows_join_a_batch_on_the_device():
    found = []
    for place in ("host", "device"):
        training = training_of(replay_on=place)
        experience = Experience(training, spaces_of(training), CPU)
        task, values = rows([0, 1, 2] * 20)
        experience.add(task, values)
        _, theirs = rows([0] * 30, 500)
        del theirs["steps"]
        experience.welcome().add("ben", theirs, task=0, content="c", policy_step=0, step=0)
        found.append(experience.sample(60))
    host, device = found
    assert (host.reward >= 500).sum() > 0
    assert isinstance(device.obs["state"], torch.Tensor)
    assert np.array_equal(device.reward.numpy(), host.reward)
    assert np.array_equal(device.obs["state"].numpy(), host.obs["state"])
