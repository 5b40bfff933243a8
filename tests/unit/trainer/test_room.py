from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.acting.room import OWNERS_BYTES, Room, need_bytes, room, workers_for
from trainer.tuning.autotune import Facts, Stepping, recommend
from trainer.tuning.host import Host

GB = 2**30


@pytest.mark.parametrize(
    ("cores", "free_gb", "found"), [(1, 1.5, Room(1, 0)), (4, 4.5, Room(1, 0)), (1, 5, Room(8, 0))]
)
def test_a_small_machine_is_left_to_its_owner_by_rule_as_it_is_by_measurement(cores, free_gb, found):
    free = int(free_gb * GB)
    assert room(cores, free) == found
    assert room(cores, free, 4).num_envs == 4  # who names a number gets it
    host = Host("small", cores, 8 * GB, free)
    measured = recommend(Facts(host, "", "", (Stepping(8, 0, 900.0),), (), {}, 0.0, 1.0))
    assert (measured.num_envs, measured.workers) == (found.num_envs, found.workers)


def test_fifty_tasks_take_what_was_measured():
    assert need_bytes(8, 0, 10) < 0.7 * GB
    assert 1.2 * GB < need_bytes(8, 0, 50) < 1.6 * GB
    assert need_bytes(50, 5, 50) == need_bytes(50, 5)  # an environment a task: nothing is changed


@given(st.integers(1, 50), st.integers(1, 256), st.integers(0, 64), st.none() | st.integers(0, 128 * GB))
def test_many_tasks_take_fewer_workers_before_they_take_the_owners_memory(tasks, envs, workers, free):
    found = workers_for(tasks, Room(envs, workers), free)
    assert 0 <= found <= workers
    assert found != 1 or workers == 1
    if free is None:
        assert found == workers
    elif found:
        left = free + need_bytes(0, 0) - need_bytes(envs, found, tasks)
        assert left >= (OWNERS_BYTES if need_bytes(envs, workers) - need_bytes(0, 0) <= free - OWNERS_BYTES else 0)
