"""`orchestrator goodput` of a run that goes on, loses a program to SIGKILL, and ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from relay import NewRelay, Relay

KINDS = ("queue_s", "waiting_s", "start_up_s", "productive_s", "saving_s", "lost_s", "blind_s")
PACE_S = 0.02
TOTAL = 120


def goodput(relay: Relay) -> dict[str, Any]:
    done = relay.run("goodput", "--json")
    assert done.code == 0, done.words
    return dict(json.loads(done.out))


@pytest.mark.long
def test_the_killed_jobs_steps_are_lost_and_all_other_time_has_its_kind(new_relay: NewRelay) -> None:
    relay = new_relay(total=TOTAL, pace_s=PACE_S, held_at=40)
    controller = relay.spawn("start")
    relay.wait_for_step(40)
    running = goodput(relay)
    relay.hand_over()
    relay.hold_at(80)
    relay.wait_for(lambda: relay.attempts() == [0, 1] and relay.counted() == 80, "the second job")
    relay.wait_for(lambda: relay.read("progress.json", 1)["step"] == 80, "its report")
    relay.kill_program()
    relay.release()
    assert relay.ended(controller) == 0, relay.output()

    assert running["slots"][0]["jobs"][-1]["times"]["lost_s"] == 0, "a job that runs has lost nothing yet"
    seen = goodput(relay)
    slot, times = seen["slots"][0], seen["slots"][0]["times"]
    jobs = {job["attempt"]: job["times"] for job in slot["jobs"]}
    assert jobs[1]["lost_s"] > 0
    assert jobs[1]["productive_s"] == 0
    assert all(job["lost_s"] == pytest.approx(0) for number, job in jobs.items() if number != 1)
    assert times["productive_s"] == pytest.approx(sum(job["productive_s"] for job in jobs.values()))
    assert all(job["productive_s"] > 0 for number, job in jobs.items() if number != 1), "its steps were kept"
    for attempt in relay.attempts():
        ended = relay.read("exit.json", attempt)
        assert jobs[attempt]["allocated_s"] == pytest.approx(ended["at"] - ended["started_at"], abs=0.01)
    assert times["allocated_s"] == pytest.approx(sum(job["allocated_s"] for job in jobs.values()))
    first, last = relay.events("submission")[0]["at"], relay.read("exit.json", max(jobs))["at"]
    assert sum(times[kind] for kind in KINDS) == pytest.approx(last - first)
    assert seen["times"] == times
    assert 0 < times["goodput"] < 1

    lines = relay.run("goodput").out.splitlines()
    assert lines[0].startswith(f"toy: goodput {100 * times['goodput']:.2f} %, {len(jobs)} jobs, ")
    assert lines[1].startswith("slot 0: goodput ")
    assert "lost " in lines[1]


@pytest.mark.long
def test_a_program_that_ignores_a_request_until_it_is_killed_saves_nothing_in_that_time(new_relay: NewRelay) -> None:
    relay = new_relay(command=["python3", "./count.py", "100000", "deaf"], held_at=30)
    relay.spawn("start")
    relay.wait_for_step(30)
    job = relay.run_dir / "jobs" / relay.read("claim", 0)["token"]
    (job / "hand-over").touch()
    relay.wait_for(lambda: "handing over" in next(job.glob("job-*.out")).read_text(), "the shim to ask its program")
    relay.kill_program()
    relay.wait_for(lambda: len(relay.attempts()) > 1, "the next job")

    times = goodput(relay)["slots"][0]["jobs"][0]["times"]
    assert times["saving_s"] == 0
    ended = relay.read("exit.json", 0)
    assert times["lost_s"] >= ended["at"] - ended["asked_at"] > 0
    assert relay.run("stop", "--now").code == 0
