"""The main job itself: Meta-World MT10 on a real Slurm, handed over, stopped and taken up again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster

from anchorleg.job import lineage
from trainer.history.read import read

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

SLOTS = (0, 1)
JOBS = 3


def a_training(new_relay: NewRelay, slurm: SlurmCluster) -> Relay:
    return new_relay(
        "mt10",
        env=slurm.env(),
        executor="slurm",
        slots=len(SLOTS),
        lead_seconds=20,
        poll_seconds=1,
        slurm={"time_limit": "30", "mem": "2G", "cpus_per_task": 1, "gpus": 0},
        command=None,
        training={
            "preset": "debug",
            "benchmark": "MT10",
            "total_steps": 10_000_000,
            "checkpoint_interval": 1_000,
            "metrics_interval": 100,
            "num_workers": 0,
            "evaluation_goals": 0,
        },
    )


def slots_of(view: dict[str, Any]) -> list[dict[str, Any]]:
    return [slot for slot in view["slots"] if slot["slot"] in SLOTS]


def newest_of(folder: Path, attempt: int) -> tuple[int, int]:
    """(attempt, step) of the newest checkpoint when `attempt` ended: its own, else the one that it began with, where
    a busy machine left it no time for a step.
    """
    progress = json.loads((folder / f"attempts/{attempt}/progress.json").read_text())
    if any((folder / f"attempts/{attempt}/checkpoints").glob("*")):
        return attempt, progress["checkpoint_step"]
    parent = json.loads((folder / f"attempts/{attempt}/parent.json").read_text())
    return parent["attempt"], parent["step"]


def assert_each_job_began_where_the_last_one_stopped(relay: Relay, slot: int, attempts: int) -> None:
    folder = relay.run_dir / "slots" / str(slot)
    for number in range(1, attempts):
        parent = json.loads((folder / f"attempts/{number}/parent.json").read_text())
        progress = json.loads((folder / f"attempts/{number - 1}/progress.json").read_text())
        assert (parent["attempt"], parent["step"]) == newest_of(folder, number - 1)
        assert progress["step"] == progress["checkpoint_step"], "not one step was done in vain"


def test_mt10_goes_on_over_jobs_a_stop_and_a_start(new_relay: NewRelay, slurm: SlurmCluster) -> None:
    relay = a_training(new_relay, slurm)
    with relay.watched(every_s=1.0):
        controller = relay.spawn("start")

        def they_train(attempt: int) -> bool:
            begun = (relay.run_dir / "run.json").exists() and slots_of(relay.status())
            return bool(begun) and all(
                slot["attempt"] == attempt
                and slot["start_step"] is not None
                and (slot["step"] or 0) > slot["start_step"]
                for slot in begun
            )

        for attempt in range(JOBS):
            relay.wait_for(lambda attempt=attempt: they_train(attempt), f"job {attempt} of each slot")
            for slot in SLOTS if attempt < JOBS - 1 else ():
                relay.hand_over(slot)
        before = {slot["slot"]: slot["step"] for slot in slots_of(relay.status())}
        stopped = relay.run("stop")

        assert stopped.code == 0, stopped.words
        assert relay.ended(controller) == 0, relay.output()
    view = relay.status()
    assert view["state"] == "stopped"
    slurm.wait_for(lambda: not slurm.squeue(), "an empty queue")
    saved = {slot["slot"]: slot["checkpoint_step"] for slot in slots_of(view)}
    attempts = {slot["slot"]: slot["attempt"] + 1 for slot in slots_of(view)}
    for slot in SLOTS:
        assert saved[slot] >= before[slot], "the checkpoint is no older than the stop"
        assert_each_job_began_where_the_last_one_stopped(relay, slot, attempts[slot])

    relay.spawn("start")
    relay.wait_for(lambda: all((s["start_step"] or 0) > 0 for s in slots_of(relay.status())), "the next jobs")
    for slot in slots_of(relay.status()):
        assert slot["start_step"] == saved[slot["slot"]]
        assert slot["attempt"] == attempts[slot["slot"]]
    assert relay.run("stop").code == 0
    for slot in SLOTS:
        assert_every_step_once(relay.run_dir / "slots" / str(slot))


def assert_every_step_once(slot_dir: Path) -> None:
    stretches = lineage(slot_dir)
    assert [s.after for s in stretches[1:]] == [s.until for s in stretches[:-1]]
    rows = read(slot_dir)
    assert rows, "there are metrics"
    ends = [0, *(row["to"] for row in rows)]
    assert [row["from"] for row in rows] == ends[:-1]
