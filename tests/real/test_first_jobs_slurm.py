"""`start --probe-first` and `after` on real Slurm."""

from __future__ import annotations

import json

import pytest
from relay import NewRelay
from slurm_cluster import PrivateSlurm
from slurm_relay import ever, on_slurm, rows_of

pytestmark = [pytest.mark.slurm, pytest.mark.long]


def test_one_slot_starts_then_the_others_then_the_run_after_it(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=4)
    first = on_slurm(new_relay, slurm, "first", total=40, slots=3, held_at=10)
    controller = first.spawn("start", "--probe-first")
    first.wait_for_step(10)
    second = on_slurm(new_relay, slurm, "second", total=20, after=str(first.run_dir))
    behind = second.spawn("start")
    second.wait_for((second.run_dir / "run.json").exists, "the second run")
    second.wait_for(lambda: "first: 0 of 3" in json.dumps(second.status()["slots"]), "the reason why it waits")
    assert len(ever(slurm, first)) == 1
    assert [slot["state"] for slot in first.status()["slots"]] == ["running", "waiting", "waiting"]

    first.hold_at(30)
    first.wait_for(lambda: len(rows_of(slurm, first)) == 3, "jobs of all slots")
    assert rows_of(slurm, second) == []
    first.release()

    assert first.ended(controller) == 0, first.output()
    assert second.ended(behind) == 0, second.output()
    for slot in range(3):
        first.assert_exactly_once(40, slot)
    second.assert_exactly_once(20)
    began = min(row.job_id for row in ever(slurm, second))
    assert began > max(row.job_id for row in ever(slurm, first))
