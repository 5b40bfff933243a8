from __future__ import annotations

import pytest

from trainer.autotune import Facts, Stepping, recommend
from trainer.host import Host
from trainer.room import Room, room

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
