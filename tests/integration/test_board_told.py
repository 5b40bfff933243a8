"""A real controller tells those who mirror its run of slots and jobs, once a program of it publishes."""

from __future__ import annotations

import json

import pytest
from daemons import wait_for
from relay import NewRelay

from orchestrator.run.rundir import RunDir, load_run
from orchestrator.screens.board import FILE


@pytest.mark.long
def test_a_controller_tells_the_board_behind_its_ticks(new_relay: NewRelay) -> None:
    relay = new_relay(total=500, slots=1, held_at=20)
    relay.spawn("start")
    relay.wait_for_step(20)
    run = load_run(RunDir(relay.run_dir))
    metrics = relay.run_dir / "shared/v1/runs" / run.run_id / "0/metrics"
    assert not metrics.exists(), "it makes no folder"
    metrics.mkdir(parents=True)
    wait_for((metrics / FILE).exists, "the board")
    told = json.loads((metrics / FILE).read_bytes())
    assert told["view"]["slots"][0]["state"] == "running"
    assert len(told["times"][0]["jobs"]) == 1
    relay.release()
