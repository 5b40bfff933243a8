from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suites import SPACES

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
