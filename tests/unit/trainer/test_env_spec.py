from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from suites import SPACES

from trainer.envs.channel import STEP, Channel
from trainer.envs.shared import SharedBuffers
from trainer.envs.step import scheduled_task

SIZES = st.integers(1, 60)


@given(SIZES, SIZES, st.integers(0, 1000))
def test_each_environment_plays_its_tasks_equally_often(num_envs, num_tasks, first_episode):
    cycle = num_tasks // math.gcd(num_envs, num_tasks)
    for index in range(num_envs):
        episodes = range(first_episode, first_episode + cycle)
        counts = Counter(scheduled_task(index, e, num_envs, num_tasks) for e in episodes)
        assert set(counts.values()) == {1}


@given(SIZES, SIZES, st.data())
def test_every_task_is_visited_wherever_each_environment_is_in_its_count(num_envs, num_tasks, data):
    at = data.draw(st.lists(st.integers(0, 99), min_size=num_envs, max_size=num_envs))
    seen = {scheduled_task(i, e, num_envs, num_tasks) for i in range(num_envs) for e in range(at[i], at[i] + num_tasks)}
    assert seen == set(range(num_tasks))


@given(st.integers(1, 8), st.integers(1, 50), st.integers(0, 99))
def test_with_a_multiple_of_the_tasks_each_environment_keeps_its_own(times, num_tasks, episode):
    for index in range(times * num_tasks):
        assert scheduled_task(index, episode, times * num_tasks, num_tasks) == index % num_tasks


@pytest.mark.parametrize("num_envs", [1, 7, 48])
def test_rows_of_shared_buffers_do_not_overlap(num_envs):
    buffers = SharedBuffers(SPACES, num_envs)
    for number, array in enumerate(buffers.fields.values()):
        array.fill(number % 2)
    for number, array in enumerate(buffers.fields.values()):
        assert (array == number % 2).all()
    buffers.close()


def test_two_holders_of_one_descriptor_see_the_same_buffers():
    ours = SharedBuffers(SPACES, 3)
    theirs = SharedBuffers(SPACES, 3, ours.fd)
    theirs.fields["reward"][1] = 4.5
    assert ours.fields["reward"].tolist() == [0, 4.5, 0]
    step = ours.copied()
    theirs.fields["reward"][1] = 9
    assert step.reward.tolist() == [0, 4.5, 0]
    ours.close()


@pytest.fixture
def ends():
    import socket

    ours, theirs = (Channel(end) for end in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_message_arrives_as_it_was_sent(ends):
    arrays = {"a": np.arange(6, dtype=np.float64).reshape(2, 3)[:, ::2], "b": np.array([True]), "c": np.zeros(0)}
    ends[0].send(STEP, {"rng": 2**127 + 1, "none": None}, arrays)
    message = ends[1].receive()
    assert (message.op, message.meta) == (STEP, {"rng": 2**127 + 1, "none": None})
    assert {name: (a.dtype, a.tolist()) for name, a in message.arrays.items()} == {
        name: (a.dtype, a.tolist()) for name, a in arrays.items()
    }


def test_a_closed_end_is_noticed_in_both_directions(ends):
    ends[0].close()
    with pytest.raises(EOFError):
        ends[1].receive()
    with pytest.raises(EOFError):
        ends[1].send(STEP)
