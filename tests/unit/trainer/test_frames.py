"""Frames that are kept once, against whole transitions that are kept as they came."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from played_frames import Played, same_transitions, spaces_of_frames
from refused import refused

from trainer.buffers import frames as kept
from trainer.buffers.frames import FrameReplay
from trainer.buffers.nstep import NStep
from trainer.buffers.replay import Block
from trainer.buffers.rows import STEPS
from trainer.checkpoints.rows import read_into, saved_until, still_needed, write_rows_file
from trainer.envs.spaces import IMAGE

GAMMA = 0.9
LOOKS = [(1, 1, False), (3, 1, False), (2, 3, False), (3, 1, True), (3, 2, True)]


def holds_what_it_should(ring, played, steps):
    return all(
        same_transitions(ring.transitions(k, ring.whole(k)), played.expected(k, ring.capacity, steps, GAMMA))
        for k in range(ring.num_tasks)
    )


def filled(look, *, capacity=60, steps=1, num_envs=3, tasks=2, count=40, seed=0, ending=0.2):
    stack, stride, clip = look
    spaces = spaces_of_frames(tasks, stack, stride, clip=clip)
    ring, played = FrameReplay(capacity, tasks, spaces, steps, GAMMA), Played(spaces, num_envs, seed)
    for _ in range(count):
        ring.add(played.step(ending))
    return ring, played


@given(
    look=st.sampled_from(LOOKS),
    steps=st.integers(1, 4),
    capacity=st.integers(2, 40),
    num_envs=st.integers(1, 4),
    ending=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 2**32),
    events=st.lists(st.sampled_from(["step", "step", "step", "lose", "fewer", "more"]), min_size=5, max_size=40),
)
def test_whatever_happens_what_can_be_drawn_is_each_transition_that_is_whole_once(
    look, steps, capacity, num_envs, ending, seed, events
):
    stack, stride, clip = look
    spaces = spaces_of_frames(2, stack, stride, clip=clip)
    ring, played = FrameReplay(2 * capacity, 2, spaces, steps, GAMMA), Played(spaces, num_envs, seed)
    most = num_envs
    for event in events:
        if event == "step":
            ring.add(played.step(ending))
        elif event != "lose":
            played.resize(max(1, played.num_envs + (1 if event == "more" else -1)))
            most = max(most, played.num_envs)
        elif 2 * most <= capacity:  # else nobody can tell a lost episode from one whose last row is overwritten
            played.lose(0)
        whole = [bool(played.expected(k, ring.capacity, steps, GAMMA)) for k in range(2)]
        assert ring.drawable.tolist() == whole
        assert ring.is_ready == any(whole)
    assert holds_what_it_should(ring, played, steps)


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_steps_are_summed_up_as_on_the_way_into_a_plain_replay(look):
    """To the bit, in the order in which they begin."""
    ring, one = filled(look, capacity=10_000, steps=3, tasks=1)
    played, sums = Played(one.spaces, 3), NStep(one.spaces, 3, 3, GAMMA)
    plain = [rows for _ in range(40) for _, rows in sums.add(played.step(0.2))]
    batch = ring.transitions(0, ring.whole(0))

    def sorted_by_action(array, action):
        return array[np.lexsort(action.T)]

    action = np.concatenate([rows["action"] for rows in plain])
    for name, found in (
        ("reward", batch.reward),
        ("terminated", batch.terminated),
        (STEPS, batch.steps),
        *((f"obs.{key}", array) for key, array in batch.obs.items()),
        *((f"next_obs.{key}", array) for key, array in batch.next_obs.items()),
    ):
        wanted = np.concatenate([rows[name] for rows in plain])
        assert np.array_equal(sorted_by_action(found, batch.action), sorted_by_action(wanted, action)), name


@pytest.mark.parametrize("draws", [kept._DRAWS, 0], ids=["drawn anew", "looked up"])
def test_every_whole_step_is_as_likely_as_the_others(monkeypatch, draws):
    """Of a ring that has gone round; both ways to find one."""
    monkeypatch.setattr(kept, "_DRAWS", draws)
    ring, _ = filled((3, 2, False), capacity=60, steps=3, tasks=1, num_envs=2)
    whole, rng = ring.transitions(0, ring.whole(0)), np.random.default_rng(0)
    count, each = len(whole.reward), 400
    assert 10 < count < 50
    drawn = ring.pick(np.array([each * count]), rng).reward
    found = (drawn[:, None] == whole.reward).sum(0)
    assert found.sum() == each * count
    # Pearson's; its mean is count - 1 and its deviation the root of twice that: no more than three of them away.
    assert abs(((found - each) ** 2 / each).sum() - (count - 1)) < 3 * np.sqrt(2 * (count - 1))


def test_a_batch_is_of_the_tasks_that_have_a_whole_step_and_decided_by_ring_and_stream():
    ring, played = filled((3, 1, False), tasks=3, count=4, num_envs=2, ending=0.0)
    counts = ring.deal(10)
    assert (counts > 0).tolist() == ring.drawable.tolist()
    one, same = (ring.pick(counts, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(one.obs[IMAGE], same.obs[IMAGE])
    assert set(one.task.tolist()) == set(np.flatnonzero(ring.drawable).tolist())
    assert {tuple(shape) for shape in (one.obs[IMAGE].shape, one.next_obs[IMAGE].shape)} == {(10, 6, 3, 4)}
    for k in np.unique(one.task):
        wanted = {float(reward) for _, _, reward, *_ in played.expected(k, ring.capacity, 1, GAMMA)}
        assert set(one.reward[one.task == k].tolist()) <= wanted


def test_a_ring_without_a_whole_step_says_so():
    ring, _ = filled((3, 4, False), capacity=4, tasks=1, num_envs=4, ending=0.0)
    assert not ring.is_ready
    with pytest.raises(ValueError, match="the replay ring is empty"):
        ring.deal(4)
    with pytest.raises(ValueError, match="no complete step of a task"):
        ring.pick(np.array([4]), np.random.default_rng(0))


EVENTS = st.lists(st.sampled_from(["step", "step", "step", "lose", "checkpoint", "crash"]), max_size=40)


@given(look=st.sampled_from(LOOKS), steps=st.integers(1, 3), capacity=st.integers(6, 30), events=EVENTS)
def test_any_sequence_of_steps_checkpoints_and_crashes_rebuilds_the_same_ring(
    tmp_path_factory, look, steps, capacity, events
):
    """To what is drawn of it, and to where it goes on."""
    slot = tmp_path_factory.mktemp("slot")
    stack, stride, clip = look
    spaces = spaces_of_frames(2, stack, stride, clip=clip)

    def empty():
        return FrameReplay(2 * capacity, 2, spaces, steps, GAMMA)

    played, ring, segments, attempt = Played(spaces, 3), empty(), (), itertools.count()
    for number, event in enumerate(events):
        if event == "step":
            ring.add(played.step())
        elif event == "lose":
            played.lose(1)
        elif event == "checkpoint":
            block = ring.block_since(saved_until(segments, 2))
            segment = write_rows_file(slot, slot / "attempts" / str(next(attempt)), number, block)
            segments = still_needed((*segments, *([segment] if segment else [])), tuple(ring.counts), capacity)
        else:  # right after a checkpoint, since the environments go on from there
            block = ring.block_since(saved_until(segments, 2))
            segment = write_rows_file(slot, slot / "attempts" / str(next(attempt)), number, block)
            segments = (*segments, *([segment] if segment else []))
            again = empty()
            again.counts = ring.counts.copy()
            again.load(ring.state())
            read_into(again, slot, segments)
            assert all(np.array_equal(ring.arrays()[name], array) for name, array in again.arrays().items())
            assert ring.drawable.tolist() == again.drawable.tolist()
            if ring.is_ready:
                counts = ring.deal(8)
                one, other = (each.pick(counts, np.random.default_rng(number)) for each in (ring, again))
                assert np.array_equal(one.reward, other.reward)
                assert np.array_equal(one.next_obs[IMAGE], other.next_obs[IMAGE])
            ring = again
    assert holds_what_it_should(ring, played, steps)


@pytest.mark.parametrize("back", [-1, 10**6])
def test_rows_that_point_to_where_no_row_ever_was_are_refused(back):
    ring, _ = filled((3, 1, False))
    block = ring.block_since((0, 0))
    wrong = {**block.arrays, "back": np.where(np.arange(len(block.arrays["back"])) == 7, back, block.arrays["back"])}
    for arrays in (wrong, {name: array for name, array in block.arrays.items() if name != "back"}):
        with refused("rows.pointers"):
            ring.put_back(Block(block.starts, block.counts, arrays))
